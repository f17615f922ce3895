"""Running totals find the same victims as putting pods back one by one does."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from policy.preemption import running_totals
from policy.preemption.running_totals import RunningTotals

Node = tuple[list[tuple[int, int]], tuple[int, int]]
"""The demands of a node's pods in two loads, in the order of the reprieve, and the slack."""

amounts = st.integers(0, 6)
pods = st.lists(st.tuples(amounts, amounts), max_size=9)
nodes = st.tuples(pods, st.tuples(st.integers(0, 20), st.integers(0, 20)))


def one_by_one(cluster: list[Node], active: list[int]) -> list[int]:
    """Positions of the pods that cannot come back."""
    evicted, position = [], 0
    for i, (demands, slack) in enumerate(cluster):
        left = list(slack)
        for demand in demands:
            if all(want <= room for want, room in zip(demand, left, strict=True)):
                left = [room - want for want, room in zip(demand, left, strict=True)]
            elif i in active:
                evicted.append(position)
            position += 1
    return evicted


@settings(max_examples=600, deadline=None)
@given(cluster=st.lists(nodes, max_size=6), out=st.sets(st.integers(0, 5)))
@example(cluster=[], out=set())
@example(cluster=[([], (0, 0)), ([(1, 0)], (0, 0)), ([], (3, 3))], out=set())
# Behind a pod that does not fit: small ones, one that fits no more after them, and a smaller one.
@example(cluster=[([(4, 0), (9, 0), (2, 0), (2, 0), (3, 0), (1, 0)], (9, 1))], out=set())
# Pods that want nothing of the load that is used up.
@example(cluster=[([(3, 1), (0, 1), (1, 0), (0, 1)], (2, 2)), ([(0, 0), (0, 7)], (0, 6))], out={1})
def test_who_cannot_come_back(cluster: list[Node], out: set[int]) -> None:
    """On every node that takes part and no other; in rounds, and one by one behind the first."""
    demand = np.array([d for demands, _ in cluster for d in demands], dtype=np.int64).reshape(-1, 2)
    counts = np.array([len(demands) for demands, _ in cluster], dtype=np.int64)
    slack = np.array([slack for _, slack in cluster], dtype=np.int64).reshape(-1, 2)
    active = [i for i in range(len(cluster)) if i not in out]
    at = np.array(active, dtype=np.int64)
    on = np.repeat(np.arange(len(cluster)), counts)
    gone = one_by_one(cluster, active)
    # Also kept, in numbers that int32 holds once they are shifted, and in others; the room that is
    # over after the shift is no pod's.
    for times, over, kept in ((1, 0, False), (1, 0, True), (2**30, 2**30 - 1, True)):
        totals = RunningTotals.of(demand * times, counts, kept=kept)
        assert totals.limited
        for few in (0, running_totals.FEW):
            with pytest.MonkeyPatch.context() as patched:
                patched.setattr(running_totals, "FEW", few)
                evicted, nodes_of = totals.evicted(slack[at] * times + over, at)
            assert (evicted.tolist(), nodes_of.tolist()) == (gone, on[gone].tolist())


def test_totals_that_int32_does_not_hold() -> None:
    """They are kept as they are."""
    demand = np.array([[2**40 + 1], [3], [2**40]], dtype=np.int64)
    totals = RunningTotals.of(demand, np.array([2, 1]), kept=True)
    room = np.array([[2**40 + 3], [2**40]], dtype=np.int64)
    evicted, nodes_of = totals.evicted(room, np.arange(2))
    assert (evicted.tolist(), nodes_of.tolist()) == ([1], [0])


def test_sums_that_int64_does_not_hold_are_not_relied_on() -> None:
    """Nor are demands that lower a load: pods are then put back one by one."""
    one = np.array([1], dtype=np.int64)
    kinds = [[[2**62], [2**62]], [[3], [-1]], [[3], [0]]]
    found = [RunningTotals.of(np.array(k, dtype=np.int64), one * 2).limited for k in kinds]
    assert found == [False, False, True]
