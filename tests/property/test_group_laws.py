"""Laws of the preemption of pod groups.

They hold for the three shipped rule sets with groups. That no victim is needless holds of the
reprieve, in the order in which it was made: under the rules that only search greedily, and where a
pass decides. With fixed nodes, and after exchanges for fewer victims, another pass decided.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from policy.cluster.members import groups_of
from policy.cluster.pod_groups import GROUP_MODE, disruption_mode, group_key
from policy.cluster.snapshot import Snapshot
from policy.decision.groups import GroupDecision, GroupOutcome
from policy.groups.columns import fast_passes
from policy.groups.decide import decide_group
from policy.groups.members import muster
from policy.groups.passes import CycleInputs
from policy.rules import RuleSet
from policy.rules.group_rules import MemberPriority
from policy.scheduling.group_effects import changes_of_group
from tests.support.builders import NOW_MS, a_node, a_pdb, a_pod, objects
from tests.support.groups import a_group, of_group

NAMES = ("kube-1.36-groups", "groups-safe", "kube-1.37-groups")
RULES = {name: RuleSet.load(name) for name in NAMES}
LAWS = settings(
    max_examples=60,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
GROUP = "default/train"


@st.composite
def gangs(draw: st.DrawFn) -> Snapshot:
    """A few full nodes with lone pods and groups of both modes, and a gang that waits."""
    sizes = st.sampled_from([1, 2, 3])
    priorities = st.sampled_from([0, 5, 5, 50, 50, 50, 200])
    running = draw(st.integers(1, 3))
    others = [
        a_group(
            f"g{i}",
            priority=draw(priorities),
            least=draw(st.sampled_from([1, 2, None])),
            mode=draw(st.sampled_from(["Pod", "PodGroup"])),
        )
        for i in range(running)
    ]
    nodes: list[Any] = []
    for n in range(draw(st.integers(2, 4))):
        pods = []
        for i in range(draw(st.integers(1, 3))):
            pod = (
                a_pod(f"p{n}-{i}")
                .priority(draw(priorities))
                .cpu(draw(sizes))
                .started(draw(st.sampled_from([None, 1, 30, 30, 90])))
                .labelled(app=draw(st.sampled_from(["a", "b"])))
            )
            group = draw(st.sampled_from(["", "", *(f"g{k}" for k in range(running))]))
            pods.append(of_group(pod, group) if group else pod)
        full = sum(int(str(pod.pod.spec.containers[0].resources.requests["cpu"])) for pod in pods)
        free = draw(st.sampled_from([0, 0, 1]))
        nodes.append(a_node(f"n{n}").cpu(full + free).running(*pods))
    members = [
        of_group(a_pod(f"m{i}").priority(draw(priorities)).cpu(draw(sizes)), "train")
        for i in range(draw(st.integers(2, 4)))
    ]
    budgets = [a_pdb("a").selecting(app="a").allowing(draw(st.integers(0, 2)))]
    train = a_group(
        "train",
        priority=100,
        least=draw(st.sampled_from([1, 1, 2, None])),
    )
    parts = objects(*nodes, *members, *budgets, *others, train)
    return Snapshot.from_objects(parts, now_ms=NOW_MS)


def preempted(cluster: Snapshot, name: str) -> GroupDecision:
    decision = decide_group(cluster, RULES[name], GROUP)
    assume(decision.outcome is GroupOutcome.PREEMPTING and decision.victims)
    return decision


@pytest.mark.parametrize("name", NAMES)
@LAWS
@given(cluster=gangs())
def test_victims_are_whole_units(name: str, cluster: Snapshot) -> None:
    """Of a group in mode `PodGroup` all running pods leave, or none."""
    gone = {victim.pod for victim in preempted(cluster, name).victims}
    for key, group in groups_of(cluster).items():
        if disruption_mode(group) != GROUP_MODE:
            continue
        pods = {
            pod_key
            for _, pod_key, pod in cluster.in_order(cluster.node >= 0)
            if group_key(pod) == key
        }
        assert pods <= gone or not pods & gone


@pytest.mark.parametrize("name", NAMES)
@LAWS
@given(cluster=gangs())
def test_no_victim_is_as_important_as_the_group(name: str, cluster: Snapshot) -> None:
    """A unit's priority is that of its pod, or of its group where the rules or its mode say so."""
    decision = preempted(cluster, name)
    groups = RULES[name].groups
    assert groups is not None
    known = groups_of(cluster)
    for victim in decision.victims:
        pod = cluster.pod(victim.pod)
        assert pod is not None
        group = known.get(group_key(pod))
        priority = pod.spec.priority or 0
        by_group = groups.units.member_priority is MemberPriority.GROUP
        if group is not None and (by_group or disruption_mode(group) == GROUP_MODE):
            priority = group.spec.priority or 0
        assert priority < decision.group_priority


