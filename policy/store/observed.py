"""Observed preemptions as they go into the store and come out of it: plain immutable data."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from policy.cluster.digest import Change
from policy.cluster.objects import Pod
from policy.observing.model import Preemption


class VerdictClass(StrEnum):
    """What came of deciding an observed preemption again. Values are stored and never renamed."""

    SAME = "same"  # the same node and the same victims
    TIE = "tie"  # another node, equal on every criterion but the last
    ORDER = "order"  # the same but for pods that are equal in priority and start time
    SAMPLING = "sampling"  # a candidate; the scheduler need not have looked at the better one
    LAG = "lag"  # the same on the state a moment earlier or later
    ANSWERED = "answered"  # what the service's extender answered: a decision of the record
    OTHER = "other"  # something else
    UNKNOWN = "unknown"  # it cannot be decided again


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedVerdict:
    """An observed preemption, decided again."""

    verdict: VerdictClass
    reason: str = ""  #: the first difference, or what is missing
    rule_set: str = ""
    rule_set_digest: str = ""
    engine_version: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)
    #: victims that a budget should have kept; pods that are not in it are not known to be any
    pdb_violating: Mapping[str, bool] = field(default_factory=dict)


UNDECIDED = ObservedVerdict(verdict=VerdictClass.UNKNOWN, reason="not decided again")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedSituation:
    """What the stored states show around an observed preemption."""

    #: the state before its first effect; None where that is not kept
    base_revision: int | None
    #: whether the revision of the first effect holds nothing of a longer time: a followed change
    #: and not the difference between two dumps
    exact: bool
    last_revision: int | None  #: the newest revision with an effect of it
    preemptor: Pod | None  #: as it was then, or when it was first seen
    victims: Mapping[str, Pod]  #: the same, by namespace/name; unknown ones are left out


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredDecision:
    """A decision that the service's extender answered a scheduler, and that changed the state."""

    id: int
    rule_set: str
    rule_set_digest: str
    engine_version: str
    #: pods that leave by uid, those that were leaving already too; True where a budget was violated
    victims: Mapping[str, bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewObservation:
    """An observed preemption, ready to be recorded."""

    preemption: Preemption
    situation: ObservedSituation
    verdict: ObservedVerdict = UNDECIDED
    #: uids of pods whose eviction a decision of the record counts by now
    counted_before: Collection[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterIdentity:
    """Which real cluster it is, whatever it is called."""

    uid: str  #: of its namespace kube-system, which lives as long as the cluster
    server: str  #: URL of its API server


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowedRevision:
    """A revision that was written, and what it changed."""

    revision: int
    state_digest: str
    changes: Sequence[Change]
    new: Collection[tuple[str, str]]  #: (kind, key) of those that were not there before


@dataclass(frozen=True, slots=True, kw_only=True)
class Followed:
    """Where a cluster stands after changes of it were written."""

    revision: int
    state_digest: str
    written: Sequence[FollowedRevision] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedVictimRow:
    """A victim of an observed preemption."""

    victim: str  #: namespace/name
    namespace: str
    uid: str
    node: str
    priority: int | None
    priority_class: str
    owner: str
    start_ms: int | None
    run_seconds: int
    cpu_milli: int
    memory_bytes: int
    pdb_violating: bool | None  #: None where it is not known
    evidence: str  #: `event,condition,deletion,nomination`, those that there are
    event_uid: str
    #: False where another preemption evicted it in the same moment, or a decision of the record
    #: that the service answered; that one counts
    counted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservationRow:
    """An observed preemption as lists show it."""

    id: int
    cluster: str
    at_ms: int  #: when it was recorded
    actor: str
    source: str  #: the file, or the API server, that showed it
    now_ms: int  #: when it happened
    preemptor: str  #: namespace/name; "" where it is unknown
    preemptor_uid: str
    preemptor_kind: str
    preemptor_priority: int | None
    node: str
    scheduler: str
    confidence: str
    victim_count: int
    base_revision: int | None  #: the state before it; None where that is not kept
    revision: int  #: the newest one when it was recorded
    verdict: str
    reason: str
    rule_set: str
    rule_set_digest: str
    engine_version: str
    evidence: Mapping[str, Any]
    detail: Mapping[str, Any]
    digest: str
    replaces: int | None
    process_uid: int | None
    process_user: str
    database_user: str
    victims: tuple[ObservedVictimRow, ...] = ()

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> ObservationRow:
        return cls(**{f.name: values[f.name] for f in fields(cls) if f.name in values})


@dataclass(frozen=True, slots=True, kw_only=True)
class GapRow:
    """A time in which a followed cluster was not seen."""

    id: int
    cluster: str
    at_ms: int
    kind: str  #: the kind of objects whose watch was interrupted
    reason: str
    since_ms: int | None  #: None where it is unknown
    until_ms: int
    since_version: int
    until_version: int
    revision: int
