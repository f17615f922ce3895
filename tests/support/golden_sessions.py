"""Sessions whose digests are committed in `tests/data/sessions/digests.json`.

A faster way to the same session is right where no digest changes: a digest covers every step,
every answer of a plugin and every share to the bit. Where sessions are meant to change, raise
`ENGINE_VERSION` and write the file anew with `python -m tests.support.golden_sessions`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

from msgspec.structs import replace

from policy.batch import BatchRules, SessionResult, run_session
from policy.cluster.objects import (
    Affinity,
    ClusterObject,
    ContainerPort,
    LabelSelector,
    LabelSelectorRequirement,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    NodeSpec,
    ObjectMeta,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodGroup,
    PodGroupSpec,
    PodGroupStatus,
    PodStatus,
    PreferredSchedulingTerm,
    Taint,
    Toleration,
)
from policy.cluster.snapshot import Snapshot
from tests.support import volcano_clusters
from tests.support.batch import NOW_MS, a_class, a_node, a_pod, a_queue
from tests.support.batch_clusters import GPU, SAMPLE_TIERS, cluster, configuration

DIGESTS: Final = Path(__file__).parents[1] / "data" / "sessions" / "digests.json"
SMALL: Final = 120
"""Sessions on the clusters of the differential test: few nodes, everything odd."""
CROWDED: Final = 4
"""Clusters of some forty nodes, each under all of `_CROWDED_RULES`."""

_DIGEST: Final = "sha256:" + 64 * "5"
_SHARES: Final = (("drf", "proportion"), ("gang", "predicates", "nodeorder"))
_CROWDED_RULES: Final[dict[str, Any]] = {
    "sample": {"actions": "allocate, backfill, preempt", "tiers": SAMPLE_TIERS},
    "all actions": {"actions": "reclaim, allocate, backfill, preempt", "tiers": SAMPLE_TIERS},
    "shares": {"actions": "reclaim, preempt, allocate", "tiers": _SHARES},
    "twice": {"actions": "preempt, allocate, reclaim, preempt, allocate", "tiers": SAMPLE_TIERS},
    "no tiers": {"actions": "allocate, backfill", "tiers": ()},
}


def sessions(*, small: int = SMALL, crowded: int = CROWDED) -> Iterator[tuple[str, SessionResult]]:
    """The sessions by name."""
    for seed in range(small):
        dice = Random(seed)
        objects = cluster(dice)
        yield f"small/{seed}", _run(objects, BatchRules.load(configuration(dice)))
    for seed in range(crowded):
        objects = list(a_crowded_cluster(Random(seed)))
        for name, config in _CROWDED_RULES.items():
            tiers = [{"plugins": [{"name": p} for p in tier]} for tier in config["tiers"]]
            rules = BatchRules.load({"actions": config["actions"], "tiers": tiers})
            yield f"crowded/{seed}/{name}", _run(objects, rules)
        yield f"crowded/{seed}/safe", _run(objects, BatchRules.load("batch-safe"))
        for name, rules in volcano_rules().items():
            yield f"crowded/{seed}/{name}", _run(for_volcano(objects), rules)
    for seed in range(small // 2):
        dice = Random(seed)
        objects = volcano_clusters.cluster(dice)
        yield (
            f"volcano/{seed}",
            _run(objects, BatchRules.load(volcano_clusters.configuration(dice))),
        )


def volcano_rules() -> dict[str, BatchRules]:
    """Volcano as it is shipped, and with all actions."""
    shipped = BatchRules.load("volcano")
    actions = ("enqueue", "allocate", "backfill", "preempt", "reclaim")
    return {
        "volcano": shipped,
        "volcano, all actions": dataclasses.replace(shipped, actions=actions),
    }


def for_volcano(objects: list[ClusterObject]) -> list[ClusterObject]:
    """The same cluster for pods of Volcano, all groups let in."""
    return [
        replace(o, spec=replace(o.spec, scheduler_name="volcano"))
        if isinstance(o, Pod)
        else replace(o, status=PodGroupStatus(phase="Inqueue"))
        if isinstance(o, PodGroup)
        else o
        for o in objects
    ]


def digests(**numbers: int) -> dict[str, str]:
    """Digests by name, free of those of rules and snapshots: other formats determine them."""
    return {
        name: dataclasses.replace(result, rules_digest=_DIGEST, snapshot_digest=_DIGEST).digest
        for name, result in sessions(**numbers)
    }


def _run(objects: list[ClusterObject], rules: BatchRules) -> SessionResult:
    return run_session(Snapshot.from_objects(objects, now_ms=NOW_MS), rules)


# --- crowded clusters --------------------------------------------------------------------------

_PRIORITIES: Final = {"low": 10, "mid": 100, "high": 1000}


def a_crowded_cluster(dice: Random) -> Iterator[ClusterObject]:
    """Nearly full nodes and gangs of few kinds that wait, so that equal tasks follow each other.

    Half of the clusters have pods that look at other pods and at ports; the other half have none.
    """
    plain = dice.random() < 0.5
    names = [f"n{i:02d}" for i in range(dice.randint(30, 50))]
    for name in names:
        yield _node(dice, name)
    for name, value in _PRIORITIES.items():
        yield a_class(name, value)
    queues = ("default", "q1", "q2")
    for name in queues:
        yield a_queue(name, weight=dice.randint(1, 3))
    kinds = [_kind(dice, plain=plain) for _ in range(8)]
    for i in range(3 * len(names)):
        classes = ("low", "low", "mid")
        yield from _gang(dice, f"run{i:03d}", queues, classes, dice.choice(kinds), names)
    for i in range(60):
        classes = ("low", "mid", "high")
        yield from _gang(dice, f"wait{i:03d}", queues, classes, dice.choice(kinds), None)


def _node(dice: Random, name: str) -> ClusterObject:
    gpus = {GPU: dice.choice((2, 4))} if dice.random() < 0.3 else {}
    pods = 10 if dice.random() < 0.1 else 110
    node = a_node(name, cpu=dice.choice((8, 8, 12)), memory="32Gi", pods=pods, **gpus)
    labels = {"host": name, "zone": dice.choice(("a", "b", "c"))}
    tainted = dice.random() < 0.1
    taints = [Taint(key="dedicated", value="x", effect="NoSchedule")] if tainted else None
    return replace(
        node, metadata=replace(node.metadata, labels=labels), spec=NodeSpec(taints=taints)
    )


def _kind(dice: Random, *, plain: bool) -> dict[str, Any]:
    """What all pods of a gang have in common."""
    requests: dict[str, Any] = {"cpu": dice.choice(("1", "1500m", "2", "2995m"))}
    requests["memory"] = dice.choice(("1Gi", "2Gi", "3Gi"))
    if dice.random() < 0.2:
        requests[GPU] = 1
    if dice.random() < 0.1:
        requests = {}
    spec: dict[str, Any] = {}
    if dice.random() < 0.3:
        spec["tolerations"] = [Toleration(key="dedicated", operator="Exists")]
    if dice.random() < 0.2:
        spec["node_selector"] = {"zone": dice.choice(("a", "b"))}
    looks = dice.randrange(6)
    if looks == 0:
        spec["affinity"] = _node_affinity(dice)
    elif looks == 1 and not plain:
        spec["affinity"] = _pod_affinity(dice)
    return {"requests": requests, "spec": spec, "port": looks == 2 and not plain}


def _node_affinity(dice: Random) -> Affinity:
    expression = LabelSelectorRequirement(key="zone", operator="In", values=["a", "c"])
    term = NodeSelectorTerm(match_expressions=[expression])
    if dice.random() < 0.5:
        return Affinity(
            node_affinity=NodeAffinity(required=NodeSelector(node_selector_terms=[term]))
        )
    weighted = PreferredSchedulingTerm(weight=dice.randint(1, 9), preference=term)
    return Affinity(node_affinity=NodeAffinity(preferred=[weighted]))


def _pod_affinity(dice: Random) -> Affinity:
    term = PodAffinityTerm(
        label_selector=LabelSelector(match_labels={"kind": dice.choice(("even", "odd"))}),
        topology_key=dice.choice(("host", "zone")),
    )
    found = PodAffinity(required=[term])
    return (
        Affinity(pod_affinity=found) if dice.random() < 0.3 else Affinity(pod_anti_affinity=found)
    )


def _gang(
    dice: Random,
    name: str,
    queues: tuple[str, ...],
    classes: tuple[str, ...],
    kind: dict[str, Any],
    nodes: list[str] | None,
) -> Iterator[ClusterObject]:
    """A gang that runs on any of the nodes, or waits where there are none."""
    size = dice.randint(1, 4)
    created = f"2026-11-20T00:00:{dice.randrange(60):02d}Z"
    yield PodGroup(
        metadata=ObjectMeta(name=name, namespace="default", creation_timestamp=created),
        spec=PodGroupSpec(
            min_member=dice.randint(1, size),
            queue=dice.choice(queues),
            priority_class_name=dice.choice(classes),
        ),
    )
    for i in range(size):
        node = dice.choice(nodes) if nodes is not None else ""
        pod = a_pod(f"{name}-{i}", group=name, node=node, spec=kind["spec"], **kind["requests"])
        yield _dressed(dice, pod, created=created, port=kind["port"], runs=bool(node))


def _dressed(dice: Random, pod: Pod, *, created: str, port: bool, runs: bool) -> Pod:
    """With labels, a port, a priority; a few running pods leave, start, or are critical."""
    containers = pod.spec.containers or []
    if port:
        number = dice.choice((80, 81))
        ports = [ContainerPort(container_port=number, host_port=number)]
        containers = [replace(container, ports=ports) for container in containers]
    critical = runs and dice.random() < 0.05
    leaving = runs and dice.random() < 0.05
    starting = runs and dice.random() < 0.05
    return replace(
        pod,
        metadata=replace(
            pod.metadata,
            creation_timestamp=created,
            labels={"kind": dice.choice(("even", "odd", "other"))},
            deletion_timestamp="2026-11-20T23:00:00Z" if leaving else None,
        ),
        spec=replace(
            pod.spec,
            containers=containers,
            priority=dice.choice((None, 0, 5)),
            priority_class_name="system-node-critical" if critical else "",
        ),
        status=PodStatus(phase="Pending") if starting else pod.status,
    )


if __name__ == "__main__":
    DIGESTS.parent.mkdir(exist_ok=True)
    DIGESTS.write_text(json.dumps(digests(), indent=1) + "\n")
