"""A binary heap that moves its items exactly as Go's container/heap does.

What orders the items (shares, readiness) changes while they wait, and the heap is not repaired:
which item comes out next then depends on how the heap moves them. `heapq` moves them otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Heap(Generic[T]):
    """Item with the least key first; the key of every item that is compared is read anew.

    Only an item that moves through the heap keeps its key on the way: nothing changes meanwhile.
    """

    __slots__ = ("_items", "_key")

    def __init__(self, key: Callable[[T], Any]) -> None:
        self._items: list[T] = []
        self._key = key

    def __len__(self) -> int:
        return len(self._items)

    def push(self, item: T) -> None:
        items, key = self._items, self._key
        child = len(items)
        items.append(item)
        if not child:
            return
        own = key(item)
        while child > 0:
            parent = (child - 1) // 2
            other = items[parent]
            if not own < key(other):
                break
            items[child] = other
            child = parent
        items[child] = item

    def pop(self) -> T:
        """The item on top; IndexError where there is none."""
        items, key = self._items, self._key
        found = items[0]
        item = items.pop()
        size = len(items)
        if not size:
            return found
        own = key(item)
        parent = 0
        while True:
            child = 2 * parent + 1
            if child >= size:
                break
            least = key(items[child])
            right = child + 1
            if right < size:
                other = key(items[right])
                if other < least:
                    child, least = right, other
            if not least < own:
                break
            items[parent] = items[child]
            parent = child
        items[parent] = item
        return found
