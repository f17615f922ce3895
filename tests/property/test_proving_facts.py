"""Law: what proofs take for granted about pods holds for the pods of every snapshot.

Facts about nominations and the size of the cluster are not among the variables of one pod, so they
are not looked at here.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable

import numpy as np
import pytest
import z3
from hypothesis import HealthCheck, given, settings

from policy.preemption.denials import judged
from policy.proving.world import FACTS
from policy.rules import RuleSet
from tests.support.clusters import Example, clusters
from tests.support.proving import literal, plain, raw

RULES = RuleSet.load("kube-1.35")
PODS = int(os.environ.get("POLICY_PROVING_PODS", "10000"))


def violations(example: Example) -> tuple[int, list[tuple[tuple[str, ...], dict[str, object]]]]:
    """How many pods were looked at, and the facts that do not hold, with the values."""
    snapshot = example.snapshot()
    waiting = [snapshot.keys[i] for i in np.flatnonzero(snapshot.node < 0).tolist()]
    if not waiting:
        return 0, []
    _, columns = judged(snapshot, RULES, waiting[0])
    running = columns.take(np.flatnonzero(snapshot.node >= 0))
    found = []
    for needs, fact in FACTS:
        if any(name not in columns.values for name in needs):
            continue
        values = {name: raw(running, name) for name in needs}
        found += [
            (needs, dict(zip(needs, row, strict=True)))
            for row in set(zip(*values.values(), strict=True))
            # Without figures of the past a variable can have no value: then there is no fact.
            if None not in row and not holds(fact, row)
        ]
    return running.size, found


@functools.cache
def holds(fact: Callable[..., z3.BoolRef], values: tuple[object, ...]) -> object:
    """The value of a fact for these values; the same ones come again in many snapshots."""
    return plain(fact(*map(literal, values)))


@pytest.mark.slow
def test_facts_hold_for_the_pods_of_random_snapshots() -> None:
    """10,000 pods, each with the preemptor of its snapshot."""
    pods = 0

    @settings(max_examples=PODS // 4, deadline=None, suppress_health_check=list(HealthCheck))
    @given(example=clusters())
    def law(example: Example) -> None:
        nonlocal pods
        seen, found = violations(example)
        assert found == []
        pods += seen

    law()
    assert pods >= PODS
