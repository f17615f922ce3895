"""Whole groups as victims of an ordinary pod (`groups.units.ordinary: whole`).

What the dry run finds is compared with a plain model of its rules, node by node; the laws hold
of every decision.
"""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from policy.cluster.members import groups_of
from policy.cluster.pod_groups import GROUP_MODE, disruption_mode, group_key
from policy.cluster.requests import pod_requests
from policy.cluster.snapshot import Snapshot
from policy.decision.model import Decision, Outcome
from policy.preemption.decide import decide
from policy.rules import RuleSet
from policy.scheduling.effects import changes_of
from tests.support.builders import NOW_MS, a_node, a_pdb, a_pod, objects
from tests.support.groups import a_group, of_group

SAFE = RuleSet.load("groups-safe")
NEVER_BREAKS = RuleSet.load(
    "groups-safe",
    overrides={
        "victims": {
            "forbid": [
                {
                    "id": "budgets-hold",
                    "when": "victim.pdbViolating",
                    "reason": "a budget would break",
                    "why": "test",
                }
            ]
        }
    },
)
POD = "default/single"
LAWS = settings(
    max_examples=80,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)


@st.composite
def clusters(draw: st.DrawFn) -> Snapshot:
    """Nodes full of lone pods and of members of groups in both modes; one pod waits."""
    priorities = st.sampled_from([0, 5, 5, 5, 40, 60])
    count = draw(st.integers(1, 3))
    groups = [
        a_group(
            f"g{i}",
            priority=draw(priorities),
            mode=draw(st.sampled_from(["Pod", "PodGroup", "PodGroup"])),
        )
        for i in range(count)
    ]
    nodes: list[Any] = []
    for n in range(draw(st.integers(2, 4))):
        pods, used = [], 0
        for i in range(draw(st.integers(1, 4))):
            cpu = draw(st.integers(1, 3))
            used += cpu
            pod = (
                a_pod(f"p{n}-{i}")
                .priority(draw(priorities))
                .cpu(cpu)
                .started(draw(st.sampled_from([None, 1, 30, 30, 90])))
                .labelled(app=draw(st.sampled_from(["a", "b", "c"])))
            )
            group = draw(st.sampled_from(["", "", *(f"g{k}" for k in range(count)), "gone"]))
            pods.append(of_group(pod, group) if group else pod)
        nodes.append(a_node(f"n{n}").cpu(used + draw(st.sampled_from([0, 0, 1]))).running(*pods))
    waiting = a_pod("single").priority(draw(st.sampled_from([5, 50, 50, 100])))
    waiting = waiting.cpu(draw(st.integers(1, 5)))
    own = draw(st.sampled_from(["", "", "g0"]))
    single = of_group(waiting, own) if own else waiting
    budgets = [
        a_pdb("a").selecting(app="a").allowing(draw(st.integers(0, 2))),
        a_pdb("b").selecting(app="b").allowing(draw(st.integers(0, 2))),
    ]
    parts = objects(*nodes, single, *budgets, *groups)
    return Snapshot.from_objects(parts, now_ms=NOW_MS)


def decided(cluster: Snapshot) -> Decision:
    return decide(cluster, SAFE, POD)


def whole_units(cluster: Snapshot) -> dict[str, frozenset[str]]:
    """Every pod on a node -> the pods that leave with it."""
    known = groups_of(cluster)
    found: dict[str, frozenset[str]] = {}
    running = [(key, pod) for _, key, pod in cluster.in_order(cluster.node >= 0)]
    for key, pod in running:
        group = known.get(group_key(pod))
        if group is None or disruption_mode(group) != GROUP_MODE:
            found[key] = frozenset([key])
        else:
            name = group_key(pod)
            found[key] = frozenset(k for k, p in running if group_key(p) == name)
    return found


def cpu(cluster: Snapshot, key: str) -> int:
    pod = cluster.pod(key)
    assert pod is not None
    return int(pod_requests(pod, on_node=True)["cpu"])


