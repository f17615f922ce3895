"""Numbers of the record, as a token sees them that is limited to namespaces.

Decisions, sessions and observed preemptions are numbered one after the other for everybody: the
distance between two of a viewer's own tells how many others were recorded between them. Such a
viewer is shown another number for each, by a secret permutation, and finds it by that one only.

The permutation is a Feistel network (Luby and Rackoff 1988) of ten rounds, as many as FF1 has (NIST
SP 800-38G), over keyed BLAKE2b (RFC 7693). So a number stays a number, which addresses, SQL and
the ids of events can hold, and none has to be kept.
"""

from __future__ import annotations

from enum import StrEnum
from hashlib import blake2b
from typing import Final

_HALF: Final = 26
_MASK: Final = (1 << _HALF) - 1
_ROUNDS: Final = 10
_FIRST: Final = 1 << 2 * _HALF
"""The least number that is shown; no number of the record is as large. The largest is less than
2^53, as JSON's integers are to be (RFC 8259, section 6)."""


class Numbered(StrEnum):
    """What has numbers of its own. Values are part of the permutation and never renamed."""

    DECISION = "decision"
    SESSION = "session"  # batch sessions and cycles of pod groups
    OBSERVATION = "observation"
    REVISION = "revision"  # of the state of a cluster, counted in each cluster apart


class Numbers:
    """The permutation of a service: that of a file of tokens, whatever process reads it."""

    def __init__(self, key: bytes) -> None:
        """key: secret; another one gives other numbers."""
        self._key = blake2b(key, digest_size=32, person=b"numbers").digest()

    def shown(self, of: Numbered, number: int, *, within: str = "") -> int:
        """What a number of the record is shown as.

        within: where it is counted, such as a cluster: the same number is another one elsewhere.
        """
        left, right = number >> _HALF, number & _MASK
        for turn in range(_ROUNDS):
            left, right = right, left ^ self._round(of, within, turn, right)
        return _FIRST | left << _HALF | right

    def actual(self, of: Numbered, shown: int, *, within: str = "") -> int | None:
        """The number of the record that is shown as this; None where none can be."""
        if not _FIRST <= shown < 2 * _FIRST:
            return None
        left, right = shown >> _HALF & _MASK, shown & _MASK
        for turn in reversed(range(_ROUNDS)):
            left, right = right ^ self._round(of, within, turn, left), left
        return left << _HALF | right

    def _round(self, of: Numbered, within: str, turn: int, half: int) -> int:
        told = bytes((turn,)) + half.to_bytes(4) + within.encode()
        digest = blake2b(told, digest_size=4, key=self._key, person=of.encode())
        return int.from_bytes(digest.digest()) & _MASK
