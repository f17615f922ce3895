"""How long a batch session takes, from the snapshot to the result with its digest.

    python -m benchmarks.batch --output FILE

Generated clusters: every node runs ten pods of gangs of four and has room for one or two more, so
that a part of the backlog is placed, a part preempts or reclaims, and a part finds nothing. Two
queues, three priority classes. Each case runs in a process of its own; the figures are the median
and the slowest of some runs. Processor time is what to compare on a busy machine.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.clusters import Dice
from policy.cluster.objects import (
    Affinity,
    ClusterObject,
    Container,
    LabelSelector,
    Node,
    NodeStatus,
    ObjectMeta,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodGroup,
    PodGroupSpec,
    PodGroupStatus,
    PodSpec,
    PodStatus,
    PriorityClass,
    Queue,
    QueueSpec,
    ResourceRequirements,
)

NOW_MS = 1_795_219_200_000
PODS_PER_NODE = 10
GANG = 4
CLASSES = {"low": 10, "mid": 100, "high": 1000}
QUEUES = {"research": 1, "products": 3}
PLUGINS = {
    "sample": [
        ["priority", "gang", "conformance"],
        ["drf", "predicates", "proportion", "nodeorder"],
    ],
    "shares": [["drf", "proportion"], ["gang", "predicates", "nodeorder"]],
}

CASES: dict[str, dict[str, Any]] = {
    "allocate and preempt": {"nodes": 1_000, "backlog": 500, "actions": "allocate, preempt"},
    "all actions": {
        "nodes": 1_000,
        "backlog": 500,
        "actions": "reclaim, allocate, backfill, preempt",
    },
    "shares decide": {
        "nodes": 1_000,
        "backlog": 500,
        "actions": "reclaim, allocate, preempt",
        "plugins": "shares",
    },
    "anti-affinity": {
        "nodes": 1_000,
        "backlog": 500,
        "actions": "allocate, preempt",
        "apart": True,
    },
    "large, allocate and preempt": {
        "nodes": 5_000,
        "backlog": 5_000,
        "actions": "allocate, preempt",
        "runs": 1,
    },
    "large, all actions": {
        "nodes": 5_000,
        "backlog": 5_000,
        "actions": "reclaim, allocate, backfill, preempt",
        "runs": 1,
    },
    "largest, allocate and preempt": {
        "nodes": 15_000,
        "backlog": 20_000,
        "actions": "allocate, preempt",
        "runs": 1,
    },
    "volcano": {"nodes": 1_000, "backlog": 500, "rules": "volcano"},
    "volcano, preempt and reclaim": {
        "nodes": 1_000,
        "backlog": 500,
        "rules": "volcano",
        "actions": "enqueue, allocate, backfill, preempt, reclaim",
    },
    "large, volcano": {"nodes": 5_000, "backlog": 5_000, "rules": "volcano", "runs": 1},
    "largest, all actions": {
        "nodes": 15_000,
        "backlog": 20_000,
        "actions": "reclaim, allocate, backfill, preempt",
        "runs": 1,
    },
}


def cluster(
    *, nodes: int, backlog: int, apart: bool = False, scheduler: str = "kube-batch"
) -> Iterator[ClusterObject]:
    """Nodes that are nearly full, and gangs that wait. apart: one pod of a gang per node."""
    dice = Dice(1)
    for name, value in CLASSES.items():
        yield PriorityClass(metadata=ObjectMeta(name=name), value=value)
    for name, weight in QUEUES.items():
        yield Queue(metadata=ObjectMeta(name=name), spec=QueueSpec(weight=weight))
    names = [f"node-{n:05d}" for n in range(nodes)]
    for name in names:
        yield Node(
            metadata=ObjectMeta(name=name, labels={"host": name}),
            status=NodeStatus(allocatable={"cpu": "16", "memory": "64Gi", "pods": "110"}),
        )
    running = nodes * PODS_PER_NODE
    for n in range(0, running, GANG):
        yield from _gang(
            f"run-{n:06d}", n, dice, nodes=names, size=min(GANG, running - n), scheduler=scheduler
        )
    for n in range(0, backlog, GANG):
        size = min(GANG, backlog - n)
        yield from _gang(
            f"wait-{n:06d}", running + n, dice, size=size, apart=apart, scheduler=scheduler
        )


def _gang(
    name: str,
    first: int,
    dice: Dice,
    *,
    size: int,
    nodes: list[str] | None = None,
    apart: bool = False,
    scheduler: str,
) -> Iterator[ClusterObject]:
    classes = ("low", "mid") if nodes is not None else ("low", "mid", "high")
    created = f"2026-11-20T{first // 3600 % 24:02d}:{first // 60 % 60:02d}:{first % 60:02d}Z"
    yield PodGroup(
        metadata=ObjectMeta(name=name, namespace="batch", uid=name, creation_timestamp=created),
        spec=PodGroupSpec(
            min_member=1 + dice.below(size),
            queue=tuple(QUEUES)[dice.below(len(QUEUES))],
            priority_class_name=classes[dice.below(len(classes))],
            # Volcano lets a group in for what it asks for.
            min_resources={} if scheduler == "volcano" else None,
        ),
        status=PodGroupStatus(phase="Pending" if nodes is None else "Running"),
    )
    # Ten running pods ask for 15 of 16 processors on average.
    cpu, memory = f"{1000 + 250 * dice.below(5)}m", f"{1 + dice.below(8)}Gi"
    affinity = None
    if apart:
        term = PodAffinityTerm(
            label_selector=LabelSelector(match_labels={"gang": name}), topology_key="host"
        )
        affinity = Affinity(pod_anti_affinity=PodAffinity(required=[term]))
    for i in range(size):
        pod = f"{name}-{i}"
        yield Pod(
            metadata=ObjectMeta(
                name=pod,
                namespace="batch",
                uid=pod,
                creation_timestamp=created,
                labels={"gang": name},
                annotations={"scheduling.k8s.io/group-name": name},
            ),
            spec=PodSpec(
                scheduler_name=scheduler,
                priority=0,
                node_name="" if nodes is None else nodes[(first + i) % len(nodes)],
                containers=[
                    Container(
                        name="main",
                        resources=ResourceRequirements(requests={"cpu": cpu, "memory": memory}),
                    )
                ],
                affinity=affinity,
            ),
            status=PodStatus(phase="Pending" if nodes is None else "Running"),
        )


def _rules(batch_rules: Any, case: dict[str, Any]) -> Any:
    if "rules" in case:
        spec = {"actions": case["actions"]} if "actions" in case else {}
        return batch_rules.load(
            {
                "apiVersion": "policy/v1",
                "kind": "BatchRules",
                "metadata": {"name": "measured"},
                "extends": case["rules"],
                "spec": spec,
            }
        )
    tiers = PLUGINS[case.get("plugins", "sample")]
    return batch_rules.load(
        {
            "actions": case["actions"],
            "tiers": [{"plugins": [{"name": name} for name in tier]} for tier in tiers],
        }
    )


def measure(case: dict[str, Any]) -> dict[str, Any]:
    """All figures of one case."""
    from policy.batch import BatchRules, run_session
    from policy.cluster.snapshot import Snapshot

    rules = _rules(BatchRules, case)
    given = {key: case[key] for key in ("nodes", "backlog", "apart") if key in case}
    given["scheduler"] = rules.naming.scheduler
    snapshot = Snapshot.from_objects(list(cluster(**given)), now_ms=NOW_MS)
    seconds, cpu, digests = [], [], set()
    for _ in range(case.get("runs", 3)):
        start, cpu_start = time.perf_counter(), time.process_time()
        result = run_session(snapshot, rules)
        decided = time.perf_counter() - start
        cpu.append(time.process_time() - cpu_start)
        digests.add(result.digest)
        seconds.append((decided, time.perf_counter() - start))
    assert len(digests) == 1
    return {
        "nodes": case["nodes"],
        "running": case["nodes"] * PODS_PER_NODE,
        "backlog": case["backlog"],
        "actions": ", ".join(rules.actions),
        "plugins": case.get("plugins", case.get("rules", "sample")),
        "session_seconds": round(statistics.median(s for s, _ in seconds), 3),
        "session_cpu_seconds": round(statistics.median(cpu), 3),
        "slowest_with_digest_seconds": round(max(s for _, s in seconds), 3),
        "binds": len(result.binds),
        "pipelined": len(result.pipelined),
        "evicts": len(result.evicts),
        "steps": len(result.steps),
        "waiting_jobs": len(result.reasons),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--case", choices=tuple(CASES), action="append")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--output", type=Path)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(CASES[options.one])))
        return
    found = {}
    print(
        f"{'case':<28} {'nodes':>6} {'backlog':>7} {'s':>8} {'cpu s':>8} {'+digest':>8}"
        f" {'MiB':>5}"
        f" {'binds':>6} {'piped':>6} {'evicts':>6}"
    )
    for name in options.case or CASES:
        run = subprocess.run(
            [sys.executable, "-m", "benchmarks.batch", "--one", name],
            check=True,
            capture_output=True,
            text=True,
        )
        figures = found[name] = json.loads(run.stdout)
        print(
            f"{name:<28} {figures['nodes']:>6} {figures['backlog']:>7}"
            f" {figures['session_seconds']:>8} {figures['session_cpu_seconds']:>8}"
            f" {figures['slowest_with_digest_seconds']:>8}"
            f" {figures['peak_mib']:>5} {figures['binds']:>6} {figures['pipelined']:>6}"
            f" {figures['evicts']:>6}",
            flush=True,
        )
    if options.output:
        document = {
            "python": platform.python_version(),
            "machine": platform.machine(),
            "processors": os.cpu_count(),
            "cases": found,
        }
        options.output.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
