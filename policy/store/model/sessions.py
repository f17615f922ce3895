"""Batch sessions and cycles of pod groups that are recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from policy.cluster.digest import HistoryFigures
from policy.store.outcomes import OutcomeRow


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStep:
    """One operation of a batch session, in the order in which it was done."""

    action: str  #: allocate, preempt, reclaim, ...
    operation: str  #: allocate, pipeline, evict, commit, discard, ...
    queue: str = ""
    job: str = ""
    task: str = ""
    node: str = ""
    for_task: str = ""  #: the task for whose sake a victim leaves
    reason: str = ""
    detail: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRecord:
    """A batch session, or the cycle of a pod group, as it is recorded."""

    kind: str = "batch"  #: `batch`, or `group` for one cycle of a pod group
    subject: str = ""  #: namespace/name of the pod group; "" for a batch session
    outcome: str = ""  #: how a group's cycle ended; "" for a batch session
    digest: str
    now_ms: int
    snapshot_digest: str
    seed: int
    engine_version: str
    bound_count: int
    evicted_count: int
    steps: Sequence[SessionStep]
    document: Mapping[str, Any]
    history: HistoryFigures | None = None  #: figures of the past that it was made with


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedSession:
    """A session that is in the database."""

    session_id: int
    revision: int  #: head of the cluster afterwards
    state_digest: str
    ledger_hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRow:
    """A batch session, or the cycle of a pod group, as lists show it."""

    id: int
    cluster: str
    kind: str
    subject: str
    outcome: str
    digest: str
    at_ms: int
    now_ms: int
    actor: str  #: who claimed to
    environment: str
    rule_set: str
    rule_set_digest: str
    snapshot_digest: str
    base_revision: int
    revision: int | None
    seed: int
    bound_count: int
    evicted_count: int
    hypothetical: bool
    engine_version: str
    process_uid: int | None  #: user id of the process that wrote it; None in older records
    process_user: str  #: the system's name of that user
    database_user: str  #: whom Postgres authenticated; "" on SQLite


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSession:
    """Everything that the database keeps of a session."""

    row: SessionRow
    steps: tuple[SessionStep, ...]
    document: Mapping[str, Any]
    outcomes: tuple[OutcomeRow, ...] = ()  #: evictions that were not carried out
