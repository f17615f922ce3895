"""The order in which Go's `sort.Slice` leaves equal elements (Go 1.19 and later).

Pattern-defeating quicksort (Orson Peters, 2021) as Go runs it: insertion sort up to 12 elements,
pivots by median of three or of nine, and a xorshift seeded by the length where a pattern has to be
broken. It is not stable, but it is deterministic: where the recordings come from equal pods in a
known order, this tells the order in which the real scheduler looked at them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, Generic, TypeVar

T = TypeVar("T")

_INSERTION: Final = 12
_NINTHER: Final = 50
_SHIFTING: Final = 50
_STEPS: Final = 5
_ALL_SWAPPED: Final = 12
_WORD: Final = 2**64 - 1


def go_sorted(items: Iterable[T], less: Callable[[T, T], bool]) -> list[T]:
    """The items as `sort.Slice` leaves them; `less` need not be a consistent order."""
    sort = _Sort(list(items), less)
    sort.quick(0, len(sort.items), len(sort.items).bit_length())
    return sort.items


class _Sort(Generic[T]):
    def __init__(self, items: list[T], less: Callable[[T, T], bool]) -> None:
        self.items = items
        self._compare = less

    def _less(self, i: int, j: int) -> bool:
        return self._compare(self.items[i], self.items[j])

    def _swap(self, i: int, j: int) -> None:
        self.items[i], self.items[j] = self.items[j], self.items[i]

    def quick(self, low: int, high: int, limit: int) -> None:
        balanced = partitioned = True
        while high - low > _INSERTION:
            length = high - low
            if limit == 0:
                self._heap(low, high)
                return
            if not balanced:
                self._break_patterns(low, high)
                limit -= 1
            pivot, swaps = self._pivot(low, high)
            if swaps == _ALL_SWAPPED:
                self.items[low:high] = self.items[low:high][::-1]
                pivot = (high - 1) - (pivot - low)
                swaps = 0
            if balanced and partitioned and swaps == 0 and self._nearly_sorted(low, high):
                return
            if low > 0 and not self._less(low - 1, pivot):
                low = self._skip_equal(low, high, pivot)
                continue
            middle, partitioned = self._partition(low, high, pivot)
            left, right = middle - low, high - middle
            balanced = min(left, right) >= length // 8
            if left < right:
                self.quick(low, middle, limit)
                low = middle + 1
            else:
                self.quick(middle + 1, high, limit)
                high = middle
        self._insertion(low, high)

    def _insertion(self, low: int, high: int) -> None:
        for i in range(low + 1, high):
            j = i
            while j > low and self._less(j, j - 1):
                self._swap(j, j - 1)
                j -= 1

    def _heap(self, low: int, high: int) -> None:
        size = high - low
        for root in range((size - 1) // 2, -1, -1):
            self._sift(root, size, low)
        for end in range(size - 1, -1, -1):
            self._swap(low, low + end)
            self._sift(0, end, low)

    def _sift(self, root: int, size: int, base: int) -> None:
        while (child := 2 * root + 1) < size:
            if child + 1 < size and self._less(base + child, base + child + 1):
                child += 1
            if not self._less(base + root, base + child):
                return
            self._swap(base + root, base + child)
            root = child

    def _break_patterns(self, low: int, high: int) -> None:
        length = high - low
        if length < 8:
            return
        state = length
        mask = (1 << length.bit_length()) - 1
        at = low + length // 4 * 2 - 1
        for i in range(3):
            state ^= state << 13 & _WORD
            state ^= state >> 7
            state ^= state << 17 & _WORD
            other = state & mask
            if other >= length:
                other -= length
            self._swap(at - 1 + i, low + other)

    def _pivot(self, low: int, high: int) -> tuple[int, int]:
        """Position of the pivot, and how often the median had to swap."""
        length = high - low
        quarter = length // 4
        i, j, k = low + quarter, low + quarter * 2, low + quarter * 3
        swaps = 0
        if length >= 8:
            if length >= _NINTHER:
                i, swaps = self._median(i - 1, i, i + 1, swaps)
                j, swaps = self._median(j - 1, j, j + 1, swaps)
                k, swaps = self._median(k - 1, k, k + 1, swaps)
            j, swaps = self._median(i, j, k, swaps)
        return j, swaps

    def _median(self, a: int, b: int, c: int, swaps: int) -> tuple[int, int]:
        if self._less(b, a):
            a, b, swaps = b, a, swaps + 1
        if self._less(c, b):
            b, c, swaps = c, b, swaps + 1
        if self._less(b, a):
            a, b, swaps = b, a, swaps + 1
        return b, swaps

    def _nearly_sorted(self, low: int, high: int) -> bool:
        i = low + 1
        for _ in range(_STEPS):
            while i < high and not self._less(i, i - 1):
                i += 1
            if i == high:
                return True
            if high - low < _SHIFTING:
                return False
            self._swap(i, i - 1)
            if i - low >= 2:
                for j in range(i - 1, 0, -1):
                    if not self._less(j, j - 1):
                        break
                    self._swap(j, j - 1)
            if high - i >= 2:
                for j in range(i + 1, high):
                    if not self._less(j, j - 1):
                        break
                    self._swap(j, j - 1)
        return False

    def _skip_equal(self, low: int, high: int, pivot: int) -> int:
        self._swap(low, pivot)
        i, j = low + 1, high - 1
        while True:
            while i <= j and not self._less(low, i):
                i += 1
            while i <= j and self._less(low, j):
                j -= 1
            if i > j:
                return i
            self._swap(i, j)
            i, j = i + 1, j - 1

    def _partition(self, low: int, high: int, pivot: int) -> tuple[int, bool]:
        self._swap(low, pivot)
        i, j = low + 1, high - 1
        first = True
        while True:
            while i <= j and self._less(i, low):
                i += 1
            while i <= j and not self._less(j, low):
                j -= 1
            if i > j:
                self._swap(j, low)
                return j, first
            first = False
            self._swap(i, j)
            i, j = i + 1, j - 1
