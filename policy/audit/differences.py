"""Where a decision that was made again parts from the one that is recorded.

A record holds all of a decision but what grows with the cluster. Both sides are therefore compared
as records, in the names of the canonical decision and from its causes to its effects.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from policy.decision.model import Decision, document_of
from policy.decision.record import DecisionRecord, record_of

ONLY_DIGEST: Final = "digest"
"""Path of a difference in a part of which only the digest is recorded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first place where two decisions differ; None stands for a value that is not there."""

    path: str  #: as `victims[0].pod`, into the canonical document
    recorded: Any
    replayed: Any


def first_difference(recorded: DecisionRecord, again: Decision) -> Difference:
    """The first difference of two decisions whose digests differ."""
    replayed = record_of(again, keep=len(recorded.candidates.best))
    found = first_of_documents(document_of(recorded), document_of(replayed))
    return found or Difference(path=ONLY_DIGEST, recorded=recorded.digest, replayed=replayed.digest)


def first_of_documents(one: Any, other: Any, path: str = "") -> Difference | None:
    """The first place where two documents differ, in the order of the first; None for none."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for name in [*one, *(key for key in other if key not in one)]:
            inner = f"{path}.{name}" if path else str(name)
            found = first_of_documents(one.get(name), other.get(name), inner)
            if found is not None:
                return found
        return None
    if _is_list(one) and _is_list(other):
        for i in range(max(len(one), len(other))):
            left, right = (part[i] if i < len(part) else None for part in (one, other))
            found = first_of_documents(left, right, f"{path}[{i}]")
            if found is not None:
                return found
        return None
    return None if one == other else Difference(path=path, recorded=one, replayed=other)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)
