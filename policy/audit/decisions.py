"""The same work on many recorded decisions, in contiguous parts.

Successive decisions share the work of rebuilding their state, so a part is a stretch of them, and
what a worker has opened goes on from one stretch to the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any, Final, TypeVar

from policy.audit.replay import Replayer
from policy.parts import HERE, Workers, map_parts
from policy.store import Store
from policy.store.connection import absolute_url

Result = TypeVar("Result")

_SHORT: Final = 100
"""Decisions that make a worker worth while."""

_LONG: Final = 1000
"""Decisions after which results should be there: whoever waits sees how far it is."""

_PER_WORKER: Final = 4


@dataclass(frozen=True, slots=True)
class _Stretches:
    url: str
    work: Callable[[Replayer, Sequence[int]], Iterator[Any]]

    @contextmanager
    def open(self) -> Iterator[Callable[[Sequence[int]], list[Any]]]:
        with Store.open(self.url, read_only=True, create=False) as store:
            replayer = Replayer(store)
            yield lambda ids: list(self.work(replayer, ids))


def over(
    url: str,
    ids: Sequence[int],
    work: Callable[[Replayer, Sequence[int]], Iterator[Result]],
    workers: Workers = HERE,
) -> Iterator[Result]:
    """One result per decision, in their order.

    url: of the database; each worker opens it for reading. work: picklable, one result per number
    that it gets. Raises what the work raises, and PartsError.
    """
    parts = _stretches(ids, workers)
    if len(parts) < 2 and not workers.dask:
        workers = HERE
    stretches = _Stretches(absolute_url(url), work)
    yield from chain.from_iterable(map_parts(stretches, parts, workers))


def _stretches(ids: Sequence[int], workers: Workers) -> list[Sequence[int]]:
    """Contiguous, none of them empty; longer ones where several workers do them."""
    length = _SHORT
    if not workers.here:
        # How many workers a cluster has is its own affair: many short parts serve any number.
        share = len(ids) // (_PER_WORKER * workers.jobs) if not workers.dask else 0
        length = min(_LONG, max(_SHORT, share))
    return [ids[start : start + length] for start in range(0, len(ids), length)]
