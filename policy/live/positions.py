"""How far each kind of a followed cluster was read, and what was not seen in between."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from policy.live.resources import EVENT
from policy.live.watching import Listed
from policy.store.record.following import Gap

_CATCH_UP_MS: Final = 10_000
"""A watch that has said nothing for so long, as one that was broken, or whose server stood still,
may tell first what happened meanwhile; what it says so much later is of its own time."""
_KEEP_MS: Final = 60_000
"""So often positions are kept where nothing else is written."""


class Positions:
    """resourceVersions up to which everything is written, by kind."""

    def __init__(self) -> None:
        self.read: dict[str, int] = {}
        self._kept: dict[str, int] = {}  # the same, as the database has it
        self._kept_ms = 0
        self._lost: dict[str, int] = {}  # those of kinds that are listed anew at the start
        self._seen_ms: dict[str, int] = {}  # when each kind was heard last
        self._reached_ms: dict[str, int] = {}  # when it was heard of that which is read
        self._silent_ms: dict[str, tuple[int, int]] = {}  # beginning and end of the last silence

    def begin(self, stored: Mapping[str, int], *, newest: int) -> None:
        """What is known from before; newest: the version at which the server is."""
        if stored and newest < max(stored.values()):
            # Restored from a backup: a watch from a version that is still to come is silent.
            self._lost, stored = dict(stored), {}
        self.read = dict(stored)
        self._kept = dict(stored)

    def heard(self, kind: str, at_ms: int) -> None:
        self._seen_ms[kind] = at_ms

    def reached(self, kind: str, version: int, at_ms: int) -> None:
        """A watch had come so far at that time; what comes again is no step back."""
        self.read[kind] = max(self.read.get(kind, 0), version)
        last = self._reached_ms.get(kind, 0)
        if not 0 <= at_ms - last < _CATCH_UP_MS:
            self._silent_ms[kind] = last, at_ms
        self._reached_ms[kind] = at_ms

    def reached_ms(self, kind: str, *, now_ms: int) -> int:
        """Until when all that happened to the kind is read; 0 where no watch has said so yet."""
        began, ended = self._silent_ms.get(kind, (0, 0))
        if 0 <= now_ms - ended < _CATCH_UP_MS:
            return min(began, now_ms)
        # What was heard before the clock was set back seems to come from the future.
        return min(self._reached_ms.get(kind, 0), now_ms)

    def listed_again_at_start(self, kind: str) -> None:
        """A kind is listed that was known: the time since is a gap."""
        if kind in self.read:
            self._lost[kind] = self.read[kind]

    def gaps_at_start(self, lists: Sequence[Listed]) -> list[Gap]:
        """The gaps of those that were known; they are reported once."""
        back = "the server's resourceVersions have gone back"
        gaps = [
            self.gap(one, one.reason or back, self._lost[one.kind])
            for one in lists
            if one.kind in self._lost
        ]
        self._lost = {}
        return gaps

    def gap(self, news: Listed, reason: str, since_version: int) -> Gap:
        return Gap(
            kind=news.kind,
            reason=reason,
            since_ms=self._seen_ms.get(news.kind),
            until_ms=news.received_ms,
            since_version=since_version,
            until_version=news.version,
        )

    # --- in the database --------------------------------------------------------------------------

    @property
    def unkept(self) -> bool:
        return self.read != self._kept

    def due(self, now_ms: int) -> bool:
        """Whether it is time to keep them although nothing else is written."""
        return self.unkept and not 0 <= now_ms - self._kept_ms < _KEEP_MS

    def kept(self, now_ms: int) -> None:
        self._kept, self._kept_ms = dict(self.read), now_ms

    def keep_soon(self) -> None:
        """What held them back is gone."""
        self._kept, self._kept_ms = {}, 0

    def safe(self, oldest_event: int | None) -> dict[str, int]:
        """Those to keep: events that no observation has taken yet must come again after a stop."""
        positions = dict(self.read)
        if oldest_event and EVENT in positions:
            positions[EVENT] = min(positions[EVENT], oldest_event - 1)
        return {kind: version for kind, version in positions.items() if version > 0}
