"""What the scheduler does not say of a group's cycle: what else could have come of it.

Every answer is a cycle decided again with one thing changed; nothing of it is recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from policy.cluster.members import groups_of
from policy.cluster.objects import SchedulingPodGroup
from policy.cluster.pod_groups import GROUP_MODE, KIND, POD_MODE, disruption_mode
from policy.cluster.snapshot import Snapshot
from policy.decision.groups import GroupDecision, GroupOutcome
from policy.decision.model import Outcome
from policy.groups.decide import decide_group
from policy.groups.units import find_units
from policy.preemption.decide import decide
from policy.rules.group_rules import Nominations
from policy.rules.ruleset import RuleSet
from policy.scheduling.order import waiting_pods

TAKERS: Final = 20
"""Waiting pods that are tried on the freed room, in queue order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Otherwise:
    """What would have come of the cycle with one thing changed."""

    change: str  #: `minCount 3`, `priority 1001`, `disruptionMode PodGroup of default/train`
    outcome: str
    victims: int  #: pods that would have been evicted


@dataclass(frozen=True, slots=True, kw_only=True)
class Takers:
    """Waiting pods outside of the group that fit once the victims are gone."""

    reserved: bool  #: every placed member is nominated, so that only higher priorities get by
    pods: tuple[str, ...]
    tried: int
    waiting: int  #: pods outside of the group that wait


def otherwise(snapshot: Snapshot, rules: RuleSet, decision: GroupDecision) -> Iterator[Otherwise]:
    """The cycle with another `minCount`, priority, and disruption mode of what it evicts."""
    group = groups_of(snapshot).get(decision.group)
    if group is None or rules.groups is None:
        return
    placed = sum(bool(m.placed) for m in decision.members) + decision.assigned
    if decision.policy == "gang" and 0 < placed < decision.min_count:
        policy = group.spec.scheduling_policy
        assert policy.gang is not None
        fewer = replace(policy, gang=replace(policy.gang, min_count=placed))
        changed = replace(group, spec=replace(group.spec, scheduling_policy=fewer))
        yield _again(snapshot, rules, decision, changed, f"minCount {placed}")
    if decision.outcome is GroupOutcome.UNSCHEDULABLE:
        priorities = find_units(snapshot, rules.groups.units).priority
        above = int(priorities.max()) + 1 if priorities.size else 0
        if above > decision.group_priority and above <= 1_000_000_000:
            changed = replace(group, spec=replace(group.spec, priority=above))
            yield _again(snapshot, rules, decision, changed, f"priority {above}")
    yield from _modes(snapshot, rules, decision)


def _modes(snapshot: Snapshot, rules: RuleSet, decision: GroupDecision) -> Iterator[Otherwise]:
    units = decision.preemption.units if decision.preemption is not None else ()
    named = dict.fromkeys(u.group for u in units if u.group and not u.reprieved)
    known = groups_of(snapshot)
    for key in named:
        other = known.get(key)
        if other is None:
            continue
        mode = POD_MODE if disruption_mode(other) == GROUP_MODE else GROUP_MODE
        changed = replace(other, spec=replace(other.spec, disruption_mode=mode))
        yield _again(snapshot, rules, decision, changed, f"disruptionMode {mode} of {key}")


def _again(
    snapshot: Snapshot,
    rules: RuleSet,
    decision: GroupDecision,
    changed: SchedulingPodGroup,
    what: str,
) -> Otherwise:
    meta = changed.metadata
    key = f"{meta.namespace or 'default'}/{meta.name}"
    supposed = snapshot.apply([(KIND, key, changed)])
    found = decide_group(supposed, rules, decision.group, seed=decision.seed)
    return Otherwise(change=what, outcome=found.outcome.value, victims=len(found.effects.evict))


def takers(snapshot: Snapshot, rules: RuleSet, decision: GroupDecision) -> Takers | None:
    """Who may take the room that the victims leave; None where no victim leaves."""
    if decision.outcome is not GroupOutcome.PREEMPTING or rules.groups is None:
        return None
    own = {m.pod for m in decision.members} | {g.pod for g in decision.gated}
    others = [key for key in waiting_pods(snapshot, rules) if key not in own]
    after = snapshot.apply([("Pod", victim.pod, None) for victim in decision.victims])
    tried = others[:TAKERS]
    fits = [
        key
        for key in tried
        if decide(snapshot, rules, key).outcome is not Outcome.BIND
        and decide(after, rules, key).outcome is Outcome.BIND
    ]
    return Takers(
        reserved=rules.groups.nominations is Nominations.PLACED,
        pods=tuple(fits),
        tried=len(tried),
        waiting=len(others),
    )
