"""Columns of a decision that are looked up or computed when they are read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, TypeVar, overload

from policy.cluster import canonical

if TYPE_CHECKING:
    # Who reads decisions from a store needs no columns.
    from policy.cluster.tables import Names

_T = TypeVar("_T")

_FEW: Final = 500
"""Values that are written one by one."""


class Texts(Sequence[str]):
    """Names looked up in a table when they are read: most of them never are.

    Equal to any sequence of the same texts.
    """

    __slots__ = ("_encoded", "_found", "_index", "_table")

    def __init__(
        self, *, table: Names, index: Any, encoded: Callable[[], canonical.Fragment] | None = None
    ) -> None:
        """index: (n,) integer array into the table; neither may change afterwards.

        encoded: gives their canonical text, where that is kept for all who name the same.
        """
        self._table = table
        self._index = index
        self._encoded = encoded
        self._found: list[str] | None = None

    def canonical(self) -> Sequence[str] | canonical.Fragment:
        """What has their canonical text."""
        return self.texts() if self._encoded is None else self._encoded()

    def texts(self) -> Sequence[str]:
        if self._found is None:
            self._found = self._table[self._index].tolist()
        return self._found

    def __len__(self) -> int:
        return len(self._index)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[str]: ...
    def __getitem__(self, at: int | slice) -> str | Sequence[str]:
        if isinstance(at, slice):
            return Texts(table=self._table, index=self._index[at])
        return str(self._table[self._index[at]])

    def __iter__(self) -> Iterator[str]:
        return iter(self.texts())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(self.texts())

    def __reduce__(self) -> tuple[Any, ...]:
        # A whole cluster's table stays behind where the names travel.
        return tuple, (tuple(self),)


class Deferred(Sequence[_T]):
    """A column that is computed when it is read: of most decisions only the best is looked at.

    Equal to any sequence of the same values.
    """

    __slots__ = ("_compute", "_encoded", "_found", "_size", "_text")

    def __init__(
        self,
        size: int,
        compute: Callable[[], Sequence[_T]],
        *,
        encoded: Callable[[], canonical.Fragment] | None = None,
    ) -> None:
        """compute: gives `size` values; it is called once.

        encoded: gives their canonical text, where that is sooner had than by way of the values; it
        is called once.
        """
        self._size = size
        self._compute: Callable[[], Sequence[_T]] | None = compute
        self._encoded = encoded
        self._text: canonical.Fragment | None = None
        self._found: Sequence[_T] = ()

    def canonical(self) -> Sequence[_T] | canonical.Fragment:
        """What has their canonical text."""
        encode = self._encoded
        if encode is not None:
            self._text = encode()
            self._encoded = None
        return self.values() if self._text is None else self._text

    def values(self) -> Sequence[_T]:
        compute = self._compute
        if compute is not None:
            self._found = compute()
            self._compute = None
        return self._found

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, at: int) -> _T: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[_T]: ...
    def __getitem__(self, at: int | slice) -> _T | Sequence[_T]:
        return self.values()[at]

    def __iter__(self) -> Iterator[_T]:
        return iter(self.values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(self.values())

    def __reduce__(self) -> tuple[Any, ...]:
        # What it is computed from stays behind where the values travel.
        return tuple, (tuple(self),)


class Runs(Deferred[_T]):
    """A column of numbers in which equals mostly follow one another.

    Candidates stand in the order of what ranking compares, so most of its values come in few runs:
    the canonical text is put together run by run, and no value but those that are read is made.
    """

    __slots__ = ("_labels", "_numbers", "_read")

    def __init__(
        self,
        size: int,
        read: Callable[[], tuple[Any, Any]],
        *,
        labels: Sequence[_T] | None = None,
    ) -> None:
        """read: gives two arrays, (size,) integers and (size,) booleans, true where there is no
        number and the value is None; None for the second where there is one everywhere.

        labels: what the numbers stand for; themselves otherwise.
        """
        super().__init__(size, tuple)  # `values` does it
        self._read = read
        self._labels = labels
        self._numbers: tuple[Any, Any] | None = None

    def values(self) -> Sequence[_T]:
        # Given to `Deferred` as a function it would refer to itself: the snapshot that is read here
        # would stay until the collector looks for it.
        if self._compute is not None:
            self._found = self._some(slice(None))
            self._compute = None
        return self._found

    def canonical(self) -> Sequence[_T] | canonical.Fragment:
        if self._size <= _FEW:
            return self.values()  # and the encoder writes them sooner than runs are found
        numbers, missing = self._columns()
        ends = numbers[1:] != numbers[:-1]
        if missing is not None:
            ends |= missing[1:] != missing[:-1]
        last = ends.nonzero()[0]  # of each run but the last one
        if 4 * last.size > self._size:
            return canonical.fragment(self.values())
        starts = [0, *(last + 1).tolist()] if last.size else [0]
        runs = [
            (text + b",") * (end - start)
            for text, (start, end) in zip(
                canonical.encode_each(self._some(starts)),
                pairwise([*starts, self._size]),
                strict=True,
            )
        ]
        return canonical.Fragment(b"[" + b"".join(runs)[:-1] + b"]")

    def _columns(self) -> tuple[Any, Any]:
        if self._numbers is None:
            self._numbers = self._read()
        return self._numbers

    def _some(self, at: slice | list[int]) -> list[_T]:
        numbers, missing = self._columns()
        found: list[Any] = numbers[at].tolist()
        if self._labels is not None:
            found = [self._labels[number] for number in found]
        if missing is not None:
            for place in missing[at].nonzero()[0].tolist():
                found[place] = None
        return found

    @overload
    def __getitem__(self, at: int) -> _T: ...
    @overload
    def __getitem__(self, at: slice) -> Sequence[_T]: ...
    def __getitem__(self, at: int | slice) -> _T | Sequence[_T]:
        return self._some(at) if isinstance(at, slice) else self.values()[at]
