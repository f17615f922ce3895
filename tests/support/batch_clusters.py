"""Random clusters with queues and gangs, and random configurations, for tests of sessions."""

from __future__ import annotations

from random import Random
from typing import Any

from policy.cluster.objects import (
    Affinity,
    ClusterObject,
    Condition,
    Container,
    ContainerPort,
    LabelSelector,
    LabelSelectorRequirement,
    Node,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    NodeSpec,
    NodeStatus,
    ObjectMeta,
    OwnerReference,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodGroup,
    PodGroupSpec,
    PodSpec,
    PodStatus,
    PreferredSchedulingTerm,
    PriorityClass,
    Queue,
    QueueSpec,
    ResourceRequirements,
    Taint,
    Toleration,
    WeightedPodAffinityTerm,
)

ACTIONS = ("allocate", "backfill", "preempt", "reclaim")
PLUGINS = ("priority", "gang", "conformance", "drf", "proportion", "predicates", "nodeorder")
SAMPLE_TIERS = (
    ("priority", "gang", "conformance"),
    ("drf", "predicates", "proportion", "nodeorder"),
)
GROUP = "scheduling.k8s.io/group-name"
GPU = "nvidia.com/gpu"


def _time(dice: Random) -> str:
    return f"2024-01-01T00:00:{dice.randrange(30):02d}Z"


def cluster(dice: Random, *, odd: bool = True) -> list[ClusterObject]:
    """Nodes, queues, gangs, lone pods. odd: also what no sane cluster holds."""
    nodes = [_node(dice, f"n{i}") for i in range(1, dice.randint(2, 5))]
    names = [n.metadata.name for n in nodes]
    queues = [f"q{i}" for i in range(1, dice.randint(2, 4))]
    found: list[ClusterObject] = list(nodes)
    weights = (-1, 0, 1, 2, 3) if odd and dice.random() < 0.1 else (1, 2, 3)
    for name in (*queues, *(["default"] if dice.random() < 0.8 else [])):
        meta = ObjectMeta(name=name, creation_timestamp=_time(dice))
        found.append(Queue(metadata=meta, spec=QueueSpec(weight=dice.choice(weights))))
    for name, value in (("low", 10), ("mid", 100), ("high", 1000)):
        default = odd and name == "mid" and dice.random() < 0.2
        meta = ObjectMeta(name=name)
        found.append(PriorityClass(metadata=meta, value=value, global_default=default))
    simple = dice.random() < 0.5
    contended = dice.random() < 0.6
    for i in range(dice.randint(4, 9) if contended else dice.randint(1, 7)):
        runs = i % 3 != 0 if contended else dice.random() < 0.5
        classes = ["low", "mid", "high", ""]
        if contended:
            classes = ["low", "low", "mid"] if runs else ["mid", "high", "high"]
        found += _gang(
            dice, f"j{i}", queues, names, runs=runs, classes=classes, odd=odd, simple=simple
        )
    for i in range(dice.randint(0, 3)):
        found.append(_lone(dice, f"lone{i}", names, odd=odd, simple=simple))
    if odd and dice.random() < 0.1:
        owner = OwnerReference(uid=f"set-{dice.randrange(2)}", controller=True)
        meta = ObjectMeta(name="budget", namespace="default", owner_references=[owner])
        spec = PodDisruptionBudgetSpec(min_available=dice.choice([0, 1, 2, "50%"]))
        found.append(PodDisruptionBudget(metadata=meta, spec=spec))
    dice.shuffle(found)
    return found


def _node(dice: Random, name: str) -> Node:
    amounts: dict[str, Any] = {
        "cpu": dice.choice(["3", "5", "8"]),
        "memory": dice.choice(["6Gi", "10Gi"]),
        "pods": dice.choice(["110", "110", "110", "3"]),
    }
    if dice.random() < 0.25:
        amounts[GPU] = dice.choice(["0", "1", "2"])
    labels = {"host": name}
    if dice.random() < 0.8:
        labels["zone"] = dice.choice(["a", "b"])
    taints = None
    if dice.random() < 0.1:
        effect = dice.choice(["NoSchedule", "NoExecute", "PreferNoSchedule"])
        taints = [Taint(key="dedicated", value="x", effect=effect)]
    conditions = [Condition(type="Ready", status=dice.choice(["True"] * 15 + ["Unknown"]))]
    if dice.random() < 0.1:
        kind = dice.choice(["MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"])
        conditions.append(Condition(type=kind, status=dice.choice(["True", "False"])))
    return Node(
        metadata=ObjectMeta(name=name, labels=labels),
        spec=NodeSpec(unschedulable=dice.random() < 0.04, taints=taints),
        status=NodeStatus(allocatable=amounts, conditions=conditions),
    )


