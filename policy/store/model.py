"""What goes into the store and comes out of it: plain immutable data."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any, Literal

from policy.cluster.digest import Change, HistoryFigures
from policy.cluster.objects import ClusterObject
from policy.decision.record import DecisionRecord, line_of
from policy.store.outcomes import OutcomeRow

__all__ = ["Change"]


class Cause(StrEnum):
    """Why a revision came about. Values are stored and never renamed."""

    IMPORT = "import"  # a dump was read
    EXTENDER = "extender"  # objects that a scheduler's request to the service brought
    DECISION = "decision"  # a decision bound a pod, evicted pods or changed nominations
    LIVE = "live"  # an event of a real API server
    SIMULATION = "simulation"  # a step of a simulation beside its decisions
    SESSION = "session"  # a batch session


class Origin(StrEnum):
    """Whose decision it is. Values are stored and never renamed."""

    DECIDED = "decided"  # this program scheduled, or was asked to
    EXTENDER = "extender"  # a kube-scheduler asked for it
    SIMULATED = "simulated"  # made in a simulation


class NominationEnd(StrEnum):
    """How a nomination ended. Values are stored and never renamed."""

    BOUND = "bound"  # the pod was placed on its nominated node
    BOUND_ELSEWHERE = "bound-elsewhere"  # it was placed on another node
    SUPERSEDED = "superseded"  # it was nominated to another node
    TAKEN_AWAY = "taken-away"  # another pod's preemption cleared it
    CLEARED = "cleared"  # its own cycle, or a change from outside, cleared it
    POD_GONE = "pod-gone"  # the pod was removed


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneScope:
    """What an import is complete for: stored objects within it that are not in the import go.

    The defaults are kubectl's convention: the kinds that occur in the import, and for namespaced
    kinds the namespaces in which any object of the import lies.
    """

    kinds: frozenset[str] | None = None
    namespaces: frozenset[str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportCounts:
    """What an import did to the objects of one kind."""

    added: int = 0
    changed: int = 0
    unchanged: int = 0
    removed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StrayPods:
    """Pods of an import on nodes that neither the import nor the cluster has."""

    count: int = 0
    examples: tuple[tuple[str, str], ...] = ()  #: (pod, node) of the first ones by key


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportResult:
    """What an import did."""

    cluster: str
    revision: int  #: head of the cluster afterwards; 0 where it has none
    state_digest: str
    new_revision: bool  #: False where nothing had changed
    kinds: Mapping[str, ImportCounts]
    stray: StrayPods = StrayPods()

    def total(self, what: Literal["added", "changed", "unchanged", "removed"]) -> int:
        return sum(getattr(counts, what) for counts in self.kinds.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedState:
    """A cluster as it was at one revision."""

    cluster: str
    revision: int
    state_digest: str
    at_ms: int
    objects: Sequence[ClusterObject] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangesSince:
    """The net changes that lead from one revision to another."""

    changes: Sequence[Change]
    revision: int
    state_digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedState:
    """Where a cluster stands after changes were written."""

    revision: int
    state_digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionRow:
    """One step of a cluster's history."""

    cluster: str
    number: int
    at_ms: int
    source: str
    cause: str
    put_count: int
    deleted_count: int
    digest: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterRow:
    """A cluster and where its history stands."""

    name: str
    revision: int
    state_digest: str
    at_ms: int | None
    decisions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueInfo:
    """How the pod stood in the scheduling queue when its cycle began."""

    attempt: int | None = None  #: 1 for the first cycle of this pod
    queued_ms: int | None = None  #: when it entered the queue


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A decision that is in the database."""

    decision_id: int
    revision: int  #: head of the cluster afterwards
    state_digest: str
    ledger_hash: str


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRow:
    """A decision as lists show it."""

    id: int
    cluster: str
    at_ms: int  #: when it was recorded
    now_ms: int  #: the time for which it was made
    actor: str  #: who claimed to
    environment: str
    preemptor: str
    preemptor_uid: str
    preemptor_priority: int
    outcome: str
    node: str | None
    victim_count: int
    pdb_violations: int
    candidate_count: int
    kept_candidates: int
    decided_by: str
    nomination: str
    eligible: bool
    fits: bool
    message: str
    rule_set: str
    rule_set_digest: str
    snapshot_digest: str
    base_revision: int  #: the state it was made on
    revision: int | None  #: the state it led to; None where it changed nothing
    seed: int
    evaluate_all: bool
    origin: str  #: whose it is, as `Origin` says
    hypothetical: bool
    engine_version: str
    digest: str
    attempt: int | None
    queued_ms: int | None
    carried_out: bool = True  #: False where a later state shows that none of its victims left
    process_uid: int | None = (
        None  #: user id of the process that wrote it; None in older records, and in a dry run
    )
    process_user: str = ""  #: the system's name of that user
    database_user: str = ""  #: whom Postgres authenticated; "" on SQLite

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> DecisionRow:
        """The row out of values by name; there may be others among them."""
        return cls(**{f.name: values[f.name] for f in fields(cls) if f.name in values})


class CallMode(StrEnum):
    """What the service does for a scheduler. Values are stored and never renamed."""

    SHADOW = "shadow"  # answers with what was offered, records what it would have said
    ENFORCE = "enforce"  # answers with what the rules decide


class CallAnswer(StrEnum):
    """What a scheduler was answered. Values are stored and never renamed."""

    OFFERED = "offered"  # everything that it had offered
    CHOSEN = "chosen"  # the decision's node with its victims, and no other
    NONE = "none"  # no candidate


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedCall:
    """A scheduler's call that a decision was made for, beside what the decision itself says."""

    mode: CallMode
    form: str  #: `full` (with the victims' objects) or `meta` (with their uids)
    caller: str  #: token or certificate that called; "" where none was needed
    request_digest: str  #: `sha256:` and the hash of the request's body
    request_bytes: int
    answer: CallAnswer
    failure: str  #: why the answer is that of `--on-failure`; "" where it is not
    from_request: tuple[str, ...]  #: pods whose state was taken from the request, namespace/name
    arrived_ms: int
    duration_us: int  #: from the arrival of the request until the decision could be written
    waited_us: int = 0  #: of these, for a state that knows what the request proves


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDecision:
    """Everything that the database keeps of a decision."""

    row: DecisionRow
    record: DecisionRecord
    served: ServedCall | None = None  #: the call that it answers; None without one
    outcomes: tuple[OutcomeRow, ...] = ()  #: what was not carried out of it

    @classmethod
    def unsaved(
        cls,
        record: DecisionRecord,
        *,
        cluster: str,
        environment: str,
        base_revision: int,
        at_ms: int,
        actor: str,
    ) -> StoredDecision:
        """The decision of a dry run, as it would be if it were kept."""
        line = {
            **line_of(record),
            "id": 0,
            "cluster": cluster,
            "environment": environment,
            "base_revision": base_revision,
            "revision": None,
            "at_ms": at_ms,
            "actor": actor,
            "origin": Origin.DECIDED.value,
            "hypothetical": True,
            "attempt": None,
            "queued_ms": None,
        }
        return cls(row=DecisionRow.of(line), record=record)