class Plain:
    """The dry run of one node, as the rules say it."""

    def __init__(self, cluster: Snapshot) -> None:
        self.cluster = cluster
        self.units = whole_units(cluster)
        preemptor = cluster.pod(POD)
        assert preemptor is not None
        self.preemptor = preemptor
        self.priority = preemptor.spec.priority or 0

    def may_leave(self, unit: frozenset[str]) -> bool:
        known = groups_of(self.cluster)
        for key in unit:
            pod = self.cluster.pod(key)
            assert pod is not None
            group = known.get(group_key(pod))
            if group is not None and disruption_mode(group) == GROUP_MODE:
                own = group_key(pod) == group_key(self.preemptor)
                if own or (group.spec.priority or 0) >= self.priority:
                    return False
            if (pod.spec.priority or 0) >= self.priority:
                return False
        return True

    def importance(self, key: str) -> tuple[Any, ...]:
        pod = self.cluster.pod(key)
        assert pod is not None
        start = pod.status.start_time
        return (-(pod.spec.priority or 0), start is None, start or "", key)

    def on(self, node: str) -> tuple[frozenset[str], int] | None:
        """The victims and how many violate a budget; None where the node is no candidate."""
        cluster = self.cluster
        here = {k for k, _ in self.units.items() if self._node(k) == node}
        units = sorted(
            {self.units[k] for k in here if self.may_leave(self.units[k])},
            key=lambda unit: min(map(self.importance, unit)),
        )
        left = {"a": 0, "b": 0} | {
            b.metadata.name: b.status.disruptions_allowed for b in cluster.budgets
        }
        violating = set()
        for unit in units:
            for key in unit:
                pod = cluster.pod(key)
                assert pod is not None
                app = (pod.metadata.labels or {}).get("app", "")
                if app in left:
                    left[app] -= 1
                    if left[app] < 0:
                        violating.add(unit)
        index = cluster.nodes.index[node]
        column = cluster.pools.resources.ids["cpu"]
        free = int(cluster.allocatable[index, column])
        free -= sum(cpu(cluster, key) for key in here)
        taken = {unit: sum(cpu(cluster, k) for k in unit if k in here) for unit in units}
        free += sum(taken.values()) - cpu(cluster, POD)
        if free < 0 or not units:
            return None
        gone: set[str] = set()
        broken = 0
        for unit in sorted(units, key=lambda unit: unit not in violating):
            if taken[unit] <= free:
                free -= taken[unit]
            else:
                gone |= unit
                broken += len(unit) if unit in violating else 0
        return (frozenset(gone), broken) if gone else None

    def _node(self, key: str) -> str:
        pod = self.cluster.pod(key)
        assert pod is not None
        return pod.spec.node_name


@LAWS
@given(cluster=clusters())
def test_the_dry_run_equals_its_rules(cluster: Snapshot) -> None:
    """Victims and broken budgets of every candidate are those of the plain model."""
    decision = decided(cluster)
    assume(decision.outcome in {Outcome.PREEMPT, Outcome.NO_CANDIDATE})
    plain = Plain(cluster)
    expected = {node: plain.on(node) for node in cluster.nodes.names}
    found = {c.node: (frozenset(c.victims), c.pdb_violations) for c in decision.candidates}
    assert found == {node: of for node, of in expected.items() if of is not None}


@LAWS
@given(cluster=clusters())
def test_groups_leave_whole_and_are_lower(cluster: Snapshot) -> None:
    """All running pods of a group leave or none, and each with its group is of lower priority."""
    decision = decided(cluster)
    assume(decision.victims)
    units, plain = whole_units(cluster), Plain(cluster)
    gone = set(decision.effects.evict)
    assert all(units[key] <= gone and plain.may_leave(units[key]) for key in gone)


@LAWS
@given(cluster=clusters())
def test_a_forbidden_pod_keeps_its_whole_group(cluster: Snapshot) -> None:
    """`victims.forbid` about one pod holds for all that would leave with it."""
    decision = decide(cluster, NEVER_BREAKS, POD)
    assume(decision.victims)
    units = whole_units(cluster)
    assert all(units[victim.pod] <= set(decision.effects.evict) for victim in decision.victims)
    assert not any(victim.pdb_violating for victim in decision.victims if len(units) == 1)


@LAWS
@given(cluster=clusters())
def test_the_pod_is_placed_once_its_victims_are_gone(cluster: Snapshot) -> None:
    """On the node of the decision, where it is nominated to."""
    decision = decided(cluster)
    assume(decision.outcome is Outcome.PREEMPT)
    after = cluster.apply(changes_of(cluster, decision))
    gone = after.apply([("Pod", victim.pod, None) for victim in decision.victims])
    again = decided(gone)
    assert (again.outcome, again.node) == (Outcome.BIND, decision.node)


@LAWS
@given(cluster=clusters(), order=st.randoms(use_true_random=False))
def test_the_order_of_objects_changes_nothing(cluster: Snapshot, order: Any) -> None:
    """Equal inputs give equal digests, also where equal pods share what was found."""
    decision = decided(cluster)
    parts: list[Any] = [
        *cluster.nodes.nodes,
        *(pod for _, _, pod in cluster.in_order()),
        *cluster.budgets,
        *groups_of(cluster).values(),
    ]
    order.shuffle(parts)
    mixed = Snapshot.from_objects(parts, now_ms=NOW_MS)
    shared = decide(mixed, SAFE, POD, by_class=True)
    assert (decided(mixed).digest, shared.digest) == (decision.digest, decision.digest)
