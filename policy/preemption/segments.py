"""Sums over the pods of each node at once: segments of a column, one after the other."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from policy.cluster.snapshot import Rows
from policy.cluster.tables import Bools, Ints


def starts_of(counts: Rows) -> Rows:
    """Where each segment begins; shape (segments,)."""
    return np.asarray(np.cumsum(counts) - counts)


def segment_sums(values: Ints | Bools, counts: Rows) -> Ints:
    """Sum of each segment, 0 of an empty one; shape (segments,).

    values: (rows,), the segments side by side; counts: (segments,) their lengths.
    """
    sums: NDArray[np.int64] = np.zeros(counts.size, dtype=np.int64)
    # `reduceat` takes an empty segment for the value that follows it.
    some = np.flatnonzero(counts)
    if some.size:
        sums[some] = np.add.reduceat(values, starts_of(counts)[some], dtype=np.int64)
    return sums
