"""Recorded sessions of kube-batch: configuration, cluster, and what one session did.

Where the real code's result depends on the order of its maps, the recording holds the result for
key order (`canonical`), which is the one to equal. Where it says that the real code crashed, there
is nothing to equal: ours has to come to an end.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import msgspec

from policy.conformance.results import Agreement, ScenarioResult
from policy.typed import prepared

if TYPE_CHECKING:
    from policy.batch.resources import Resource
    from policy.batch.result import SessionResult
    from policy.batch.rules import BatchRules
    from policy.conformance.run import RecordingLine
    from policy.conformance.scenario import LineHead
    from policy.rules import RuleSet

NOW_MS: Final = 1_795_219_200_000
"""2026-11-21T00:00:00Z: the recordings carry no time."""

_SHARE: Final = 1e-9
_AMOUNT: Final = 1e-3
"""Recorded figures are rounded to these."""


class RecordedGroupStatus(msgspec.Struct, frozen=True, omit_defaults=True):
    phase: str = ""
    running: int = 0
    succeeded: int = 0
    failed: int = 0
    reason: str = ""


class RecordedOutcome(msgspec.Struct, frozen=True, rename="camel"):
    """What a session did."""

    binds: dict[str, str] = {}
    evicts: list[str] = []
    pipelined: dict[str, str] = {}
    allocated: dict[str, str] = {}
    pod_groups: dict[str, RecordedGroupStatus] = {}
    drf: dict[str, float] = {}
    queue_share: dict[str, float] = {}
    panic: str = ""


class RecordedQueue(msgspec.Struct, frozen=True):
    weight: int = 0
    share: float = 0.0
    deserved: dict[str, float] = {}
    allocated: dict[str, float] = {}
    request: dict[str, float] = {}


class RecordedOpening(msgspec.Struct, frozen=True):
    """Figures before the first action."""

    total: dict[str, float] = {}
    drf: dict[str, float] = {}
    queues: dict[str, RecordedQueue] = {}


class RecordedConfig(msgspec.Struct, frozen=True, rename="camel"):
    actions: str | None = None
    tiers: list[dict[str, Any]] | None = None
    yaml: str | None = None
    scheduler_name: str | None = None
    default_queue: str | None = None
    enable_priority_class: bool | None = None


class SessionScenario(msgspec.Struct, frozen=True):
    id: str
    family: str
    config: RecordedConfig
    cluster: dict[str, Any]
    open: RecordedOpening = RecordedOpening()
    expect: RecordedOutcome | None = None
    canonical: RecordedOutcome | None = None

    @property
    def outcome(self) -> RecordedOutcome:
        return self.canonical or self.expect or RecordedOutcome()


class Sessions:
    """One session of kube-batch per line; it carries its own rules."""

    def knows(self, head: LineHead) -> bool:
        return head.pod is None and bool(head.config)

    def judge(self, task: RecordingLine, rules: RuleSet | None, *, strict: bool) -> ScenarioResult:
        return compare(parse(task.text), source=task.source)


_DECODER: Final = msgspec.json.Decoder(prepared(SessionScenario))


def parse(line: bytes) -> SessionScenario:
    """Raises msgspec.DecodeError for a line that is no recorded session."""
    return _DECODER.decode(line)


def compare(recorded: SessionScenario, *, source: str = "") -> ScenarioResult:
    """Run the session with its own configuration, and judge what came of it."""
    from policy.batch import run_session
    from policy.cluster.snapshot import Snapshot
    from policy.manifests import read_dicts
    from policy.rules.problems import RulesError

    # Priorities are taken as they stand: this scheduler never resolves the class of a pod.
    objects = read_dicts(recorded.cluster.get("items") or [], admission=False).objects
    differences: Sequence[str]
    try:
        rules = _rules(recorded.config)
    except RulesError as exc:
        differences = [] if recorded.outcome.panic else [f"configuration refused: {exc}"]
    else:
        session = run_session(Snapshot.from_objects(objects, now_ms=NOW_MS), rules)
        differences = list(_differences(session, recorded))
    return ScenarioResult(
        id=recorded.id,
        family=recorded.family,
        source=source,
        verdict=Agreement.DIFFER if differences else Agreement.AGREE,
        differences=tuple(differences),
    )


def _rules(config: RecordedConfig) -> BatchRules:
    from policy.batch.rules import BatchRules

    if config.yaml:
        rules = BatchRules.load(config.yaml if "\n" in config.yaml else config.yaml + "\n")
    elif config.actions is None and config.tiers is None:
        rules = BatchRules.load("kube-batch")
    else:
        rules = BatchRules.load({"actions": config.actions, "tiers": config.tiers or []})
    naming = rules.naming
    if config.scheduler_name:
        naming = replace(naming, scheduler=config.scheduler_name)
    if config.default_queue:
        naming = replace(naming, default_queue=config.default_queue)
    if config.enable_priority_class is not None:
        naming = replace(naming, priority_classes=config.enable_priority_class)
    return replace(rules, naming=naming)


# --- comparing ---------------------------------------------------------------------------------


def _differences(ours: SessionResult, recorded: SessionScenario) -> Iterator[str]:
    outcome = recorded.outcome
    if outcome.panic:
        return
    yield from _maps("binds", ours.binds, outcome.binds)
    if sorted(ours.evicts) != sorted(outcome.evicts):
        yield f"evicts: {_listed(ours.evicts)}, recorded {_listed(outcome.evicts)}"
    yield from _maps("pipelined", ours.pipelined, outcome.pipelined)
    yield from _maps("allocated", ours.allocated, outcome.allocated)
    groups = {
        name: RecordedGroupStatus(
            phase=group.phase,
            running=group.running,
            succeeded=group.succeeded,
            failed=group.failed,
            reason=group.reason,
        )
        for name, group in ours.pod_groups.items()
    }
    yield from _maps("pod group", groups, outcome.pod_groups)
    yield from _figures("drf", ours.drf, outcome.drf, _SHARE)
    yield from _figures("queue share", ours.queue_share, outcome.queue_share, _SHARE)
    yield from _opening(ours, recorded.open)


def _opening(ours: SessionResult, recorded: RecordedOpening) -> Iterator[str]:
    yield from _figures("total", _amounts(ours.open.total), recorded.total, _AMOUNT)
    yield from _figures("drf at open", ours.open.drf, recorded.drf, _SHARE)
    for name in sorted(ours.open.queues.keys() | recorded.queues.keys()):
        queue, other = ours.open.queues.get(name), recorded.queues.get(name)
        if queue is None or other is None:
            yield f"queue {name}: {'missing' if queue is None else 'not recorded'}"
            continue
        if queue.weight != other.weight:
            yield f"weight of {name}: {queue.weight}, recorded {other.weight}"
        yield from _figures("share", {name: queue.share}, {name: other.share}, _SHARE)
        for what, amount, figures in (
            ("deserved", queue.deserved, other.deserved),
            ("allocated", queue.allocated, other.allocated),
            ("request", queue.request, other.request),
        ):
            yield from _figures(f"{what} of {name}", _amounts(amount), figures, _AMOUNT)


def _amounts(amount: Resource | None) -> dict[str, float]:
    return {} if amount is None else amount.amounts()


def _maps(what: str, ours: Mapping[str, Any], recorded: Mapping[str, Any]) -> Iterator[str]:
    for name in sorted(ours.keys() | recorded.keys()):
        if ours.get(name) != recorded.get(name):
            yield f"{what} {name}: {_shown(ours.get(name))}, recorded {_shown(recorded.get(name))}"


def _figures(
    what: str, ours: Mapping[str, float], recorded: Mapping[str, float], unit: float
) -> Iterator[str]:
    for name in sorted(ours.keys() | recorded.keys()):
        mine, theirs = ours.get(name), recorded.get(name)
        # Half a unit is what rounding takes away; a little more is how floats write half a unit.
        if mine is None or theirs is None or not abs(mine - theirs) <= 0.501 * unit:
            yield f"{what} {name}: {_shown(mine)}, recorded {_shown(theirs)}"


def _shown(value: Any) -> str:
    return "none" if value is None else str(value)


def _listed(names: Iterable[str]) -> str:
    return f"[{', '.join(sorted(names))}]"
