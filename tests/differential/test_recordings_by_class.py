"""Recorded clusters decided by class: the decision is the one of the full path, byte for byte.

Conformance compares the full path with the real schedulers; this carries it over to the path that a
running scheduler takes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from policy.conformance import scenario
from policy.conformance.compare import NOW, decided
from policy.face import Snapshot
from policy.preemption.decide import decide
from policy.rules.ruleset import RuleSet
from tests.support.builders import NOW_MS, a_node, a_pod, objects

RECORDINGS = Path(__file__).parents[1] / "data" / "conformance"
GENERATIONS = ("kube-1.14", "kube-1.20", "kube-1.27", "kube-1.28", "kube-1.35", "kube-1.36")
EVERY = 4
"""A quarter of each recording: decisions are made three times here."""


@pytest.mark.parametrize("generation", GENERATIONS)
def test_a_recorded_cluster_is_decided_by_class_as_by_the_full_path(generation: str) -> None:
    """The first pod fills the class, the second reads it; both are the decision made anew."""
    rules = RuleSet.load(generation)
    looked_at, outcomes = 0, set()
    for number, line in scenario.lines(RECORDINGS / f"{generation}.jsonl.gz"):
        if number % EVERY:
            continue
        recorded = scenario.parse(line)
        snapshot = Snapshot.from_manifests(recorded.objects, now=NOW, admission=False)
        expected = decided(recorded, rules)
        filled, read = (decide(snapshot, rules, recorded.pod, by_class=True) for _ in range(2))
        assert (filled.canonical, read.canonical) == (expected.canonical, expected.canonical)
        looked_at, outcomes = looked_at + 1, outcomes | {expected.outcome}
    assert looked_at >= 20
    assert len(outcomes) > 1


def test_a_score_that_32_bits_do_not_hold_is_kept_whole() -> None:
    """Requests of a node whose sum wraps give a score of ten digits and more, which decides."""
    rules = RuleSet.load("kube-1.36")
    huge = [
        a_pod(f"huge-{i}").cpu("500m").memory(size).priority(1)
        for i, size in enumerate((2**62, 3 * 2**61))
    ]
    found = objects(
        a_node("n1").cpu(4).memory("16Gi"),
        a_node("n2").cpu(4).memory("100Mi").running(*huge),
        a_node("n3").cpu(6).memory("8Gi"),
        a_pod("new").cpu(1).priority(5),
    )
    snapshot = Snapshot.from_objects(found, now_ms=NOW_MS)
    by_class = decide(snapshot, rules, "default/new", by_class=True)
    assert by_class.node == "n2"
    assert ("least-allocated", 1, 43980465086) in [tuple(one) for one in by_class.trace.scores]
    assert by_class.canonical == decide(snapshot.made_anew(), rules, "default/new").canonical