def _gang(
    dice: Random,
    name: str,
    queues: list[str],
    nodes: list[str],
    *,
    runs: bool,
    classes: list[str],
    odd: bool,
    simple: bool,
) -> list[ClusterObject]:
    """A pod group with its pods, most of which run, or most of which wait."""
    size = dice.randint(0 if odd else 1, 5)
    known = [*queues, *(["missing", ""] if odd and dice.random() < 0.1 else [])]
    group = PodGroup(
        metadata=ObjectMeta(name=name, namespace="default", creation_timestamp=_time(dice)),
        spec=PodGroupSpec(
            min_member=dice.randint(0, max(1, size + (dice.random() < 0.2))),
            queue=dice.choice(known),
            priority_class_name=dice.choice(classes),
        ),
    )
    shape = _requests(dice)
    pods: list[ClusterObject] = []
    for i in range(size):
        given = shape if dice.random() < 0.7 else _requests(dice)
        running = runs != (dice.random() < 0.15)
        meta = ObjectMeta(
            name=f"{name}-{i}",
            namespace="default",
            uid=f"uid-{name}-{i}",
            creation_timestamp=_time(dice),
            labels={"job": name, "odd": str(i % 2)},
            annotations={GROUP: name},
        )
        pods.append(_pod(dice, meta, given, nodes, running=running, odd=odd, simple=simple))
    described: list[ClusterObject] = [] if odd and dice.random() < 0.04 else [group]
    return [*described, *pods]


def _lone(dice: Random, name: str, nodes: list[str], *, odd: bool, simple: bool) -> Pod:
    owner = OwnerReference(uid=f"set-{dice.randrange(2)}", controller=True)
    annotations = {"scheduling.k8s.io/group-min-member": dice.choice(["2", "x"])}
    meta = ObjectMeta(
        name=name,
        namespace="kube-system" if dice.random() < 0.1 else "default",
        uid=f"uid-{name}",
        creation_timestamp=_time(dice),
        labels={"job": name},
        owner_references=[owner] if dice.random() < 0.5 else None,
        annotations=annotations if dice.random() < 0.2 else None,
    )
    running = dice.random() < 0.5
    ours = dice.random() < 0.7
    pod = _pod(dice, meta, _requests(dice), nodes, running=running, odd=odd, simple=simple)
    if ours:
        return pod
    return Pod(metadata=pod.metadata, spec=_of_other(pod.spec), status=pod.status)


def _of_other(spec: PodSpec) -> PodSpec:
    from msgspec.structs import replace

    return replace(spec, scheduler_name="default-scheduler")


def _requests(dice: Random) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if dice.random() < 0.92:
        found["cpu"] = dice.choice(["500m", "1", "1", "1500m", "2", "995m", "9m"])
    if dice.random() < 0.9:
        found["memory"] = dice.choice(["512Mi", "1Gi", "1Gi", "2Gi", "1019Mi", "5Mi"])
    if dice.random() < 0.1:
        found[GPU] = dice.choice([0, 1, 2])
    return {} if dice.random() < 0.08 else found


def _pod(
    dice: Random,
    meta: ObjectMeta,
    requests: dict[str, Any],
    nodes: list[str],
    *,
    running: bool,
    odd: bool,
    simple: bool,
) -> Pod:
    ports = None
    if not simple and dice.random() < 0.1:
        ip = dice.choice(["", "10.0.0.1"])
        ports = [ContainerPort(container_port=80, host_port=dice.choice([80, 81]), host_ip=ip)]
    init = None
    if not simple and dice.random() < 0.1:
        needs = ResourceRequirements(requests={"cpu": "2", "memory": "256Mi"})
        init = [Container(name="init", resources=needs)]
    phase, node, leaving = "Pending", "", None
    if running:
        node = "gone" if odd and dice.random() < 0.03 else dice.choice(nodes)
        phase = dice.choice(["Running"] * 9 + ["Pending"])
        if dice.random() < 0.1:
            leaving = "2024-01-01T01:00:00Z"
        if odd and dice.random() < 0.05:
            phase = dice.choice(["Succeeded", "Failed", "Unknown"])
    return Pod(
        metadata=ObjectMeta(
            name=meta.name,
            namespace=meta.namespace,
            uid=meta.uid,
            creation_timestamp=meta.creation_timestamp,
            deletion_timestamp=leaving,
            labels=meta.labels,
            annotations=meta.annotations,
            owner_references=meta.owner_references,
        ),
        spec=PodSpec(
            node_name=node,
            priority=dice.choice([None, 0, 1, 5, 5, 10]),
            priority_class_name=dice.choice([""] * 15 + ["system-node-critical"]),
            scheduler_name="kube-batch",
            containers=[
                Container(
                    name="main",
                    resources=ResourceRequirements(requests=requests or None),
                    ports=ports,
                )
            ],
            init_containers=init,
            node_selector={"zone": "a"} if not simple and dice.random() < 0.1 else None,
            tolerations=[Toleration(key="dedicated", operator="Exists")]
            if dice.random() < 0.2
            else None,
            affinity=None if simple or dice.random() < 0.6 else _affinity(dice, meta),
        ),
        status=PodStatus(phase=phase),
    )


