"""A binary heap that moves its items exactly as Go's container/heap does.

What orders the items (shares, readiness) changes while they wait, and the heap is not repaired:
which item comes out next then depends on how the heap moves them. `heapq` moves them otherwise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Heap(Generic[T]):
    """Least item first; `less` is called anew at every comparison."""

    __slots__ = ("_items", "_less")

    def __init__(self, less: Callable[[T, T], bool]) -> None:
        self._items: list[T] = []
        self._less = less

    def __len__(self) -> int:
        return len(self._items)

    def push(self, item: T) -> None:
        items, less = self._items, self._less
        items.append(item)
        child = len(items) - 1
        while child > 0:
            parent = (child - 1) // 2
            if not less(items[child], items[parent]):
                break
            items[parent], items[child] = items[child], items[parent]
            child = parent

    def pop(self) -> T:
        """The item on top; IndexError where there is none."""
        items, less = self._items, self._less
        last = len(items) - 1
        items[0], items[last] = items[last], items[0]
        parent = 0
        while True:
            left = 2 * parent + 1
            if left >= last:
                break
            child = left
            right = left + 1
            if right < last and less(items[right], items[left]):
                child = right
            if not less(items[child], items[parent]):
                break
            items[parent], items[child] = items[child], items[parent]
            parent = child
        return items.pop()
