"""What differs between generations of kube-scheduler: one small cluster for each difference.

`DIFFERENCES` is data: a difference, a cluster on which it shows, and what each rule set makes of
it. The documentation of the generations is made from the same table.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from msgspec.structs import replace

from policy.cluster.objects import (
    Container,
    ContainerPort,
    ContainerRestartRule,
    ContainerStatus,
    LabelSelector,
    LabelSelectorRequirement,
    NodeSelectorTerm,
    PodAffinityTerm,
    ResourceRequirements,
    TopologySpreadConstraint,
)
from policy.decision.model import Decision
from policy.rules.versions import generations
from tests.support.builders import (
    ZONE,
    Builder,
    NodeBuilder,
    PodBuilder,
    a_namespace,
    a_node,
    a_pdb,
    a_pod,
    decided,
    result,
    selector,
)

GENERATIONS = (
    "kube-1.14",
    "kube-1.20",
    "kube-1.27",
    "kube-1.28",
    "kube-1.28.10",
    "kube-1.31.2",
    "kube-1.31",
    "kube-1.32",
    "kube-1.33",
    "kube-1.33.6",
    "kube-1.34.1",
    "kube-1.34",
    "kube-1.35",
    "kube-1.36",
)
"""The shipped rule sets but for those that decide as another one, by `SAME`."""

SAME = {
    "kube-1.29.4": "kube-1.28",
    "kube-1.29.10": "kube-1.31.2",
    "kube-1.29": "kube-1.31",
    "kube-1.30.6": "kube-1.31.2",
    "kube-1.30": "kube-1.31",
}


def outcome(decision: Decision) -> str:
    """The decision in one line: `preempt n1: a, b`."""
    how, node, evicted = result(decision)
    place = f" {node}" if node else ""
    pods = f": {', '.join(evicted)}" if evicted else ""
    return f"{how}{place}{pods}"


def potential_nodes(decision: Decision) -> str:
    return "potential nodes: " + (", ".join(decision.trace.potential_nodes) or "none")


def marked(decision: Decision) -> str:
    return "marked: " + (", ".join(decision.effects.mark_disrupted) or "none")


def nomination(decision: Decision) -> str:
    return f"nomination: {decision.effects.nomination.value}"


def cleared(decision: Decision) -> str:
    return "cleared: " + (", ".join(decision.effects.clear_nominations) or "none")


def outside(decision: Decision) -> str:
    """Status of n2, which the filters never looked at."""
    if "n2" not in decision.trace.filter_statuses:
        return "no status"
    return "; ".join(decision.trace.filter_statuses["n2"].reasons)


def examined(decision: Decision) -> str:
    sampling = decision.trace.sampling
    assert sampling is not None
    return f"{sampling.examined} of {sampling.potential} nodes examined"


def reasons(decision: Decision) -> str:
    """Texts of the filters on n1."""
    return "; ".join(decision.trace.filter_statuses["n1"].reasons)


def message(decision: Decision) -> str:
    return decision.trace.message or "no message"


@dataclass(frozen=True)
class Difference:
    """A difference, and a cluster on which it shows."""

    id: str
    what: str
    cluster: tuple[Builder, ...]
    #: per rule set, in the words of `shown`
    expected: Mapping[str, str]
    shown: Callable[[Decision], str] = outcome


def by(**texts: str) -> dict[str, str]:
    """What each rule set says: `v14="..."`, `v34_1="..."`; without its own, as the one before."""
    said: dict[str, str] = {}
    last = ""
    for name in GENERATIONS:
        last = texts.get("v" + name.removeprefix("kube-1.").replace(".", "_"), last)
        said[name] = last
    return said


HIGH = a_pod("high").priority(10).cpu(2)


def full(name: str, *pods: PodBuilder) -> NodeBuilder:
    """A node with two cpus, all of which its pods share."""
    return a_node(name).cpu(2).running(*(p.cpu(f"{2000 // len(pods)}m") for p in pods))


def resized(pod: PodBuilder, cpu: str) -> PodBuilder:
    held = ContainerStatus(name="main", resources=ResourceRequirements(requests={"cpu": cpu}))
    status = replace(pod.pod.status, container_statuses=[held])
    return PodBuilder(replace(pod.pod, status=status))


def resized_whole(pod: PodBuilder, cpu: str) -> PodBuilder:
    held = ResourceRequirements(requests={"cpu": cpu})
    return PodBuilder(replace(pod.pod, status=replace(pod.pod.status, resources=held)))


def sidecar_port(pod: PodBuilder) -> PodBuilder:
    port = ContainerPort(host_port=80)
    sidecar = Container(name="side", restart_policy="Always", ports=[port])
    return PodBuilder(replace(pod.pod, spec=replace(pod.pod.spec, init_containers=[sidecar])))


def restarting(pod: PodBuilder) -> PodBuilder:
    rules = [ContainerRestartRule(action="RestartAllContainers")]
    containers = [replace(c, restart_policy_rules=rules) for c in pod.pod.spec.containers or ()]
    return PodBuilder(replace(pod.pod, spec=replace(pod.pod.spec, containers=containers)))


def named(*names: str) -> NodeSelectorTerm:
    field = LabelSelectorRequirement(key="metadata.name", operator="In", values=list(names))
    return NodeSelectorTerm(match_fields=[field])


def spreading(**fields: Any) -> TopologySpreadConstraint:
    wanted = {"topology_key": ZONE, "label_selector": selector(app="web"), **fields}
    return TopologySpreadConstraint(**wanted)


def hostile(**fields: Any) -> PodAffinityTerm:
    return PodAffinityTerm(topology_key=ZONE, label_selector=selector(app="web"), **fields)


WEB = HIGH.cpu(1).labelled(app="web")

DIFFERENCES = (
    Difference(
        "importance-by-start",
        "From 1.20 on, of two equal pods the one that started first is kept.",
        (full("n1", a_pod("a").started(5), a_pod("b").started(60)), HIGH.cpu(1)),
        by(v14="preempt n1: b", v20="preempt n1: a"),
    ),
    Difference(
        "ranking-by-start",
        "From 1.20 on, of two equal nodes the one is taken whose victims started last.",
        (full("n1", a_pod("a").started(60)), full("n2", a_pod("b").started(5)), HIGH),
        by(v14="preempt n1: a", v20="preempt n2: b"),
    ),
    Difference(
        "budgets-run-out",
        "From 1.20 on, victims of one node use up a budget; 1.14 asks only whether it is empty.",
        (
            full("n1", a_pod("a").labelled(app="web"), a_pod("b").labelled(app="web")),
            full("n2", a_pod("c").priority(5)),
            a_pdb("web").selecting(app="web").allowing(1),
            HIGH,
        ),
        by(v14="preempt n1: a, b", v20="preempt n2: c"),
    ),
    Difference(
        "disrupted-pods",
        "From 1.20 on, a pod whose disruption the budget has counted already violates nothing.",
        (
            full("n1", a_pod("a").labelled(app="web")),
            full("n2", a_pod("b").priority(5)),
            a_pdb("web").selecting(app="web").disrupted("a"),
            HIGH,
        ),
        by(v14="preempt n2: b", v20="preempt n1: a"),
    ),
    Difference(
        "preemption-policy",
        "1.14 does not know preemptionPolicy Never.",
        (full("n1", a_pod("a")), HIGH.never_preempting()),
        by(v14="preempt n1: a", v20="not-eligible"),
    ),
    Difference(
        "nominated-node-lost",
        "From 1.20 on, a pod whose nominated node can no longer take it preempts elsewhere.",
        (
            full("n1", a_pod("a").terminating_by_preemption()).cordoned(),
            full("n2", a_pod("b")),
            HIGH.nominated_to("n1"),
        ),
        by(v14="not-eligible", v20="preempt n2: b"),
    ),
    Difference(
        "init-containers-on-nodes",
        "1.14 ignores the init containers of pods that are on nodes already.",
        (
            a_node("n1").cpu(2).running(a_pod("a").cpu("500m").init_container(cpu=2)),
            HIGH.cpu("1500m"),
        ),
        by(v14="bind n1", v20="preempt n1: a"),
    ),
    Difference(
        "first-of-its-group",
        "1.14 lets the first pod of a self-affine group onto a node without the topology label.",
        (
            full("n1", a_pod("a")),
            HIGH.labelled(app="web").affine_to(
                PodAffinityTerm(topology_key=ZONE, label_selector=selector(app="web"))
            ),
        ),
        by(v14="preempt n1: a", v20="no-candidate"),
    ),
    Difference(
        "order-of-filters",
        "1.14 checks resources before taints, and takes a full, tainted node for one to try.",
        (full("n1", a_pod("a")).tainted("maint"), HIGH),
        by(v14="potential nodes: n1", v20="potential nodes: none"),
        potential_nodes,
    ),
    Difference(
        "pod-overhead",
        "1.14 does not add a pod's overhead.",
        (a_node("n1").cpu(2).running(a_pod("a").cpu(1).overhead(cpu=1)), HIGH.cpu(1)),
        by(v14="bind n1", v20="preempt n1: a"),
    ),
    Difference(
        "topology-spread",
        "1.14 does not know topology spread.",
        (
            a_node("n1").cpu(2).labelled(zone="a").running(a_pod("a").labelled(app="web").cpu(1)),
            full("n2", a_pod("b").priority(99)).labelled(zone="b"),
            WEB.spread(spreading()),
        ),
        by(v14="bind n1", v20="preempt n1: a"),
    ),
    Difference(
        "victims-still-leaving",
        "From 1.27 on only a pod that a scheduler preempted blocks, not any that is leaving.",
        (
            full("n1", a_pod("a").terminating().started(60)),
            full("n2", a_pod("b").started(5)),
            HIGH.nominated_to("n1"),
        ),
        by(v14="not-eligible", v27="preempt n2: b"),
    ),
    Difference(
        "disruption-condition",
        "From 1.27 on victims are marked before they are deleted.",
        (full("n1", a_pod("a")), HIGH),
        by(v14="marked: none", v27="marked: default/a"),
        marked,
    ),
    Difference(
        "unknown-node-names",
        "1.24 to 1.28.9 and 1.29.4 fail the cycle where required node names name no node.",
        (full("n1", a_pod("a")), HIGH.node_terms(named("n1"), named("gone"))),
        by(v14="preempt n1: a", v27="error", v28_10="preempt n1: a"),
    ),
    Difference(
        "nodes-outside-node-names",
        "1.27 to 1.28.9 and 1.29.4 also try nodes that required names leave out of the filters.",
        (full("n1", a_pod("a")), full("n2", a_pod("b")), HIGH.node_terms(named("n1"))),
        by(v14="potential nodes: n1", v27="potential nodes: n1, n2", v28_10="potential nodes: n1"),
        potential_nodes,
    ),
    Difference(
        "sampling",
        "From 1.27 on at most a tenth of the potential nodes, but a hundred, are examined.",
        (*(full(f"n{i:03}", a_pod(f"p{i:03}")) for i in range(120)), HIGH),
        by(v14="120 of 120 nodes examined", v27="100 of 120 nodes examined"),
        examined,
    ),
    Difference(
        "nomination-without-candidate",
        "Who finds no candidate loses its nomination in 1.27 and later; before, it was left.",
        (full("n1", a_pod("a").priority(99)), HIGH.nominated_to("n9")),
        by(v14="nomination: leave", v27="nomination: clear"),
        nomination,
    ),
    Difference(
        "nomination-without-potential-node",
        "Where there was no potential node, 1.14 clears the nomination, too; 1.20 leaves it.",
        (full("n1", a_pod("a")).cordoned(), HIGH.nominated_to("n9")),
        by(v14="nomination: clear", v20="nomination: leave", v27="nomination: clear"),
        nomination,
    ),
    Difference(
        "nominated-anti-affinity",
        "From 1.27 on anti-affinity of nominated pods is seen only beside that of running pods.",
        (
            full("n1", a_pod("a")).labelled(zone="a"),
            a_pod("waits").priority(20).anti_affine_to(hostile()).nominated_to("n1"),
            WEB,
        ),
        by(v14="no-candidate", v27="preempt n1: a"),
    ),
    Difference(
        "spread-of-everything",
        "1.20 counts every pod for an empty selector, later generations none.",
        (
            a_node("n1").cpu(2).labelled(zone="a").running(a_pod("a").cpu(1)),
            full("n2", a_pod("b").priority(99)).labelled(zone="b"),
            a_node("n3").labelled(zone="c"),
            WEB.spread(spreading(label_selector=selector())),
        ),
        by(v14="bind n1", v20="preempt n1: a", v27="bind n1"),
    ),
    Difference(
        "spread-domains",
        "minDomains counts from 1.24 on.",
        (
            a_node("n1").cpu(2).labelled(zone="a").running(a_pod("a").labelled(app="web").cpu(1)),
            WEB.spread(spreading(min_domains=2)),
        ),
        by(v14="bind n1", v27="preempt n1: a"),
    ),
    Difference(
        "spread-over-tainted-nodes",
        "From 1.26 on a constraint may leave out nodes whose taints the pod does not tolerate.",
        (
            a_node("n1").cpu(2).labelled(zone="a").running(a_pod("a").labelled(app="web").cpu(1)),
            a_node("n2").labelled(zone="b").tainted("maint"),
            WEB.spread(spreading(node_taints_policy="Honor")),
        ),
        by(v14="bind n1", v20="preempt n1: a", v27="bind n1"),
    ),
    Difference(
        "spread-on-excluded-nodes",
        "1.20 counts pods on nodes of the domain that the pod's node affinity keeps it from.",
        (
            a_node("n1").cpu(1).labelled(zone="a", disk="ssd"),
            a_node("n2").cpu(1).labelled(zone="a").running(a_pod("a").labelled(app="web").cpu(1)),
            a_node("n3").labelled(zone="b", disk="ssd"),
            WEB.node_selector(disk="ssd").spread(spreading()),
        ),
        by(v14="bind n1", v20="no-candidate", v27="bind n1"),
    ),
    Difference(
        "over-used-resources",
        "Up to 1.27 an over-used resource keeps out a pod that does not even request it.",
        (
            a_node("n1").cpu(2).memory("1Gi").running(a_pod("a").priority(99).memory("2Gi")),
            HIGH,
        ),
        by(v14="no-candidate", v28="bind n1"),
    ),
    Difference(
        "sidecars",
        "From 1.28 on restartable init containers add to the sum of a pod's requests.",
        (
            a_node("n1").cpu(2).running(a_pod("a").cpu(1).init_container(always=True, cpu=1)),
            HIGH.cpu(1),
        ),
        by(v14="bind n1", v28="preempt n1: a"),
    ),
    Difference(
        "victims-sorted-again",
        "From 1.32 on, and from 1.29.11, 1.30.7 and 1.31.3 on, victims are listed by importance "
        "again, and ranking reads the first of them.",
        (
            full("n1", a_pod("a").priority(1).labelled(app="web"), a_pod("b").priority(5)),
            full("n2", a_pod("c").priority(3).labelled(app="web")),
            a_pdb("web").selecting(app="web"),
            HIGH,
        ),
        by(v14="preempt n1: a, b", v31="preempt n2: c"),
    ),
    Difference(
        "requests-above-allocatable",
        "From 1.34 on a node that could never hold the request is not even tried.",
        (full("n1", a_pod("a")), HIGH.cpu(3)),
        by(v14="potential nodes: n1", v34_1="potential nodes: none"),
        potential_nodes,
    ),
    Difference(
        "victims-that-leave-already",
        "1.34.0, 1.34.1 and 1.35 on: a victim that is leaving already gets no second delete.",
        (full("n1", a_pod("a").terminating()), HIGH),
        by(v14="preempt n1: a", v34_1="preempt n1", v34="preempt n1: a", v35="preempt n1"),
    ),
    Difference(
        "pod-level-requests",
        "From 1.34 on requests of the pod replace the sum of its containers.",
        (a_node("n1").cpu(2).running(a_pod("a").cpu(1).pod_level(cpu=2)), HIGH.cpu(1)),
        by(v14="bind n1", v34_1="preempt n1: a"),
    ),
    Difference(
        "in-place-resize",
        "From 1.33 on a pod in resize counts the larger of what it asks for and what it holds.",
        (a_node("n1").cpu(2).running(resized(a_pod("a").cpu(1), "2")), HIGH.cpu(1)),
        by(v14="bind n1", v33="preempt n1: a"),
    ),
    Difference(
        "namespace-selectors",
        "From 1.34 on the incoming pod's namespace selectors are also asked about no labels.",
        (
            a_node("n1").cpu(2).labelled(zone="a").running(a_pod("a").labelled(app="web").cpu(1)),
            a_namespace("default", team="a"),
            WEB.anti_affine_to(
                hostile(
                    namespace_selector=LabelSelector(
                        match_expressions=[
                            LabelSelectorRequirement(key="team", operator="DoesNotExist")
                        ]
                    )
                )
            ),
        ),
        by(v14="bind n1", v34_1="preempt n1: a"),
    ),
    Difference(
        "host-ports-of-sidecars",
        "From 1.33.6 on host ports of restartable init containers count.",
        (a_node("n1").cpu(2).running(sidecar_port(a_pod("a").cpu(1))), HIGH.cpu(1).host_port(80)),
        by(v14="bind n1", v33_6="preempt n1: a"),
    ),
    Difference(
        "constraints-of-one-key",
        "Up to 1.32 two constraints with one topology key share their counts.",
        (
            a_node("n1")
            .cpu(4)
            .labelled(zone="a")
            .running(a_pod("a").labelled(app="web").cpu(1), a_pod("b").labelled(app="web").cpu(1)),
            a_node("n2").cpu(1).labelled(zone="b").running(a_pod("c").labelled(tier="x").cpu(1)),
            WEB.spread(
                spreading(max_skew=1), spreading(max_skew=9, label_selector=selector(tier="x"))
            ),
        ),
        by(v14="bind n1", v20="preempt n1: b", v27="bind n1", v33="preempt n2: c"),
    ),
    Difference(
        "status-of-nodes-outside",
        "From 1.32 on nodes that required names leave out of the filters have a status.",
        (full("n1", a_pod("a")), full("n2", a_pod("b")), HIGH.node_terms(named("n1"))),
        by(
            v14="Insufficient cpu; node(s) didn't match node selector",
            v20="node(s) didn't match Pod's node affinity",
            v27="no status",
            v32="node(s) didn't satisfy plugin(s) [NodeAffinity]",
        ),
        outside,
    ),
    Difference(
        "marked-again",
        "Up to 1.28, and in early patches of 1.29 to 1.31, a marked victim is marked once more.",
        (full("n1", a_pod("a").terminating_by_preemption()), HIGH),
        by(
            v14="marked: none",
            v27="marked: default/a",
            v31_2="marked: none",
        ),
        marked,
    ),
    Difference(
        "nominations-where-victims-leave-already",
        "1.34.0, 1.34.1 and 1.35 on: where no pod is newly evicted, lower nominations stay.",
        (
            full("n1", a_pod("a").terminating()),
            a_pod("waits").priority(5).nominated_to("n1"),
            HIGH,
        ),
        by(
            v14="cleared: default/waits",
            v34_1="cleared: none",
            v34="cleared: default/waits",
            v35="cleared: none",
        ),
        cleared,
    ),
    Difference(
        "resize-of-the-pod",
        "From 1.36 on a pod that is resized as a whole counts the larger of spec and status.",
        (
            a_node("n1").cpu(2).running(resized_whole(a_pod("a").cpu(1).pod_level(cpu=1), "2")),
            HIGH.cpu(1),
        ),
        by(v14="bind n1", v36="preempt n1: a"),
    ),
    Difference(
        "declared-features",
        "From 1.36 on a node must declare the features that the pod needs.",
        (a_node("n1").cpu(2), restarting(HIGH)),
        by(v14="bind n1", v36="no-candidate"),
    ),
    Difference(
        "text-of-taints",
        "Every generation words an untolerated taint in its own way.",
        (a_node("n1").cpu(2).tainted("maint", "now"), HIGH),
        by(
            v14="node(s) had taints that the pod didn't tolerate",
            v20="node(s) had taint {maint: now}, that the pod didn't tolerate",
            v27="node(s) had untolerated taint {maint: now}",
            v34="node(s) had untolerated taint(s)",
        ),
        reasons,
    ),
    Difference(
        "text-of-pod-count",
        "1.14 calls a node without room for one more pod short of pods.",
        (a_node("n1").cpu(2).pod_limit(0), HIGH),
        by(v14="Insufficient pods", v20="Too many pods"),
        reasons,
    ),
    Difference(
        "failure-message",
        "1.20 does not say why a pod cannot preempt.",
        (full("n1", a_pod("a").priority(99)), HIGH),
        by(
            v14="preemption: 0/1 nodes are available: 1 Insufficient cpu.",
            v20="no message",
            v27="preemption: 0/1 nodes are available: "
            "1 No preemption victims found for incoming pod.",
        ),
        message,
    ),
)


@pytest.mark.parametrize("difference", DIFFERENCES, ids=lambda d: d.id)
def test_what_differs(difference: Difference) -> None:
    """Each generation decides the cluster as the table says."""
    found = {
        name: difference.shown(decided(*difference.cluster, rules=name)) for name in GENERATIONS
    }
    assert found == difference.expected


def test_every_entry_shows_a_difference() -> None:
    """No entry of the table has the same answer in all generations, and none is there twice."""
    same = [d.id for d in DIFFERENCES if len(set(d.expected.values())) == 1]
    assert (same, len({d.id for d in DIFFERENCES})) == ([], len(DIFFERENCES))


@pytest.mark.parametrize(("name", "as_"), SAME.items())
def test_rule_sets_that_decide_as_another_one(name: str, as_: str) -> None:
    """Rule sets that are left out of the table decide every cluster of it as the named one."""
    found = {d.id: d.shown(decided(*d.cluster, rules=name)) for d in DIFFERENCES}
    assert found == {d.id: d.expected[as_] for d in DIFFERENCES}


def test_every_shipped_generation_is_in_the_table_or_decides_as_one_that_is() -> None:
    """No rule set that stands for versions of kube-scheduler is forgotten here."""
    assert sorted([*GENERATIONS, *SAME]) == sorted(g.name for g in generations())
