"""Hypothesis strategies for whole clusters in which a pending pod seldom fits.

Every example draws a few features (budgets, host ports, spread ...) and only these make its
objects differ, so that each feature is met alone and together with others. Nodes are sized by the
pods on them: little or nothing is left for the pod that waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
from hypothesis import strategies as st

from policy.cluster.objects import (
    KINDS,
    ClusterObject,
    ContainerStatus,
    LabelSelector,
    LabelSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    PodAffinityTerm,
    ResourceRequirements,
    TopologySpreadConstraint,
    encode,
    kind_of,
)
from policy.cluster.snapshot import Snapshot
from policy.cluster.tables import host_ports
from policy.decision.model import Decision
from policy.preemption.decide import decide
from policy.rules import RuleSet
from tests.support.builders import (
    HOSTNAME,
    NOW_MS,
    ZONE,
    BudgetBuilder,
    NodeBuilder,
    PodBuilder,
    a_namespace,
    a_node,
    a_pdb,
    a_pod,
    objects,
    selector,
)

T = TypeVar("T")

FEATURES = (
    "affinity",
    "anti-affinity",
    "budgets",
    "cordons",
    "dangling",
    "ended",
    "extended",
    "future",
    "host-ports",
    "init",
    "invalid-terms",
    "lost-nodes",
    "memory",
    "negative",
    "never",
    "node-affinity",
    "node-names",
    "nominated",
    "overcommitted",
    "overhead",
    "own-nomination",
    "pod-count",
    "pod-level",
    "resize",
    "schedulers",
    "spread",
    "starts",
    "taints",
    "terminating",
    "unplaced-demand",
)

INT32_MAX, INT32_MIN = 2**31 - 1, -(2**31)
NAMESPACES = ("default", "shop")
LABELS: Sequence[dict[str, str] | None] = (
    None,
    {"app": "web"},
    {"app": "web", "tier": "gold"},
    {"app": "db"},
    {"app": "db", "tier": "gold"},
    {"tier": "gold"},
)
SELECTORS: Sequence[LabelSelector | None] = (
    selector(app="web"),
    selector(app="db"),
    selector(tier="gold"),
    LabelSelector(
        match_expressions=[LabelSelectorRequirement(key="app", operator="In", values=["web", "db"])]
    ),
    LabelSelector(
        match_expressions=[LabelSelectorRequirement(key="tier", operator="DoesNotExist")]
    ),
    LabelSelector(
        match_expressions=[LabelSelectorRequirement(key="app", operator="NotIn", values=["web"])]
    ),
    selector(),
    None,
)
INVALID = LabelSelector(match_expressions=[LabelSelectorRequirement(key="app", operator="In")])
NAMESPACE_SELECTORS: Sequence[LabelSelector | None] = (
    None,
    None,
    selector(),
    selector(team="a"),
    LabelSelector(
        match_expressions=[LabelSelectorRequirement(key="team", operator="DoesNotExist")]
    ),
    LabelSelector(
        match_expressions=[LabelSelectorRequirement(key="team", operator="NotIn", values=["a"])]
    ),
)
TOPOLOGIES = (HOSTNAME, ZONE, ZONE, "rack")
GPU = "example.com/gpu"


@dataclass(frozen=True)
class Example:
    """A cluster, the pod that waits in it, and a seed."""

    objects: tuple[ClusterObject, ...]
    pod: str = "default/high"
    seed: int = 0
    now_ms: int = NOW_MS

    def snapshot(self) -> Snapshot:
        return Snapshot.from_objects(self.objects, now_ms=self.now_ms)

    def decided(self, rules: RuleSet, *, evaluate_all: bool = False) -> Decision:
        return decide(self.snapshot(), rules, self.pod, seed=self.seed, evaluate_all=evaluate_all)

    def to_json(self) -> str:
        """Text from which `from_json` makes this example again, in this or another process."""
        listed = [[kind_of(o), msgspec.Raw(encode(o))] for o in self.objects]
        return msgspec.json.encode([listed, self.pod, self.seed, self.now_ms]).decode()

    @staticmethod
    def from_json(text: str) -> Example:
        listed, pod, seed, now_ms = msgspec.json.decode(text)
        made = tuple(msgspec.convert(fields, KINDS[kind]) for kind, fields in listed)
        return Example(made, pod, seed, now_ms)

    def nodes_with_shared_ports(self) -> set[str]:
        """Nodes on which two pods hold one host port, which no kubelet admits.

        The scheduler's port table is a set: it forgets both when the first of them leaves.
        """
        held = Counter(
            (pod.spec.node_name, port)
            for pod in self.objects
            if isinstance(pod, Pod)
            for port in host_ports(pod)
        )
        return {node for (node, _), n in held.items() if n > 1}

    def __repr__(self) -> str:
        return f"Example.from_json(r'''{self.to_json()}''')"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        # What hypothesis prints of a failing example, short enough to be kept.
        printer.text(repr(self))


class _Drawn:
    """Draws values; a strategy for every small range is made once."""

    def __init__(self, draw: st.DrawFn, features: frozenset[str]) -> None:
        self._draw = draw
        self.features = features

    def has(self, feature: str) -> bool:
        return feature in self.features

    def below(self, n: int) -> int:
        return self._draw(_below(n)) if n > 1 else 0

    def one(self, choices: Sequence[T]) -> T:
        return choices[self.below(len(choices))]

    def chance(self, n: int) -> bool:
        """One in n; the simplest example says no."""
        return self.below(n) == n - 1

    def with_feature(self, feature: str, n: int) -> bool:
        return feature in self.features and self.chance(n)


_RANGES = [st.integers(0, n - 1) for n in range(1, 65)]


def _below(n: int) -> st.SearchStrategy[int]:
    return _RANGES[n - 1]


@st.composite
def clusters(
    draw: st.DrawFn,
    *,
    without: Iterable[str] = (),
    always: Iterable[str] = (),
    max_nodes: int = 6,
    max_pods: int = 25,
) -> Example:
    """Clusters of up to six nodes and 25 pods; `without` names features that must not appear."""
    left_out = frozenset(without)
    choices = [f for f in FEATURES if f not in left_out]
    features = draw(_subsets(tuple(choices))) | frozenset(always)
    drawn = _Drawn(draw, features)
    running = [_running(drawn, f"p{i:02}") for i in range(_many(drawn, max_pods - 4))]
    names = [f"n{i}" for i in range(1 + drawn.below(max_nodes))]
    # Nodes without pods add little: there is nobody to preempt.
    homes = [i if i < len(names) else drawn.below(len(names)) for i in range(len(running))]
    incoming = _incoming(drawn, names)
    nodes = [
        _node(
            drawn, name, [p for p, home in zip(running, homes, strict=True) if home == i], incoming
        )
        for i, name in enumerate(names)
    ]
    parts: list[Any] = [*nodes, incoming, *_others(drawn, names), *_budgets(drawn)]
    if drawn.has("affinity") or drawn.has("anti-affinity"):
        parts += [a_namespace("default", team="a"), a_namespace("shop")]
    return Example(objects=objects(*parts), seed=drawn.below(64))


def _many(drawn: _Drawn, limit: int) -> int:
    """Three pods or more in most examples."""
    return drawn.below(3) if drawn.chance(16) else 3 + drawn.below(limit - 3)


_CACHE: dict[tuple[str, ...], st.SearchStrategy[frozenset[str]]] = {}


def _subsets(choices: tuple[str, ...]) -> st.SearchStrategy[frozenset[str]]:
    found = _CACHE.get(choices)
    if found is None:
        found = _CACHE[choices] = st.frozensets(st.sampled_from(choices), max_size=9)
    return found


# --- pods --------------------------------------------------------------------------------------

LOW = (0, 1, 2, 2, 5, None)
NEGATIVE = (INT32_MIN, INT32_MIN, -5, -5, 0, INT32_MAX)
STARTS = (None, None, 90, 60, 60, 5, 0)


def _running(drawn: _Drawn, name: str) -> PodBuilder:
    pod = a_pod(name).in_namespace(drawn.one(NAMESPACES)).priority(drawn.one(LOW))
    if drawn.with_feature("negative", 2):
        pod = pod.priority(drawn.one(NEGATIVE))
    pod = pod.started(drawn.one(STARTS) if drawn.has("starts") else 60)
    if drawn.with_feature("future", 4):
        pod = pod.started(-10)
    labels = drawn.one(LABELS)
    if labels:
        pod = pod.labelled(labels)
    pod = _demand(drawn, pod)
    if drawn.with_feature("terminating", 3):
        pod = pod.terminating_by_preemption() if drawn.chance(2) else pod.terminating()
        if drawn.chance(4):
            pod = pod.condition("DisruptionTarget", "True", "PreemptionByScheduler")
    if drawn.with_feature("anti-affinity", 3):
        pod = pod.anti_affine_to(*_terms(drawn))
    if drawn.with_feature("ended", 6):
        pod = pod.ended(drawn.one(("Succeeded", "Failed")))
    return pod


def _demand(drawn: _Drawn, pod: PodBuilder) -> PodBuilder:
    """What the pod asks for, in halves of a cpu."""
    if not drawn.chance(8):
        pod = pod.cpu(drawn.one(("1", "500m", "1500m", 2)))
    if drawn.has("memory"):
        pod = pod.memory(drawn.one(("256Mi", "1Gi", "1.5Gi", "100M", 0)))
    if drawn.with_feature("extended", 2):
        pod = pod.requesting({GPU: drawn.one((1, 2, 0))})
    if drawn.with_feature("init", 3):
        pod = pod.init_container(cpu=drawn.one(("500m", 3)))
        if drawn.chance(2):
            pod = pod.init_container(always=True, cpu="500m").init_container(cpu=2)
    if drawn.with_feature("overhead", 3):
        pod = pod.overhead(cpu="250m")
    if drawn.with_feature("pod-level", 3):
        pod = pod.pod_level(cpu=drawn.one(("1", "2500m")))
    if drawn.with_feature("resize", 3):
        pod = _resized(drawn, pod)
    if drawn.with_feature("host-ports", 2):
        pod = _port(drawn, pod)
    return pod


def _resized(drawn: _Drawn, pod: PodBuilder) -> PodBuilder:
    held = ResourceRequirements(requests={"cpu": drawn.one(("500m", "2500m"))})
    status = ContainerStatus(name="main", resources=held, allocated_resources={"cpu": "750m"})
    changed = msgspec.structs.replace(pod.pod.status, container_statuses=[status])
    pod = PodBuilder(msgspec.structs.replace(pod.pod, status=changed))
    return pod.condition("PodResizePending", "True", drawn.one(("Infeasible", "Deferred")))


def _port(drawn: _Drawn, pod: PodBuilder) -> PodBuilder:
    return pod.host_port(
        drawn.one((80, 80, 443)),
        ip=drawn.one(("", "", "10.0.0.1", "10.0.0.2")),
        protocol=drawn.one(("TCP", "TCP", "UDP")),
    )


def _terms(drawn: _Drawn) -> list[PodAffinityTerm]:
    return [_term(drawn) for _ in range(1 + drawn.chance(4))]


def _term(drawn: _Drawn) -> PodAffinityTerm:
    return PodAffinityTerm(
        topology_key=drawn.one(TOPOLOGIES),
        label_selector=drawn.one(SELECTORS),
        namespaces=["shop"] if drawn.chance(6) else None,
        namespace_selector=drawn.one(NAMESPACE_SELECTORS),
    )


def _incoming(drawn: _Drawn, names: Sequence[str]) -> PodBuilder:
    pod = a_pod("high").priority(drawn.one((10, 10, 10, 2, INT32_MAX)))
    if drawn.with_feature("negative", 2):
        pod = pod.priority(drawn.one((0, None, -4, INT32_MIN)))
    pod = pod.labelled(drawn.one(LABELS) or {})
    pod = _demand(drawn, pod)
    if not drawn.chance(8):
        pod = pod.cpu(drawn.one((2, 3, "1", 4, "1500m")))
    if drawn.has("memory"):
        pod = pod.memory(drawn.one(("1Gi", "2Gi")))
    if drawn.with_feature("extended", 2):
        pod = pod.requesting({GPU: 1})
    if drawn.with_feature("unplaced-demand", 3):
        pod = pod.requesting({"example.com/none": 1})
    if drawn.has("taints") and drawn.chance(2):
        pod = pod.tolerating("dedicated", operator="Equal", value="gpu")
    if drawn.with_feature("taints", 4):
        pod = pod.tolerating(effect="NoExecute")
    if drawn.with_feature("cordons", 4):
        pod = pod.tolerating("node.kubernetes.io/unschedulable")
    if drawn.with_feature("never", 2):
        pod = pod.never_preempting()
    if drawn.with_feature("schedulers", 3):
        pod = pod.scheduled_by("other")
    return _placement(drawn, pod, names)


def _placement(drawn: _Drawn, pod: PodBuilder, names: Sequence[str]) -> PodBuilder:
    if drawn.has("own-nomination"):
        pod = pod.nominated_to(drawn.one((*names, *names, "gone")))
    if drawn.with_feature("node-affinity", 3):
        pod = pod.node_selector(disk=drawn.one(("ssd", "hdd")))
    if drawn.with_feature("node-affinity", 2) or drawn.has("node-names"):
        pod = pod.node_terms(*(_node_term(drawn, names) for _ in range(1 + drawn.below(2))))
    if drawn.has("affinity") and not drawn.chance(3):
        pod = pod.affine_to(*_terms(drawn))
    if drawn.with_feature("anti-affinity", 2):
        pod = pod.anti_affine_to(*_terms(drawn))
    if drawn.with_feature("invalid-terms", 8):
        pod = pod.anti_affine_to(PodAffinityTerm(topology_key=ZONE, label_selector=INVALID))
    if drawn.has("spread"):
        keys = [HOSTNAME, ZONE] if drawn.chance(3) else [drawn.one(TOPOLOGIES)]
        pod = pod.spread(*(_constraint(drawn, key) for key in keys))
    return pod


def _node_term(drawn: _Drawn, names: Sequence[str]) -> NodeSelectorTerm:
    requirement = LabelSelectorRequirement
    labels = [
        requirement(key="disk", operator="In", values=["ssd", "nvme"]),
        requirement(key="disk", operator="NotIn", values=["hdd"]),
        requirement(key="size", operator="Gt", values=["2"]),
        requirement(key="size", operator="Lt", values=["5"]),
        requirement(key="disk", operator="Exists"),
        requirement(key="disk", operator="DoesNotExist"),
        requirement(key="size", operator="Gt", values=["much"]),
    ]
    fields = [
        requirement(key="metadata.name", operator="In", values=[name])
        for name in (*names, *(("gone",) if drawn.has("lost-nodes") else ()))
    ]
    fields += [
        requirement(key="metadata.name", operator="NotIn", values=[names[0]]),
        requirement(key="metadata.name", operator="In", values=list(names[:2])),
    ]
    named = drawn.has("node-names") and not drawn.chance(4)
    return NodeSelectorTerm(
        match_expressions=[drawn.one(labels)] if drawn.has("node-affinity") else None,
        match_fields=[drawn.one(fields) for _ in range(1 + drawn.chance(5))] if named else None,
    )


def _constraint(drawn: _Drawn, key: str) -> TopologySpreadConstraint:
    return TopologySpreadConstraint(
        max_skew=drawn.one((1, 1, 2)),
        topology_key=key,
        when_unsatisfiable="ScheduleAnyway" if drawn.chance(8) else "DoNotSchedule",
        label_selector=drawn.one(SELECTORS[:-1]),
        min_domains=drawn.one((None, None, 2, 4)),
        node_affinity_policy=drawn.one((None, None, "Honor", "Ignore")),
        node_taints_policy=drawn.one((None, None, "Honor", "Ignore")),
        match_label_keys=["tier"] if drawn.chance(5) else None,
    )


# --- nodes, budgets, and pods that wait --------------------------------------------------------


def _node(
    drawn: _Drawn, name: str, pods: Sequence[PodBuilder], incoming: PodBuilder
) -> NodeBuilder:
    """A node with the pods, and about as much room as they take."""
    taken = sum(_halves(p.pod) for p in pods)
    wanted = _halves(incoming.pod)
    # What is left is mostly too little for the incoming pod, or the pods are too many already.
    free = 6 if drawn.chance(12) else min(drawn.one((0, 0, 1, 2)), max(0, wanted - 1))
    capacity = max(taken + free, wanted) if pods else wanted - 1
    if drawn.with_feature("overcommitted", 2):
        capacity = taken - drawn.one((1, 2, 4))
    capacity = max(capacity, 0)
    node = a_node(name).running(*pods).cpu(f"{capacity * 500}m")
    if drawn.has("memory"):
        node = node.memory(drawn.one(("1Gi", "2Gi", "4Gi")))
    if drawn.has("extended"):
        node = node.allocatable({GPU: drawn.one((2, 4, 1, 0))})
    if drawn.with_feature("pod-count", 2):
        node = node.pod_limit(max(0, len(pods) + drawn.one((0, -1, 1))))
    if drawn.has("taints"):
        for taint in drawn.one(((), (), ("gpu",), ("maint",), ("soft", "maint"))):
            effect = {"gpu": "NoSchedule", "maint": "NoExecute", "soft": "PreferNoSchedule"}[taint]
            node = node.tainted("dedicated" if taint == "gpu" else taint, "gpu", effect)
    if drawn.with_feature("cordons", 3):
        node = node.cordoned()
    if drawn.chance(12):
        node = node.unlabelled()
    node = node.labelled(zone=drawn.one(("a", "b", "c"))) if not drawn.chance(8) else node
    if drawn.chance(3):
        node = node.labelled(rack=drawn.one(("r1", "r2")))
    if drawn.has("node-affinity"):
        node = node.labelled(disk=drawn.one(("ssd", "hdd")), size=drawn.one(("1", "3", "8", "x")))
    return node


def _halves(pod: Pod) -> int:
    """Halves of a cpu that the first container asks for."""
    container = (pod.spec.containers or [])[0]
    amount = container.resources and (container.resources.requests or {}).get("cpu")
    return {"500m": 1, "1": 2, "1500m": 3, 2: 4, 3: 6, 4: 8, None: 0}[amount]


def _budgets(drawn: _Drawn) -> list[BudgetBuilder]:
    if not drawn.has("budgets"):
        return []
    budgets = []
    for i in range(1 + drawn.below(3)):
        budget = a_pdb(f"pdb{i}").in_namespace(drawn.one(NAMESPACES))
        budget = budget.by(INVALID if drawn.chance(10) else drawn.one(SELECTORS))
        budget = budget.allowing(drawn.one((0, 0, 1, 2, -1)))
        if drawn.chance(4):
            budget = budget.disrupted("p00", "p03")
        budgets.append(budget)
    return budgets


def _others(drawn: _Drawn, names: Sequence[str]) -> list[PodBuilder]:
    """Pods that occupy no node: nominated ones, and pods of nodes that are gone."""
    others = []
    if drawn.has("nominated"):
        for i in range(1 + drawn.below(3)):
            pod = a_pod(f"waits{i}").in_namespace(drawn.one(NAMESPACES))
            pod = pod.priority(drawn.one((10, INT32_MAX, 1, 5, 2)))
            pod = _demand(drawn, pod).nominated_to(drawn.one(names))
            pod = pod.labelled(drawn.one(LABELS) or {})
            if drawn.with_feature("anti-affinity", 2):
                pod = pod.anti_affine_to(*_terms(drawn))
            if drawn.with_feature("schedulers", 2):
                pod = pod.scheduled_by("other")
            others.append(pod)
    if drawn.has("dangling"):
        pod = _demand(drawn, a_pod("dangling")).priority(1).labelled(app="web").on("gone")
        others.append(pod)
    return others