@dataclass(frozen=True, slots=True, kw_only=True)
class NominationRow:
    """A nomination and how it ended; `ended_by` is None while it stands."""

    cluster: str
    pod: str
    uid: str
    priority: int
    node: str
    made_revision: int
    made_decision: int | None
    made_ms: int
    ended_by: str | None
    ended_revision: int | None
    ended_decision: int | None
    ended_ms: int | None
    outcome: str  #: `not-carried-out` where a later state contradicts the decision, or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvedClaim:
    """One claim that was proved of a rule set, about itself or against another one."""

    claim: str
    verdict: str = "proved"  #: nothing else is activated
    against: str = ""  #: digest of the other rule set; "" where the claim names none


@dataclass(frozen=True, slots=True, kw_only=True)
class Proofs:
    """What an activation required to be proved, and by which solver it was."""

    claims: tuple[ProvedClaim, ...]
    solver: str  #: name and version


@dataclass(frozen=True, slots=True, kw_only=True)
class ActivationRow:
    """A rule set that was made the active one of an environment."""

    id: int
    environment: str
    rule_set: str
    rule_set_digest: str
    previous_digest: str | None  #: what was active before; None for the first
    at_ms: int
    actor: str  #: who claimed to
    reason: str
    source: str  #: file that the rule set was read from
    proofs: Proofs | None  #: what had to be proved before; None where nothing was asked for
    batch: bool  #: they are rules of batch sessions, and decide about no single pod
    process_uid: int | None  #: user id of the process that wrote it; None in older records
    process_user: str  #: the system's name of that user
    database_user: str  #: whom Postgres authenticated; "" on SQLite


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvironmentRow:
    """An environment: a cluster and the rule set that is active for it."""

    name: str
    cluster: str
    created_ms: int
    created_by: str
    process_uid: int | None  #: user id of the process that wrote it; None in older records
    process_user: str  #: the system's name of that user
    database_user: str  #: whom Postgres authenticated; "" on SQLite
    active: ActivationRow | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerRow:
    """What one profile of an environment's own scheduler runs."""

    id: int
    environment: str
    cluster: str
    profile: str  #: its `schedulerName`
    rule_set: str  #: "" where the rule set of the server's version counts again
    rule_set_digest: str
    at_ms: int
    actor: str  #: who claimed to
    source: str  #: file that the configuration was read from
    notices: tuple[str, ...]  #: what of the file the rule set does not model
    process_uid: int | None  #: user id of the process that wrote it; None in older records
    process_user: str  #: the system's name of that user
    database_user: str  #: whom Postgres authenticated; "" on SQLite


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
