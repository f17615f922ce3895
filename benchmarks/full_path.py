"""Decisions in which pods look at each other, or at history: the way that keeps no class.

    python -m benchmarks.full_path

The cluster of `clusters.py`, all potential nodes examined; the pods that preempt ask for a topology
spread, or for pods of another app in their zone, or are decided under rules with `history.*`. Each
decision is made on the state that the one before it left. Figures are medians of the CPU seconds of
the process; the marks are those of commit 50dec3a, measured in turns with this.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import msgspec

from benchmarks.clusters import cluster
from benchmarks.expressions import ALL_NODES, NOW_MS, history
from policy.cluster.objects import (
    Affinity,
    ClusterObject,
    LabelSelector,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    TopologySpreadConstraint,
)
from policy.cluster.snapshot import Snapshot
from policy.preemption.decide import decide
from policy.rules import RuleSet
from policy.scheduling.effects import changes_of

SAME: Final = LabelSelector(match_labels={"app": "urgent"})


def _with(pod: Pod, **spec: Any) -> Pod:
    return msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, **spec))


def spread(pod: Pod) -> Pod:
    """At most one more of its app in a zone than in the others."""
    constraint = TopologySpreadConstraint(
        max_skew=1, topology_key="zone", when_unsatisfiable="DoNotSchedule", label_selector=SAME
    )
    return _with(pod, topology_spread_constraints=[constraint])


def affinity(pod: Pod) -> Pod:
    """In a zone with pods of another app, whatever their namespace; victims are some of them."""
    app = LabelSelector(match_labels={"app": "app-03"})
    anywhere = LabelSelector()
    near = PodAffinityTerm(topology_key="zone", label_selector=app, namespace_selector=anywhere)
    return _with(pod, affinity=Affinity(pod_affinity=PodAffinity(required=[near])))


def history_rules() -> RuleSet:
    """The default rules, and two more that spare what was hit of late."""
    inserted = [
        {
            "at": "start",
            "rule": {
                "id": "resting",
                "when": "history.preemptedCount(victim.workload, duration('1h')) > 2",
                "verdict": "deny",
            },
        },
        {
            "at": "start",
            "rule": {
                "id": "hit-namespace",
                "when": "history.namespacePreemptedCount(victim.namespace, duration('1h')) > 20",
                "verdict": "deny",
            },
        },
    ]
    overrides = {**ALL_NODES, "victims": {"eligible": {"insert": inserted}}}
    return RuleSet.load("kube-1.35", overrides=overrides)


def plain(pod: Pod) -> Pod:
    """As it is."""
    return pod


CASES: Final[dict[str, tuple[Callable[[Pod], Pod], Callable[[], RuleSet]]]] = {
    "history": (plain, history_rules),
    "spread": (spread, lambda: RuleSet.load("kube-1.35", overrides=ALL_NODES)),
    "affinity": (affinity, lambda: RuleSet.load("kube-1.35", overrides=ALL_NODES)),
}


def _objects(nodes: int, pending: int, shape: Callable[[Pod], Pod]) -> Iterator[ClusterObject]:
    for obj in cluster(nodes=nodes, pending=pending):
        yield shape(obj) if isinstance(obj, Pod) and not obj.spec.node_name else obj


def measure(nodes: int, decisions: int) -> dict[str, float]:
    """Milliseconds of a decision, by case."""
    found = {}
    for name, (shape, rule_set) in CASES.items():
        rules, past = rule_set(), history(nodes)
        objects = list(_objects(nodes, decisions, shape))
        snapshot = Snapshot.from_objects(objects, now_ms=NOW_MS, history=past)
        taken = []
        gc.freeze()
        for i in range(decisions):
            snapshot = snapshot.at(NOW_MS + i, history=past)
            start = time.process_time()
            decision = decide(snapshot, rules, f"urgent/urgent-{i:05d}")
            taken.append(time.process_time() - start)
            if not decision.victims:
                raise SystemExit(f"{name}: a decision evicts nothing: {decision.outcome}")
            snapshot = snapshot.apply(changes_of(snapshot, decision))
        found[name] = 1000 * statistics.median(taken[5:])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--decisions", type=int, default=40)
    options = parser.parse_args()
    for name, taken in measure(options.nodes, options.decisions).items():
        print(f"{name:12} {taken:8.2f} ms")


if __name__ == "__main__":
    main()
