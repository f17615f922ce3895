"""What a follower did so far, and what its owner may want to hear of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from policy.store.observed import ObservationRow
from policy.store.record.following import Gap


@dataclass(slots=True)
class FollowerFigures:
    """What a follower did so far, for its status."""

    started_ms: int = 0
    synced: bool = False
    events: int = 0  #: of watches, those that change nothing included
    changes: int = 0  #: of objects, that were written
    revisions: int = 0
    observed: int = 0
    waiting: bool = False  #: whether there is evidence of preemptions that are not recorded yet
    gaps: int = 0
    troubles: int = 0
    last_trouble: str = ""
    last_news_ms: int = 0  #: when the API server was heard last
    lag_ms: int = 0  #: from the arrival of the oldest change of the newest write to its writing
    writing: bool = True  #: False while the database is away
    revision: int = 0
    kinds: dict[str, int] = field(default_factory=dict)  #: resourceVersion by kind
    failing: dict[str, str] = field(default_factory=dict)  #: by kind, why it cannot be read now


@dataclass(frozen=True, slots=True, kw_only=True)
class Occasion:
    """Something that a follower's owner may want to hear of."""

    observations: Sequence[ObservationRow] = ()
    gap: Gap | None = None
    trouble: str = ""
    recovered: str = ""  #: a kind that can be read again