def _affinity(dice: Random, meta: ObjectMeta) -> Affinity:
    kind = dice.randrange(6)
    if kind < 2:
        term = NodeSelectorTerm(
            match_expressions=[
                LabelSelectorRequirement(
                    key="zone", operator=dice.choice(["In", "NotIn", "Exists"]), values=["a"]
                )
                if dice.random() < 0.7
                else LabelSelectorRequirement(key="host", operator="In", values=["n1", "n2"])
            ]
        )
        if kind == 0:
            return Affinity(
                node_affinity=NodeAffinity(required=NodeSelector(node_selector_terms=[term]))
            )
        weighted = [PreferredSchedulingTerm(weight=dice.randint(0, 9), preference=term)]
        return Affinity(node_affinity=NodeAffinity(preferred=weighted))
    terms = [_term(dice, meta) for _ in range(dice.randint(1, 2))]
    weighted_terms = [
        WeightedPodAffinityTerm(weight=dice.randint(1, 9), pod_affinity_term=term) for term in terms
    ]
    match kind:
        case 2:
            return Affinity(pod_affinity=PodAffinity(required=terms))
        case 3:
            return Affinity(pod_anti_affinity=PodAffinity(required=terms))
        case 4:
            return Affinity(pod_affinity=PodAffinity(preferred=weighted_terms))
        case _:
            return Affinity(pod_anti_affinity=PodAffinity(preferred=weighted_terms))


def _term(dice: Random, meta: ObjectMeta) -> PodAffinityTerm:
    labels = meta.labels or {}
    chosen = dice.choice(sorted(labels))
    selector = dice.choice(
        [
            LabelSelector(match_labels={chosen: labels[chosen]}),
            LabelSelector(match_labels={"odd": "0"}),
            LabelSelector(),
            None,
        ]
    )
    return PodAffinityTerm(
        label_selector=selector,
        topology_key=dice.choice(["host", "zone"]),
        namespaces=dice.choice([None, None, None, ["kube-system"]]),
    )


# --- configurations ----------------------------------------------------------------------------


def configuration(dice: Random) -> dict[str, Any]:
    """Actions in any order, and the usual tiers or any others."""
    actions = [dice.choice(ACTIONS) for _ in range(dice.randint(1, 4))]
    if dice.random() < 0.5:
        tiers = [[{"name": name} for name in tier] for tier in SAMPLE_TIERS]
    else:
        names = [name for name in PLUGINS if dice.random() < 0.8]
        dice.shuffle(names)
        if names and dice.random() < 0.1:
            names.append(dice.choice(names))
        cut = dice.randint(0, len(names))
        tiers = [[_use(dice, n) for n in names[:cut]], [_use(dice, n) for n in names[cut:]]]
    return {"actions": ", ".join(actions), "tiers": [{"plugins": tier} for tier in tiers]}


FLAGS = (
    "enableJobOrder",
    "enableJobReady",
    "enableJobPipelined",
    "enableTaskOrder",
    "enablePreemptable",
    "enableReclaimable",
    "enableQueueOrder",
    "enablePredicate",
    "enableNodeOrder",
)


def _use(dice: Random, name: str) -> dict[str, Any]:
    found: dict[str, Any] = {"name": name}
    if dice.random() < 0.2:
        found[dice.choice(FLAGS)] = dice.random() < 0.3
    arguments = {}
    if name == "nodeorder" and dice.random() < 0.4:
        for key in ("leastrequested", "mostrequested", "nodeaffinity", "podaffinity"):
            if dice.random() < 0.5:
                arguments[f"{key}.weight"] = str(dice.choice([0, 1, 3, "", "x"]))
    if name == "predicates" and dice.random() < 0.4:
        for key in ("MemoryPressure", "DiskPressure", "PIDPressure"):
            arguments[f"predicate.{key}Enable"] = dice.choice(["true", "false", "1", "no"])
    if arguments:
        found["arguments"] = arguments
    return found
