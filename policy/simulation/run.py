"""One simulation: a trace under one rule set with one seed, and what it came to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from policy.cluster.digest import Change, HistoryFigures
from policy.cluster.objects import ClusterObject
from policy.cluster.snapshot import Snapshot
from policy.decision.groups import GroupDecision
from policy.decision.model import ENGINE_VERSION, Decision
from policy.rules.ruleset import RuleSet
from policy.scheduling.cycle import Journal, Recording, Scheduler, SessionRecording
from policy.scheduling.order import waiting
from policy.scheduling.settle import VirtualClock
from policy.scheduling.state import Commit, Position, State, StateDelta
from policy.simulation import figures, uses
from policy.simulation.figures import Figures, Timeline
from policy.simulation.options import Options
from policy.simulation.simulator import Simulator
from policy.simulation.trace import Trace, TraceError
from policy.simulation.uses import PriorityUse

FORMAT: Final = 3
"""What the figures of a result mean; docs/formats.md says what each number changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a simulation came to; equal inputs give equal results."""

    rules: str
    rules_digest: str
    trace: str
    trace_digest: str
    seed: int
    options: Options
    engine_version: str
    start_ms: int
    end_ms: int
    everyone: Figures
    by_priority: Mapping[int, Figures]  #: from the highest priority
    timeline: Timeline
    nominations: int
    nominations_kept: int
    nominations_broken: int
    cycles: int  #: those that were certain to fail count like the others
    outcomes: Mapping[str, int]  #: of the cycles that were made, by outcome
    trail: str  #: digest of everything that happened, in order
    format: int = 1  #: `FORMAT` when it was made; results of the first do not say it
    #: from the highest priority; empty in a recorded result of before it was counted
    use_by_priority: Mapping[int, PriorityUse] = field(default_factory=dict)


def simulate(
    trace: Trace,
    rules: RuleSet,
    *,
    seed: int = 0,
    options: Options | None = None,
    journal: Journal | None = None,
    every_cycle: bool = False,
    on_event: Callable[[int, str], None] | None = None,
) -> Result:
    """Go through the trace under the rules.

    journal: keeps every decision and change; it holds the trace's cluster as it is at the start
    (`objects_at_start`). None: nothing is kept. every_cycle: make also the cycles whose result is
    certain; they change nothing but the time that it takes. on_event: called with the instant (ms)
    and the words of everything that happens. Raises TraceError for rules that name
    extenders, which answer for the cluster as it is, and where no time passes.
    """
    options = options or Options()
    require_possible(trace, rules, options)
    clock = VirtualClock(trace.start_ms)
    scheduler = Scheduler(
        journal or Unrecorded(objects_at_start(trace)),
        rules,
        clock=clock,
        seed=seed,
        dry_run=journal is None,
    )
    simulator = Simulator(
        scheduler,
        rules,
        clock,
        trace,
        options,
        every_cycle=every_cycle or journal is not None,
        on_event=on_event,
    )
    for _ in simulator:
        pass
    simulator.finish()
    everyone, groups = figures.by_priority(simulator.lives)
    nominations = simulator.nominations
    return Result(
        rules=rules.name,
        rules_digest=rules.digest,
        trace=trace.name,
        trace_digest=trace.digest,
        seed=seed,
        options=options,
        engine_version=ENGINE_VERSION,
        start_ms=trace.start_ms,
        end_ms=simulator.lives.end_ms,
        everyone=everyone,
        by_priority=groups,
        timeline=figures.timeline(simulator.lives),
        nominations=nominations.made.total(),
        nominations_kept=nominations.kept,
        nominations_broken=nominations.broken.total(),
        cycles=simulator.cycles,
        outcomes=dict(sorted(simulator.outcomes.items())),
        trail=simulator.lives.trail,
        format=FORMAT,
        use_by_priority=uses.by_priority(simulator.lives, nominations),
    )


def require_possible(trace: Trace, rules: RuleSet, options: Options) -> None:
    """Raises TraceError for what `simulate` refuses."""
    if options.length_ms is None and trace.end_ms <= trace.start_ms:
        raise TraceError(
            f"trace `{trace.name}`: no time passes, as nothing happens after its start",
            help="say with `--for` how long to simulate, or give it an event when it is to end",
        )
    if rules.extenders:
        raise TraceError(
            f"rule set `{rules.name}` names extenders, which know nothing of a simulated cluster",
            help="simulate with a rule set without `extenders`",
        )


def notes_on(trace: Trace, options: Options) -> list[str]:
    """What was filled in or left out of a trace, and which of its pods never start, in words."""
    never = sum(
        not waiting(task.pod, scheduler=options.scheduler)
        for task in trace.tasks
        if not task.running
    )
    if not never:
        return list(trace.notes)
    what = (
        "1 pod never starts, and counts" if never == 1 else f"{never} pods never start, and count"
    )
    return [
        *trace.notes,
        f"{what} as waiting: of another scheduler than `{options.scheduler}`, or with scheduling"
        " gates",
    ]


def objects_at_start(trace: Trace) -> list[ClusterObject]:
    """The cluster as it is when the trace begins."""
    return [*trace.objects, *(task.pod for task in trace.tasks if task.running)]


class Unrecorded:
    """A cluster of which nothing is kept: a dry run on objects in memory."""

    def __init__(self, objects: Iterable[ClusterObject]) -> None:
        self._objects = objects

    def load(self, *, now_ms: int) -> State:
        return State(snapshot=Snapshot.from_objects(self._objects, now_ms=now_ms), revision=0)

    def active_rules(self) -> RuleSet | None:
        return None

    def history(self, rules: RuleSet, *, now_ms: int) -> HistoryFigures | None:
        return {} if rules.history_needs else None

    def delta(self, revision: int, *, state_digest: str) -> StateDelta:
        raise AssertionError("a dry run follows nobody")

    def change(
        self,
        changes: Sequence[Change],
        *,
        source: str,
        at_ms: int,
        expected_revision: int,
        expected_digest: str,
    ) -> Position:
        raise AssertionError("a dry run writes nothing")

    def record(
        self,
        decided: Sequence[tuple[Decision, Sequence[Change]]],
        *,
        expected_revision: int,
        rules: RuleSet,
    ) -> Sequence[Recording]:
        raise AssertionError("a dry run records nothing")

    def record_ahead(
        self,
        decided: Sequence[tuple[Decision, Sequence[Change]]],
        *,
        expected_revision: int,
        rules: RuleSet,
    ) -> Commit[Sequence[Recording]]:
        raise AssertionError("a dry run records nothing")

    def record_group(
        self,
        decision: GroupDecision,
        changes: Sequence[Change],
        *,
        expected_revision: int,
        rules: RuleSet,
    ) -> SessionRecording:
        raise AssertionError("a dry run records nothing")
