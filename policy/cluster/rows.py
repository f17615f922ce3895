"""What a row is of: pods and their keys, in lists that the snapshots of one descent share.

Most deltas touch a handful of many pods. Copying a list would touch every one of them, because
each copy counts as a reference; so both lists grow in place at their end, and a snapshot reads no
further than its own rows. Where two snapshots follow from one, only the first to grow does so in
place; the other gets a list of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, overload

import numpy as np

from policy.cluster.objects import Pod
from policy.cluster.tables import Names

_CHANGES: Final = 2048
"""Changed rows that lie beside a list of pods before a list of its own is cheaper."""

_LATEST: Final = 64
"""Changed rows that are copied with every delta, before they join the others."""

_PER_FREE: Final = 32
"""Rows for each of which a free one is made when the last free one is taken."""

_FEW_FREE: Final = 4
"""Free rows that are made beside these."""


class PodRows(Sequence["Pod | None"]):
    """Pods by row, None in the row of a removed pod."""

    __slots__ = ("_base", "_changes", "_latest", "_size")

    def __init__(
        self,
        base: list[Pod | None],
        changes: dict[int, Pod | None],
        latest: dict[int, Pod | None],
        *,
        size: int,
    ) -> None:
        """base: longer than `size` where a later snapshot has grown it.

        latest: these count before `changes`, which many snapshots share.
        """
        self._base = base
        self._changes = changes
        self._latest = latest
        self._size = size

    @classmethod
    def of(cls, pods: Iterable[Pod]) -> PodRows:
        base: list[Pod | None] = list(pods)
        return cls(base, {}, {}, size=len(base))

    def followed(self, changes: Mapping[int, Pod | None], added: Sequence[Pod | None]) -> PodRows:
        """The pods with some rows replaced, and others after the last one."""
        base, older, latest = self._base, self._changes, {**self._latest, **changes}
        if len(latest) > _LATEST:
            older, latest = {**older, **latest}, {}
        if len(older) > _CHANGES or (added and len(base) != self._size):
            base = list(PodRows(base, older, latest, size=self._size))
            older, latest = {}, {}
        base.extend(added)
        return PodRows(base, older, latest, size=self._size + len(added))

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, row: int) -> Pod | None: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[Pod | None]: ...
    def __getitem__(self, row: int | slice) -> Pod | None | Sequence[Pod | None]:
        if isinstance(row, slice):
            return list(self)[row]
        place = row if row >= 0 else row + self._size
        if not 0 <= place < self._size:
            raise IndexError(row)
        if place in self._latest:
            return self._latest[place]
        return self._changes[place] if place in self._changes else self._base[place]

    def some(self, rows: Iterable[int]) -> list[Pod | None]:
        """The pods of these rows, which are numbers from 0; quicker than one by one."""
        base, changes, latest = self._base, self._changes, self._latest
        return [
            latest[row] if row in latest else changes[row] if row in changes else base[row]
            for row in rows
        ]

    def __iter__(self) -> Iterator[Pod | None]:
        if not (self._changes or self._latest):
            return islice(self._base, self._size)
        pods = self._base[: self._size]
        for changes in (self._changes, self._latest):
            for row, pod in changes.items():
                pods[row] = pod
        return iter(pods)


class KeyRows:
    """Keys (namespace/name) by row and rows by key; a removed pod keeps its row for its return.

    The last rows may have no key yet: they are there for pods that come, so that not every one of
    them makes each column longer.
    """

    __slots__ = ("_rows", "keys", "used")

    def __init__(self, keys: Names, rows: dict[str, int], *, used: int) -> None:
        """keys, rows: shared with later snapshots, which have keys in rows that are free here.

        used: how many rows have a key.
        """
        self._rows = rows
        self.keys = keys
        self.used = used

    @classmethod
    def of(cls, keys: Names) -> KeyRows:
        return cls(keys, {key: i for i, key in enumerate(keys.tolist())}, used=keys.size)

    def row(self, key: str) -> int | None:
        """The row of a pod that is there or was."""
        found = self._rows.get(key)
        return found if found is not None and found < self.used else None

    def followed(self, added: Sequence[str]) -> KeyRows:
        """The keys with others in the rows behind the last one; none of them has a row."""
        keys, rows, used = self.keys, self._rows, self.used + len(added)
        if len(rows) != self.used:  # another snapshot has gone on from here
            keys = keys.copy()
            keys[self.used :] = ""
            rows = {key: row for key, row in rows.items() if row < self.used}
        if used > keys.size:
            keys = np.full(used + used // _PER_FREE + _FEW_FREE, "", dtype=np.object_)
            keys[: self.used] = self.keys[: self.used]
        for row, key in enumerate(added, start=self.used):
            keys[row] = key
            rows[key] = row
        return KeyRows(keys, rows, used=used)
