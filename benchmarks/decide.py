"""How long one decision takes over a whole cluster that does not change in between.

    python -m benchmarks.decide [--nodes 5000]

Generated clusters: full nodes with 30 pods each, five priority levels, budgets on a third of the
workloads, all potential nodes examined, preemptors of 15 kinds. Twice: on the full path, and by
classes that other pods have filled (`decide(..., by_class=True)`, as a scheduler asks).
Milliseconds are medians of this process's CPU.
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import statistics
import time

from benchmarks.clusters import PODS_PER_NODE, cluster
from policy.cluster.snapshot import Snapshot
from policy.preemption.decide import decide
from policy.rules import RuleSet

DECISIONS = 30
KINDS = 15
"""Sizes of the generated preemptors that repeat."""
NOW_MS = 1_795_219_200_000
RULES = RuleSet.load("kube-1.36", overrides={"candidates": {"minPercentage": 100}})


def median_ms(snapshot: Snapshot, *, by_class: bool) -> float:
    """Of pods of every kind, when as many of the same kinds were decided before."""
    seconds = []
    for i in range(KINDS + DECISIONS):
        start = time.process_time()
        decide(snapshot, RULES, f"urgent/urgent-{i:05d}", by_class=by_class)
        seconds.append(time.process_time() - start)
    return round(1000 * statistics.median(seconds[KINDS:]), 2)


def measure(nodes: int) -> dict[str, float]:
    objects = cluster(nodes=nodes, pending=KINDS + DECISIONS)
    snapshot = Snapshot.from_objects(objects, now_ms=NOW_MS)
    gc.collect()
    gc.freeze()
    return {
        "nodes": nodes,
        "pods": nodes * PODS_PER_NODE,
        "full_ms": median_ms(snapshot, by_class=False),
        "class_ms": median_ms(snapshot, by_class=True),
        "peak_mib": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=5000)
    print(json.dumps(measure(parser.parse_args().nodes)))


if __name__ == "__main__":
    main()
