"""Cases that show where chosen rules decide otherwise than the base: found by simulating it.

They touch every rule of the file where a decision of the trace does, or one on two full nodes; of
a rule that none touches is said why.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import permutations
from typing import Any, Final, TypeAlias

import yaml

from policy.cases.model import Case
from policy.cases.reading import read_cases
from policy.cases.running import snapshot_of
from policy.cases.untested import touched_by
from policy.cluster import times
from policy.cluster.objects import Node, Pod, key_of
from policy.cluster.snapshot import Snapshot
from policy.decision.model import Decision, Outcome
from policy.preemption.decide import decide
from policy.preemption.tally import Tally
from policy.rules import RulesError, RuleSet
from policy.rules.expressions import HISTORY_FUNCTIONS
from policy.scheduling.cycle import Scheduler, Step
from policy.scheduling.settle import VirtualClock
from policy.scheduling.state import Transition
from policy.simulation.options import Options
from policy.simulation.run import Unrecorded, objects_at_start
from policy.simulation.simulator import Simulator
from policy.simulation.trace import Trace

Wanted: TypeAlias = Callable[[Decision, Decision], bool]
"""Does a case hold what it is to show? It is decided under the base, and under the other rules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """A cluster in which a pod preempts under the base, with the decision under other rules."""

    snapshot: Snapshot
    base: Decision
    other: Decision


