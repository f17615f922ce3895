"""Sums over the pods of each node at once: segments of a column, one after the other."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from policy.cluster.snapshot import Rows
from policy.cluster.tables import Bools, Ints

SAFE: Final = 2**62
"""Sums below stay far enough from the end of int64 to be added to another one and compared."""


def sums_safely(values: Ints) -> bool:
    """Is every sum over some of the values below `SAFE`, whichever they are? numpy wraps silently.

    values: (rows,).
    """
    if not values.size:
        return True
    # A bound without rounding first: it settles all but the largest clusters.
    largest = max(abs(int(values.min())), abs(int(values.max())))
    return largest * values.size < SAFE or float(np.abs(values, dtype=np.float64).sum()) < SAFE


def starts_of(counts: Rows) -> Rows:
    """Where each segment begins; shape (segments,)."""
    return np.asarray(counts.cumsum() - counts)


def gathered(offsets: Rows, segments: Rows) -> tuple[Rows, Rows]:
    """Positions of everything in some segments, one after the other, and their offsets there.

    offsets: (all segments + 1,) where each begins and the last one ends.
    """
    starts = offsets[segments]
    counts = offsets[segments + 1] - starts
    new = np.zeros(segments.size + 1, dtype=np.int64)
    counts.cumsum(out=new[1:])
    return np.arange(new[-1]) + (starts - new[:-1]).repeat(counts), new


def segment_sums(values: Ints | Bools, counts: Rows) -> Ints:
    """Sum of each segment, 0 of an empty one; shape (segments,).

    values: (rows,), the segments side by side; counts: (segments,) their lengths. A sum that
    int64 does not hold wraps: it may be taken from another that holds the same values, but not be
    compared (`saturated_sums`).
    """
    if values.dtype == np.bool_ and not values.any():
        return np.zeros(counts.size, dtype=np.int64)
    # `reduceat` takes an empty segment for the value that follows it.
    some = counts.nonzero()[0]
    if some.size and some.size == counts.size:
        return np.asarray(np.add.reduceat(values, starts_of(counts), dtype=np.int64))
    sums: NDArray[np.int64] = np.zeros(counts.size, dtype=np.int64)
    if some.size:
        sums[some] = np.add.reduceat(values, starts_of(counts)[some], dtype=np.int64)
    return sums


def saturated_sums(values: Ints, counts: Rows) -> Ints:
    """`segment_sums` to compare: what int64 does not hold counts as its largest or smallest."""
    if sums_safely(values):
        return segment_sums(values, counts)
    ends = counts.cumsum().tolist()
    exact = values.tolist()
    limits = np.iinfo(np.int64)
    return np.array(
        [
            max(int(limits.min), min(int(limits.max), sum(exact[end - count : end])))
            for end, count in zip(ends, counts.tolist(), strict=True)
        ],
        dtype=np.int64,
    )
