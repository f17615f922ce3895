"""A group of pods that preempts for itself as one: CPU of the cycle.

    python -m benchmarks.groups --nodes 5000 --units 500 --members 100 [--around zone]

Every node is full with 30 pods. On as many nodes as there are units one of them is below the group
and so large that a member fits in its place, and nowhere else; the rest is above it. Units and
members are of several sizes. kube-scheduler's rule runs a whole pass over the members for each
unit that is put back, and one more.

What members want around their node: nothing, or all of them in one zone (required affinity), an
even spread over zones and hosts, or a host for each alone and a rack near others (anti-affinity,
preferred affinity). Every tenth pod that runs then keeps away from its own kind.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from benchmarks.clusters import PODS_PER_NODE, a_node, a_pod
from policy.cluster.objects import (
    Affinity,
    ClusterObject,
    GangPolicy,
    GroupMeta,
    GroupSchedulingPolicy,
    LabelSelector,
    Node,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodSchedulingGroup,
    SchedulingPodGroup,
    SchedulingPodGroupSpec,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from policy.cluster.snapshot import Snapshot
from policy.decision.groups import GroupOutcome
from policy.groups.decide import decide_group
from policy.rules import RuleSet

NOW_MS = 1_800_000_000_000
SIZES = (12, 14, 16)
"""Cores of the large pods, and of the members, in turn."""
CORES = 48
RULES = ("kube-1.36-groups", "groups-safe")
HOST = "kubernetes.io/hostname"
RACK = "rack"
NODES_PER_RACK = 40


def term(app: str, key: str) -> PodAffinityTerm:
    return PodAffinityTerm(
        topology_key=key, label_selector=LabelSelector(match_labels={"app": app})
    )


def evenly(key: str, *, skew: int) -> TopologySpreadConstraint:
    selector = LabelSelector(match_labels={"app": "train"})
    return TopologySpreadConstraint(max_skew=skew, topology_key=key, label_selector=selector)


AROUND: dict[str, dict[str, Any]] = {
    "nothing": {},
    "zone": {
        "affinity": Affinity(pod_affinity=PodAffinity(required=[term("train", "zone")])),
    },
    "spread": {
        "topology_spread_constraints": [evenly("zone", skew=1), evenly(HOST, skew=1)],
    },
    "apart": {
        "affinity": Affinity(
            pod_affinity=PodAffinity(
                preferred=[
                    WeightedPodAffinityTerm(weight=10, pod_affinity_term=term("train", RACK))
                ]
            ),
            pod_anti_affinity=PodAffinity(required=[term("train", HOST)]),
        ),
    },
}
"""Fields of a member's spec."""


def a_place(n: int, zones: Sequence[str]) -> Node:
    """A node with its zone, its rack and its host name. Each zone has nodes of all sizes."""
    name = f"node-{n:05d}"
    node = a_node(name, cpu=str(CORES), memory="240Gi")
    labels = {
        "zone": zones[n // len(SIZES) % len(zones)],
        RACK: f"r{n // NODES_PER_RACK:04d}",
        HOST: name,
    }
    return replace(node, metadata=replace(node.metadata, labels=labels))


def keeping_away(pod: Pod, app: str) -> Pod:
    """The pod, which shares its host with no other of the app."""
    affinity = Affinity(pod_anti_affinity=PodAffinity(required=[term(app, HOST)]))
    return replace(pod, spec=replace(pod.spec, affinity=affinity))


def cluster(
    *, nodes: int, units: int, members: int, around: str = "nothing"
) -> Iterator[ClusterObject]:
    """units: at most as many as nodes, and of each size as many as members at least.

    around: what members want around their node, a key of `AROUND`.
    """
    for n in range(nodes):
        # Where all go to one zone it has room for as many of each size as there are members.
        yield a_place(n, ("z0", "z0", "z0", "z1", "z2") if around == "zone" else ("z0", "z1", "z2"))
        large = SIZES[n % len(SIZES)] if n < units else 1
        small = 1000 * (CORES - large) // (PODS_PER_NODE - 1)
        for i in range(PODS_PER_NODE):
            low = i == 0 and n < units
            pod = a_pod(
                f"pod-{n:05d}-{i:02d}",
                namespace=f"team-{n % 200:04d}",
                app=f"app-{i:02d}",
                priority=n % 5 if low else 1000,
                cpu=f"{large}" if i == 0 else f"{small}m",
                memory="4Gi",
                node=f"node-{n:05d}",
                start=f"2024-{1 + n % 12:02d}-{1 + i % 28:02d}T00:00:00Z",
            )
            alone = around != "nothing" and i % 10 == 1
            yield keeping_away(pod, f"app-{i:02d}") if alone else pod
    group = PodSchedulingGroup(pod_group_name="train")
    for m in range(members):
        pod = a_pod(
            f"train-{m:03d}",
            namespace="ml",
            app="train",
            priority=100,
            cpu=str(SIZES[m % len(SIZES)]),
            memory="4Gi",
        )
        # As a Job labels its pods: no two carry the same labels.
        labels = {"app": "train", "batch.kubernetes.io/job-completion-index": str(m)}
        yield replace(
            pod,
            metadata=replace(pod.metadata, labels=labels),
            spec=replace(pod.spec, scheduling_group=group, **AROUND[around]),
        )
    yield SchedulingPodGroup(
        metadata=GroupMeta(name="train", namespace="ml", uid="train"),
        spec=SchedulingPodGroupSpec(
            scheduling_policy=GroupSchedulingPolicy(gang=GangPolicy(min_count=members)),
            priority=100,
        ),
    )


def measure(
    *, nodes: int, units: int, members: int, around: str = "nothing"
) -> list[dict[str, float | str]]:
    """One row for each rule set: seconds of CPU, from the snapshot to the digest."""
    objects = list(cluster(nodes=nodes, units=units, members=members, around=around))
    rows: list[dict[str, float | str]] = []
    for name in RULES:
        rules = RuleSet.load(name)
        snapshot = Snapshot.from_objects(objects, now_ms=NOW_MS)
        start = time.process_time()
        decision = decide_group(snapshot, rules, "ml/train")
        digest = decision.digest
        seconds = time.process_time() - start
        assert decision.outcome is GroupOutcome.PREEMPTING
        assert decision.preemption is not None
        rows.append(
            {
                "around": around,
                "rules": name,
                "seconds": round(seconds, 3),
                "potential": decision.preemption.potential,
                "passes": len(decision.preemption.passes),
                "victims": len(decision.victims),
                "digest": digest,
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--units", type=int, default=500)
    parser.add_argument("--members", type=int, default=100)
    parser.add_argument("--around", choices=tuple(AROUND), action="append")
    options = parser.parse_args()
    for around in options.around or AROUND:
        for row in measure(
            nodes=options.nodes, units=options.units, members=options.members, around=around
        ):
            print(json.dumps(row))


if __name__ == "__main__":
    main()