class _Watching(Simulator):
    """A simulation that keeps the state on which each decision was made."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.seen: list[tuple[Snapshot, Decision]] = []
        self._before: Snapshot | None = None
        super().__init__(*args, **options)

    def _followed(self, step: Transition) -> None:
        self._before = step.before
        super()._followed(step)

    def _decided(self, step: Step) -> None:
        if step.decision.outcome is Outcome.PREEMPT and self._before is not None:
            self.seen.append((self._before, step.decision))
        super()._decided(step)


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenCases:
    """A file of cases, and what none of them shows."""

    text: str  #: "" where there are none
    differing: int  #: cases out of the trace that hold under the rules and not under the base
    untouched: Mapping[str, str]  #: id of a rule that no case touches -> why


def written(
    trace: Trace,
    base: RuleSet,
    rules: RuleSet,
    *,
    options: Options,
    own: Collection[str],
    most: int = 3,
) -> WrittenCases:
    """Cases that hold under `rules`.

    Up to `most` of them, and more where rules are left, do not hold under the base. A rule of `own`
    that decides in none of these has a case that holds under both, or one that is made up.

    own: ids of the rules that the file of `rules` itself holds.
    """
    texts: list[str] = []
    left = set(own)
    alike: dict[str, list[Situation]] = {}
    met: set[str] = set()
    for situation in _situations(trace, base, rules, options):
        if len(texts) >= most and not left:
            break
        shows = left & touched_by(situation.other)
        met |= shows
        if not _differ(situation.base, situation.other):
            for name in shows:
                known = alike.setdefault(name, [])
                if len(known) < _TRIED_ALIKE:
                    known.append(situation)
        elif shows or len(texts) < most:
            wanted = partial(_differ_by, shows) if len(texts) >= most else _differ
            text = _smallest(situation, base, rules, wanted)
            if text is not None and text not in texts:
                texts.append(text)
                left -= _touched(text, rules)
    differing = len(texts)
    for name in sorted(left):
        if name not in left:
            continue  # a case for another one touches it
        decides = partial(_decided_by, name)
        found = (_smallest(one, base, rules, decides) for one in alike.get(name, ()))
        text = next((one for one in found if one is not None), None)
        text = text or _made(base, rules, decides)
        if text is not None:
            texts.append(text)
            left = left - _touched(text, rules)
    return WrittenCases(
        text="\n".join(texts),
        differing=differing,
        untouched={name: _MET if name in met else _NEVER_MET for name in sorted(left)},
    )


_TRIED_ALIKE: Final = 3
"""Decisions that are tried of those in which a rule decides, and nothing differs."""

_MET: Final = (
    "it decides on the first trace, but by what a case does not hold, and in none of the clusters"
    " that were made up for it"
)
_NEVER_MET: Final = (
    "it decides nothing on the first trace, and nothing in the clusters that were made up for it"
)

_LEAVING: Final = (
    ((10, 600),),
    ((10, 300),),
    ((10, 600),) * 2,
    ((10, 600), (5, 600)),
    ((20, 600),),
)
"""Pods that fill a node: priority, and seconds since they started."""

_AGES: Final = (60, 6, 1, 600, 6000)
"""What their ages are multiplied with, in sixtieths: rules spare older pods, or younger ones."""

_PREEMPTORS: Final = (1000, 2_000_000)
"""Priorities of who preempts: rules spare pods from those below one."""


def _made(base: RuleSet, rules: RuleSet, wanted: Wanted) -> str | None:
    """A case of two full nodes that shows what no decision of the trace does."""
    found = (_case(told, base, rules, wanted) for told in _made_up(rules))
    return next((text for text in found if text is not None), None)


def _made_up(rules: RuleSet) -> Iterator[dict[str, Any]]:
    """Clusters of two full nodes, those without history and of old pods first."""
    size = {"cpu": "2", "memory": "4Gi", "pods": "10"}
    nodes = {"node-1": size, "node-2": size}
    for hit in ((), (1,), (1, 2)) if rules.history_needs else ((),):
        for preemptor in _PREEMPTORS:
            for age in _AGES:
                for both in permutations(_LEAVING, 2):
                    pods = _pods(both, age, preemptor)
                    told = {"note": "a case", "now": "2000-01-01T01:00:00Z", "nodes": nodes}
                    told["pods"] = pods
                    if hit:
                        told["history"] = _made_history(rules, hit)
                    yield told


def _pods(both: Sequence[Sequence[tuple[int, int]]], age: int, preemptor: int) -> dict[str, Any]:
    pods: dict[str, Any] = {"high": {"priority": preemptor, "cpu": "2"}}
    for n, pair in enumerate(both, start=1):
        for i, (priority, seconds) in enumerate(pair, start=1):
            pods[f"low-{n}-{i}"] = {
                "priority": priority,
                "cpu": str(2 // len(pair)),
                "owner": f"Job/low-{n}",
                "node": f"node-{n}",
                "started": f"{seconds * age // 60}s",
            }
    return pods


def _made_history(rules: RuleSet, hit: Sequence[int]) -> dict[str, dict[str, int]]:
    """A past in which the workloads on some of the nodes were hit, once and a minute ago."""
    owners = [f"default/Job/low-{n}" for n in hit]
    found = {}
    for name, window in sorted(rules.history_needs, key=str):
        function = HISTORY_FUNCTIONS[name]
        keys = owners if function.argument == "workload" else ["default"]
        figure = 1 if function.windowed else 60
        found[_figure(name, window)] = dict.fromkeys(keys, figure)
    return found


def _figure(name: str, window: int | None) -> str:
    """As a case has it: `preemptedCount(900s)`."""
    return name if window is None else f"{name}({window}s)"


def _touched(text: str, rules: RuleSet) -> set[str]:
    """What decides in a case."""
    (case,) = read_cases(text, "<case>")
    return touched_by(_decided(case, rules))


def _differ_by(names: Collection[str], one: Decision, other: Decision) -> bool:
    """Do they differ where one of these rules decides?"""
    return _differ(one, other) and not touched_by(other).isdisjoint(names)


def _decided_by(name: str, _: Decision, other: Decision) -> bool:
    return name in touched_by(other)


def _situations(
    trace: Trace, base: RuleSet, rules: RuleSet, options: Options
) -> Iterator[Situation]:
    clock = VirtualClock(trace.start_ms)
    scheduler = Scheduler(
        Unrecorded(objects_at_start(trace)), base, clock=clock, seed=0, dry_run=True
    )
    simulator = _Watching(scheduler, base, clock, trace, options)
    tally = Tally()
    for _ in simulator:
        for before, decision in simulator.seen:
            now_ms = decision.now_ms
            history = tally.added_to({}, rules.history_needs, now_ms=now_ms)
            tally.note(decision)
            snapshot = before.at(now_ms, history=history)
            if snapshot.pod(decision.preemptor) is None:
                continue
            other = decide(snapshot, rules, decision.preemptor, seed=0)
            yield Situation(snapshot=snapshot, base=decision, other=other)
        simulator.seen.clear()


def _differ(one: Decision, other: Decision) -> bool:
    return _taken(one) != _taken(other)


def _taken(decision: Decision) -> tuple[str, str | None, frozenset[str]]:
    gone = decision.victims if decision.outcome is Outcome.PREEMPT else ()
    return decision.outcome, decision.node, frozenset(victim.pod for victim in gone)


def _smallest(situation: Situation, base: RuleSet, rules: RuleSet, wanted: Wanted) -> str | None:
    """The case with as few nodes and pods as it takes; None where no case can hold it."""
    snapshot = situation.snapshot
    places = {situation.base.node, situation.other.node} - {None}
    pods = {
        key: pod
        for _, key, pod in snapshot.in_order()
        if pod.spec.node_name in places or key == situation.base.preemptor
    }
    nodes = {
        key_of(node): node
        for node in snapshot.objects()
        if isinstance(node, Node) and key_of(node) in places
    }
    if _checked(situation, nodes, pods, base, rules, wanted) is None:
        return None
    for name in list(nodes):
        fewer = {k: v for k, v in nodes.items() if k != name}
        if _checked(situation, fewer, pods, base, rules, wanted) is not None:
            nodes = fewer
    for key in sorted(pods.keys() - {situation.base.preemptor}):
        left = {k: v for k, v in pods.items() if k != key}
        if _checked(situation, nodes, left, base, rules, wanted) is not None:
            pods = left
    return _checked(situation, nodes, pods, base, rules, wanted)


def _checked(
    situation: Situation,
    nodes: Mapping[str, Node],
    pods: Mapping[str, Pod],
    base: RuleSet,
    rules: RuleSet,
    wanted: Wanted,
) -> str | None:
    """The text of the case where it is read back and shows what is wanted."""
    if any(pod.spec.node_name and pod.spec.node_name not in nodes for pod in pods.values()):
        return None
    return _case(_told(situation, nodes, pods), base, rules, wanted)


def _case(told: dict[str, Any], base: RuleSet, rules: RuleSet, wanted: Wanted) -> str | None:
    """The text of a case where it can be read back and shows what is wanted."""
    try:
        (case,) = read_cases(_text(told | {"want": {"node": None}}), "<case>")
    except RulesError:
        return None
    before, after = (_decided(case, one) for one in (base, rules))
    if not wanted(before, after):
        return None
    note = f"{_words(after)} under `{rules.name}`; {_words(before)} under `{base.name}`"
    if not _differ(before, after):
        note = f"{_words(after)} under `{rules.name}`, as under `{base.name}`"
    want: dict[str, Any] = {"node": after.node}
    if after.outcome is Outcome.PREEMPT:
        want["victims"] = sorted(_short(victim.pod) for victim in after.victims)
    else:
        want["outcome"] = str(after.outcome)
    return _text({"note": note} | {k: v for k, v in told.items() if k != "note"} | {"want": want})


def _decided(case: Case, rules: RuleSet) -> Decision:
    return decide(snapshot_of(case, rules), rules, case.preemptor, seed=case.seed)


def _words(decision: Decision) -> str:
    if decision.outcome is Outcome.PREEMPT:
        names = ", ".join(sorted(_short(victim.pod) for victim in decision.victims))
        many = "are" if len(decision.victims) > 1 else "is"
        return f"{names} on {decision.node} {many} evicted"
    if decision.outcome is Outcome.BIND:
        return f"{decision.node} has room"
    return "no pod is evicted"


# --- as text -------------------------------------------------------------------------------------


def _told(
    situation: Situation, nodes: Mapping[str, Node], pods: Mapping[str, Pod]
) -> dict[str, Any]:
    snapshot = situation.snapshot
    now_ms = snapshot.now_ms
    told: dict[str, Any] = {
        "note": "a case",
        "now": times.to_text(now_ms),
        "nodes": {name: _node(node) for name, node in nodes.items()},
        "pods": {_short(key): _pod(pod, now_ms) for key, pod in pods.items()},
    }
    budgets = {
        _short(key_of(budget)): {
            "selector": dict(budget.spec.selector.match_labels or {}),
            "allowed": budget.status.disruptions_allowed,
        }
        for budget in snapshot.budgets
        if budget.spec.selector is not None
    }
    if budgets:
        told["pdbs"] = budgets
    history = _history(snapshot)
    return told | ({"history": history} if history else {})


def _history(snapshot: Snapshot) -> dict[str, dict[str, int]]:
    found = {}
    for key, figures in (snapshot.history or {}).items():
        name, _, window = key.partition("/")
        told = {k: v for k, v in figures.items() if v}
        if told:
            found[_figure(name, int(window) if window else None)] = told
    return found


def _node(node: Node) -> dict[str, Any]:
    allocatable = {k: str(v) for k, v in (node.status.allocatable or {}).items()}
    own = {k: allocatable.pop(k) for k in ("cpu", "memory", "pods") if k in allocatable}
    return own | ({"allocatable": allocatable} if allocatable else {})


def _pod(pod: Pod, now_ms: int) -> dict[str, Any]:
    requests: dict[str, str] = {}
    for container in pod.spec.containers or ():
        for name, amount in ((container.resources and container.resources.requests) or {}).items():
            requests[name] = str(amount)
    told: dict[str, Any] = {"priority": pod.spec.priority or 0}
    told |= {k: requests.pop(k) for k in ("cpu", "memory") if k in requests}
    if requests:
        told["requests"] = requests
    owners = [o for o in pod.metadata.owner_references or () if o.controller]
    if owners:
        told["owner"] = f"{owners[0].kind}/{owners[0].name}"
    if pod.spec.node_name:
        told["node"] = pod.spec.node_name
        if pod.status.start_time:
            seconds = (now_ms - times.parse(pod.status.start_time)) // 1000
            told["started"] = f"{max(0, seconds)}s"
        else:
            told["started"] = "never"
    if pod.metadata.deletion_timestamp:
        told["terminating"] = "by-preemption"
    return told


def _short(key: str) -> str:
    return key.removeprefix("default/")


def _text(told: Mapping[str, Any]) -> str:
    """One item of a file of cases; objects one a line."""
    lines = []
    for name, value in told.items():
        if name in ("nodes", "pods", "pdbs", "history") and value:
            lines.append(f"{name}:")
            lines += [f"  {_flow(key)}: {_flow(fields)}" for key, fields in value.items()]
        else:
            lines.append(f"{name}: {_flow(value)}")
    return "- " + "\n  ".join(lines) + "\n"


def _flow(value: Any) -> str:
    text = yaml.safe_dump(value, default_flow_style=True, width=10**6, sort_keys=False)
    return text.removesuffix("\n").removesuffix("\n...")
