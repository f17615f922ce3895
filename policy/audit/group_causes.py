"""What the scheduler does not say of a group's cycle: what else could have come of it.

Every answer is a cycle decided again with one thing changed; nothing of it is recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from policy.cluster.members import groups_of
from policy.cluster.objects import SchedulingPodGroup, key_of
from policy.cluster.pod_groups import GROUP_MODE, KIND, POD_MODE, disruption_mode
from policy.cluster.snapshot import Snapshot
from policy.decision.groups import GroupDecision, GroupOutcome
from policy.decision.model import Outcome
from policy.groups.columns import fast_passes
from policy.groups.decide import decide_group
from policy.groups.judging import potential_units
from policy.groups.members import muster
from policy.groups.passes import CycleInputs
from policy.groups.units import find_units
from policy.preemption.decide import decide
from policy.rules.group_rules import Nominations
from policy.rules.ruleset import RuleSet
from policy.scheduling.order import QueueHead, heads

TAKERS: Final = 20
"""Waiting pods and groups that are tried on the freed room, in queue order."""
MODES: Final = 5
"""Groups whose other disruption mode is tried."""
HIGHEST: Final = 1_000_000_000
"""The highest priority that a pod group can have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Otherwise:
    """What would have come of the cycle with one thing changed."""

    change: str  #: `minCount 3`, `priority 1001`, `disruptionMode PodGroup of default/train`
    outcome: str
    victims: int  #: pods that would have been evicted


@dataclass(frozen=True, slots=True, kw_only=True)
class Takers:
    """Waiting pods outside of the group that are bound once the victims are gone."""

    reserved: bool  #: every placed member is nominated, so that only higher priorities get by
    pods: tuple[str, ...]
    tried: int  #: pods and groups
    waiting: int  #: pods and groups that wait, and that no gate holds back


@dataclass(frozen=True, slots=True, kw_only=True)
class Stuck:
    """A member that finds no node even where every unit that may leave is gone."""

    pod: str
    message: str


def beyond_eviction(
    snapshot: Snapshot, rules: RuleSet, decision: GroupDecision
) -> tuple[Stuck, ...]:
    """The members that keep the group from starting, whatever leaves; none where that helps."""
    passes = decision.preemption.passes if decision.preemption is not None else ()
    if rules.groups is None or not passes or passes[0].success:
        return ()
    found = muster(snapshot, decision.group, rules.groups)
    task = CycleInputs.of(snapshot, rules, rules.groups, found, seed=decision.seed)
    units = find_units(snapshot, rules.groups.units)
    emptied = fast_passes(task)
    for unit in potential_units(units, found, rules.groups).units.tolist():
        emptied.remove(units.pods(unit))
    nodes = len(snapshot.nodes)
    return tuple(
        Stuck(
            pod=found.members[position].key,
            message=misfit.message(nodes=nodes, preemption="", claims=False),
        )
        for position, misfit in sorted(emptied.run(whole=True).misfits.items())
    )


def otherwise(snapshot: Snapshot, rules: RuleSet, decision: GroupDecision) -> Iterator[Otherwise]:
    """The cycle with another `minCount`, priority, and disruption mode of the groups it tries.

    Of the modes, those of the first `MODES` groups, victims before those that are spared.
    """
    group = groups_of(snapshot).get(decision.group)
    if group is None or rules.groups is None:
        return
    for least in _counts(decision):
        policy = group.spec.scheduling_policy
        assert policy.gang is not None
        other = replace(policy, gang=replace(policy.gang, min_count=least))
        changed = replace(group, spec=replace(group.spec, scheduling_policy=other))
        yield _again(snapshot, rules, decision, changed, f"minCount {least}")
    yield from _priorities(snapshot, rules, decision, group)
    for key in groups_tried(decision)[:MODES]:
        tried = groups_of(snapshot).get(key)
        if tried is not None:
            mode = POD_MODE if disruption_mode(tried) == GROUP_MODE else GROUP_MODE
            changed = replace(tried, spec=replace(tried.spec, disruption_mode=mode))
            yield _again(snapshot, rules, decision, changed, f"disruptionMode {mode} of {key}")


