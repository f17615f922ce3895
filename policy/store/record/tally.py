"""What an import, and the recorded watches that came with it, made of each object."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

from policy.cluster.digest import Change
from policy.store.model.state import ImportCounts
from policy.store.observed import FollowedRevision

Fate = Literal["added", "changed", "unchanged", "removed"]


class Tally:
    """Every object stands in it once, however many changes there were of it.

    Added is what was not there before and is there afterwards; what came and went is not in it.
    """

    def __init__(self) -> None:
        self._fates: defaultdict[str, dict[str, Fate]] = defaultdict(dict)

    def imported(self, kind: str, fate: Fate, keys: Iterable[str]) -> None:
        """What the list of an import made of objects."""
        self._fates[kind].update(dict.fromkeys(keys, fate))

    def followed(
        self, segments: Sequence[Sequence[Change]], written: Sequence[FollowedRevision]
    ) -> None:
        """What watches changed afterwards: segments as they were read, and as they were written."""
        for revision in written:
            for kind, key, obj in revision.changes:
                fates = self._fates[kind]
                new = (kind, key) in revision.new
                before = fates.get(key, "added" if new else "changed")
                if obj is not None:
                    fates[key] = "added" if before == "added" else "changed"
                elif before == "added":
                    del fates[key]
                else:
                    fates[key] = "removed"
        last = {(kind, key): obj for one in segments for kind, key, obj in one}
        for (kind, key), obj in last.items():
            if obj is not None:
                self._fates[kind].setdefault(key, "unchanged")

    def counts(self) -> Mapping[str, ImportCounts]:
        """By kind, also of kinds of which nothing was there and nothing came."""
        return {
            kind: ImportCounts(**Counter[str](fates.values()))
            for kind, fates in sorted(self._fates.items())
        }
