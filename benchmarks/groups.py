"""A group of pods that preempts for itself as one: CPU of the cycle.

    python -m benchmarks.groups --nodes 5000 --units 500 --members 100

Every node is full with 30 pods. On as many nodes as there are units one of them is below the group
and so large that a member fits in its place, and nowhere else; the rest is above it. Units and
members are of several sizes. kube-scheduler's rule runs a whole pass over the members for each
unit that is put back, and one more.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator

from msgspec.structs import replace

from benchmarks.clusters import PODS_PER_NODE, a_node, a_pod
from policy.cluster.objects import (
    ClusterObject,
    GangPolicy,
    GroupMeta,
    GroupSchedulingPolicy,
    PodSchedulingGroup,
    SchedulingPodGroup,
    SchedulingPodGroupSpec,
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


def cluster(*, nodes: int, units: int, members: int) -> Iterator[ClusterObject]:
    """units: at most as many as nodes, and of each size as many as members at least."""
    for n in range(nodes):
        yield a_node(f"node-{n:05d}", cpu=str(CORES), memory="240Gi", zone=f"z{n % 3}")
        large = SIZES[n % len(SIZES)] if n < units else 1
        small = 1000 * (CORES - large) // (PODS_PER_NODE - 1)
        for i in range(PODS_PER_NODE):
            low = i == 0 and n < units
            yield a_pod(
                f"pod-{n:05d}-{i:02d}",
                namespace=f"team-{n % 200:04d}",
                app=f"app-{i:02d}",
                priority=n % 5 if low else 1000,
                cpu=f"{large}" if i == 0 else f"{small}m",
                memory="4Gi",
                node=f"node-{n:05d}",
                start=f"2024-{1 + n % 12:02d}-{1 + i % 28:02d}T00:00:00Z",
            )
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
        yield replace(pod, spec=replace(pod.spec, scheduling_group=group))
    yield SchedulingPodGroup(
        metadata=GroupMeta(name="train", namespace="ml", uid="train"),
        spec=SchedulingPodGroupSpec(
            scheduling_policy=GroupSchedulingPolicy(gang=GangPolicy(min_count=members)),
            priority=100,
        ),
    )


def measure(*, nodes: int, units: int, members: int) -> list[dict[str, float | str]]:
    """One row for each rule set: seconds of CPU, from the snapshot to the digest."""
    objects = list(cluster(nodes=nodes, units=units, members=members))
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
    options = parser.parse_args()
    for row in measure(nodes=options.nodes, units=options.units, members=options.members):
        print(json.dumps(row))


if __name__ == "__main__":
    main()