def _counts(decision: GroupDecision) -> list[int]:
    """Other values of `minCount`: one fewer, what fits or is there without it, and all members."""
    if decision.policy != "gang":
        return []
    least = decision.min_count
    placed = sum(bool(m.placed) for m in decision.members) + decision.assigned
    there = len(decision.members) + len(decision.gated) + decision.assigned
    wanted = {there}
    if decision.outcome is not GroupOutcome.SCHEDULED:
        wanted |= {least - 1, placed} if decision.members else set()
    return sorted(count for count in wanted if count > 0 and count != least)


def _priorities(
    snapshot: Snapshot, rules: RuleSet, decision: GroupDecision, group: SchedulingPodGroup
) -> Iterator[Otherwise]:
    """The lowest priority that helps, or the one that spares the most important victim."""
    assert rules.groups is not None

    def at(priority: int) -> Otherwise:
        changed = replace(group, spec=replace(group.spec, priority=priority))
        return _again(snapshot, rules, decision, changed, f"priority {priority}")

    units = decision.preemption.units if decision.preemption is not None else ()
    gone = [unit.priority for unit in units if not unit.reprieved]
    if decision.outcome is GroupOutcome.PREEMPTING and gone:
        yield at(max(gone))
    if decision.outcome is not GroupOutcome.UNSCHEDULABLE or decision.preemption is None:
        return
    found = set((find_units(snapshot, rules.groups.units).priority + 1).tolist())
    above = sorted(p for p in found if decision.group_priority < p <= HIGHEST)
    if not above:
        return
    lowest, best = 0, at(above[-1])
    if best.outcome == GroupOutcome.UNSCHEDULABLE:
        yield best
        return
    highest = len(above) - 1
    while lowest < highest:
        middle = (lowest + highest) // 2
        tried = at(above[middle])
        if tried.outcome == GroupOutcome.UNSCHEDULABLE:
            lowest = middle + 1
        else:
            highest, best = middle, tried
    yield best


def groups_tried(decision: GroupDecision) -> list[str]:
    """Groups among the units, those of victims first, as namespace/name."""
    units = decision.preemption.units if decision.preemption is not None else ()
    return list(dict.fromkeys(u.group for u in sorted(units, key=lambda u: u.reprieved) if u.group))


def _again(
    snapshot: Snapshot,
    rules: RuleSet,
    decision: GroupDecision,
    changed: SchedulingPodGroup,
    what: str,
) -> Otherwise:
    supposed = snapshot.apply([(KIND, key_of(changed), changed)])
    found = decide_group(supposed, rules, decision.group, seed=decision.seed)
    return Otherwise(change=what, outcome=found.outcome.value, victims=len(found.effects.evict))


def takers(snapshot: Snapshot, rules: RuleSet, decision: GroupDecision) -> Takers | None:
    """Who may take the room that the victims leave; None where no victim leaves."""
    if decision.outcome is not GroupOutcome.PREEMPTING or rules.groups is None:
        return None
    # Those that a gate holds back are in no cycle, and take nothing.
    others = [head for head in heads(snapshot, rules) if head.group != decision.group]
    after = snapshot.apply([("Pod", victim.pod, None) for victim in decision.victims])
    tried = others[:TAKERS]
    return Takers(
        reserved=rules.groups.nominations is Nominations.PLACED,
        pods=tuple(pod for head in tried for pod in _gains(snapshot, after, rules, head)),
        tried=len(tried),
        waiting=len(others),
    )


def _gains(before: Snapshot, after: Snapshot, rules: RuleSet, head: QueueHead) -> Iterator[str]:
    """The pods of a cycle that are bound in the second state and not in the first."""
    had = set(_bound(before, rules, head))
    return (pod for pod in _bound(after, rules, head) if pod not in had)


def _bound(snapshot: Snapshot, rules: RuleSet, head: QueueHead) -> tuple[str, ...]:
    """The pods of a cycle that would be bound."""
    if head.group:
        return tuple(decide_group(snapshot, rules, head.group).effects.bind)
    (key,) = head.pods
    return (key,) if decide(snapshot, rules, key).outcome is Outcome.BIND else ()
