"""What expression rules on victims cost: a decision with five of them against the default rules.

    python -m benchmarks.expressions

The cluster of `clusters.py`, all potential nodes examined; each decision is made on the state that
the one before it left, so what changed has to be evaluated again. Decisions of the rule sets take
turns, so that a busy machine slows all of them down alike. Figures are medians.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from typing import Any

from benchmarks.clusters import PODS_PER_NODE, cluster
from policy.cluster.snapshot import Snapshot
from policy.preemption.decide import decide
from policy.rules import RuleSet
from policy.scheduling.effects import changes_of

NOW_MS = 1_795_219_200_000
ALL_NODES = {"candidates": {"minPercentage": 100}}

FIVE = {
    "fresh-gold": "victim.labels['tier'] == 'gold' && victim.runtimeSeconds < 600",
    "system": "victim.namespace in ['kube-system', 'kube-public']",
    "resting": "history.preemptedCount(victim.workload, duration('1h')) > 2",
    "large": "victim.cpuMilli * 2 > preemptor.cpuMilli * 9",
    "daemons": "victim.owner.startsWith('DaemonSet/')",
}
"""Labels and times, membership, history, arithmetic, and text."""


def rule_sets() -> dict[str, RuleSet]:
    """The default rules, the default rules with five more, and the strictest shipped overlay."""
    inserted = [
        {"at": "start", "rule": {"id": name, "when": when, "verdict": "deny"}}
        for name, when in FIVE.items()
    ]
    five = {**ALL_NODES, "victims": {"eligible": {"insert": inserted}}}
    return {
        "kube-1.35": RuleSet.load("kube-1.35", overrides=ALL_NODES),
        "five rules": RuleSet.load("kube-1.35", overrides=five),
        "environments/prod": RuleSet.load("environments/prod", overrides=ALL_NODES),
    }


def history(nodes: int) -> dict[str, dict[str, int]]:
    """Figures for a twentieth of the workloads, as after an hour full of preemptions."""
    hit = {
        f"team-{namespace:04d}/ReplicaSet/app-{namespace % 20:02d}": 1 + namespace % 4
        for namespace in range(nodes // 25)
    }
    lost = {f"team-{namespace:04d}": namespace % 25 for namespace in range(nodes // 25)}
    return {
        "preemptedCount/3600": hit,
        "preemptedCount/900": hit,
        "namespacePreemptedCount/3600": lost,
        "namespacePreemptions/3600": {},
    }


def measure(nodes: int, decisions: int) -> dict[str, list[float]]:
    """Seconds of each decision, by rule set."""
    objects = list(cluster(nodes=nodes, pending=decisions))
    past = history(nodes)
    sets = rule_sets()
    snapshots = {name: Snapshot.from_objects(objects, now_ms=NOW_MS, history=past) for name in sets}
    taken: dict[str, list[float]] = {name: [] for name in sets}
    gc.freeze()
    for i in range(decisions):
        for name, rules in sets.items():
            snapshot = snapshots[name].at(NOW_MS + i, history=past)
            start = time.process_time()
            decision = decide(snapshot, rules, f"urgent/urgent-{i:05d}")
            taken[name].append(time.process_time() - start)
            snapshots[name] = snapshot.apply(changes_of(snapshot, decision))
    return taken


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--decisions", type=int, default=40)
    arguments: Any = parser.parse_args()
    taken = measure(arguments.nodes, arguments.decisions)
    medians = {name: statistics.median(seconds[5:]) for name, seconds in taken.items()}
    base = medians["kube-1.35"]
    print(f"{arguments.nodes} nodes x {PODS_PER_NODE} pods, {arguments.decisions} decisions each")
    for name, seconds in medians.items():
        print(f"{name:20} {1000 * seconds:8.1f} ms {seconds / base:6.2f} x")


if __name__ == "__main__":
    main()
