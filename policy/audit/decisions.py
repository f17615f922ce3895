"""The same work on many recorded decisions, sessions or cycles of groups, in contiguous parts.

Successive ones share the work of rebuilding their state, so a part is a stretch of them, and what a
worker has opened goes on from one stretch to the next.
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
Item = TypeVar("Item")
Opened = TypeVar("Opened")

SESSIONS: Final = 4
"""Sessions or cycles of groups that make a worker worth while."""

_SHORT: Final = 100
"""Decisions that do."""

_LONG: Final = 1000
"""Decisions after which results should be there: whoever waits sees how far it is."""

_PER_WORKER: Final = 4


@dataclass(frozen=True, slots=True)
class _Stretches:
    url: str
    opened: Callable[[Store], Any]
    work: Callable[[Any, Sequence[Any]], Iterator[Any]]

    @contextmanager
    def open(self) -> Iterator[Callable[[Sequence[Any]], list[Any]]]:
        with Store.open(self.url, read_only=True, create=False) as store:
            replayer = self.opened(store)
            yield lambda items: list(self.work(replayer, items))


def over(
    url: str,
    ids: Sequence[int],
    work: Callable[[Replayer, Sequence[int]], Iterator[Result]],
    workers: Workers = HERE,
) -> Iterator[Result]:
    """One result per decision, in their order. See `with_each`."""
    return with_each(url, ids, Replayer, work, workers, shortest=_SHORT)


def with_each(
    url: str,
    items: Sequence[Item],
    opened: Callable[[Store], Opened],
    work: Callable[[Opened, Sequence[Item]], Iterator[Result]],
    workers: Workers = HERE,
    *,
    shortest: int = SESSIONS,
) -> Iterator[Result]:
    """One result per item, in their order.

    url: of the database; each worker opens it for reading. opened: what a worker makes of it, for
    all of its stretches. work: one result per item that it gets. Both are picklable, and the items.
    shortest: items that make a worker worth while. Raises what the work raises, and PartsError.
    """
    parts = _stretches(items, workers, shortest)
    if len(parts) < 2 and not workers.dask:
        workers = HERE
    stretches = _Stretches(absolute_url(url), opened, work)
    yield from chain.from_iterable(map_parts(stretches, parts, workers))


def _stretches(items: Sequence[Item], workers: Workers, shortest: int) -> list[Sequence[Item]]:
    """Contiguous, none of them empty; longer ones where several workers do them."""
    length = shortest
    if not workers.here:
        # How many workers a cluster has is its own affair: many short parts serve any number.
        share = len(items) // (_PER_WORKER * workers.jobs) if not workers.dask else 0
        length = min(_LONG, max(shortest, share))
    return [items[start : start + length] for start in range(0, len(items), length)]