@LAWS
@given(cluster=gangs())
def test_no_victim_is_needless_at_its_turn(cluster: Snapshot) -> None:
    """With a victim's unit back in place, and those after it still removed, no pass succeeds."""
    rules = RULES["kube-1.36-groups"]
    decision = preempted(cluster, rules.name)
    assert rules.groups is not None
    assert decision.preemption is not None
    units = decision.preemption.units
    found = muster(cluster, GROUP, rules.groups)
    task = CycleInputs.of(cluster, rules, rules.groups, found, seed=0)
    for position, unit in enumerate(units):
        out = {pod for u in units[:position] if not u.reprieved for pod in u.pods}
        out |= {pod for u in units[position + 1 :] for pod in u.pods}
        passes = fast_passes(task)
        passes.remove(np.array(sorted(cluster.row(pod) or 0 for pod in out), dtype=np.int64))
        assert passes.run(whole=False).success is unit.reprieved


@pytest.mark.parametrize("name", NAMES)
@LAWS
@given(cluster=gangs())
def test_the_group_starts_once_its_victims_are_gone(name: str, cluster: Snapshot) -> None:
    """Where none of them was a member itself, the next cycle binds the quorum."""
    decision = preempted(cluster, name)
    pods = [cluster.pod(victim.pod) for victim in decision.victims]
    assume(all(pod is not None and group_key(pod) != GROUP for pod in pods))
    after = cluster.apply(changes_of_group(cluster, decision))
    gone = after.apply([("Pod", victim.pod, None) for victim in decision.victims])
    again = decide_group(gone, RULES[name], GROUP)
    assert again.outcome is GroupOutcome.SCHEDULED


@pytest.mark.parametrize("name", NAMES)
@LAWS
@given(cluster=gangs(), order=st.randoms(use_true_random=False))
def test_a_cycle_is_decided_the_same_way_again(name: str, cluster: Snapshot, order: Any) -> None:
    """Equal inputs give equal digests, in whatever order the objects come."""
    decision = decide_group(cluster, RULES[name], GROUP)
    parts = [
        *cluster.nodes.nodes,
        *(pod for _, _, pod in cluster.in_order()),
        *cluster.budgets,
        *groups_of(cluster).values(),
    ]
    order.shuffle(parts)
    mixed = Snapshot.from_objects(parts, now_ms=NOW_MS)
    assert decide_group(mixed, RULES[name], GROUP).digest == decision.digest


@LAWS
@given(cluster=gangs())
def test_safe_rules_evict_no_more_pods_for_the_same_start(cluster: Snapshot) -> None:
    """Where both preempt for the same units, the search for fewer victims finds no more of them."""
    kube = preempted(cluster, "kube-1.36-groups")
    greedy = RuleSet.load("groups-safe", overrides={"groups": {"victims": {"search": "greedy"}}})
    with_search = decide_group(cluster, RULES["groups-safe"], GROUP)
    without = decide_group(cluster, greedy, GROUP)
    assert kube.group == with_search.group
    assert (without.outcome, len(with_search.victims) <= len(without.victims)) == (
        with_search.outcome,
        True,
    )
