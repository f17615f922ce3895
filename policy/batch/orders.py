"""Orders of jobs, queues and tasks: the keys that plugins give, one after the other.

Heaps compare often, and one comparison asks several plugins, so the keys of an item are kept until
something happens to it. A key may depend only on the item and its own tasks: on their statuses and
on what they were given or gave up. The session calls `forget` whenever a task of the item changes.
An order that depends on anything else gives `functools.cmp_to_key` of a function that compares two
items: it is called anew at every comparison.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar


class Indexed(Protocol):
    """Has a place among all items of its kind."""

    index: int


T = TypeVar("T", bound=Indexed)


class Order(Generic[T]):
    """The order of all items of a kind."""

    def __init__(self, keys: Iterable[Callable[[T], Any]], *, size: int) -> None:
        """keys: the first in which two items differ decides; size: number of all items."""
        self._keys = tuple(keys)
        self._known: list[tuple[Any, ...] | None] = [None] * size

    def key(self, item: T) -> tuple[Any, ...]:
        """Of two items the one with the smaller key comes first, as things are now."""
        found = self._known[item.index]
        if found is None:
            found = self._known[item.index] = tuple(key(item) for key in self._keys)
        return found

    def forget(self, item: T) -> None:
        """Something that a key may depend on has happened to the item."""
        self._known[item.index] = None
