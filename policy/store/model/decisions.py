"""Decisions that are recorded, and nominations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any

from policy.decision.record import DecisionRecord, line_of
from policy.store.outcomes import OutcomeRow


class Origin(StrEnum):
    """Whose decision it is. Values are stored and never renamed."""

    DECIDED = "decided"  # this program scheduled, or was asked to
    EXTENDER = "extender"  # a kube-scheduler asked for it
    SIMULATED = "simulated"  # made in a simulation


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
    answer: str = ""  #: that the scheduler got which asked, as `CallAnswer` says; "" where none did
    process_uid: int | None = (
        None  #: user id of the process that wrote it; None in older records, and in a dry run
    )
    process_user: str = ""  #: the system's name of that user
    database_user: str = ""  #: whom Postgres authenticated; "" on SQLite

    @property
    def is_judgement_only(self) -> bool:
        """Is it of a call that changed nothing: answered otherwise, as in shadow mode, or none?"""
        return self.origin == Origin.EXTENDER and self.revision is None

    @property
    def preempted(self) -> bool:
        """Is it a preemption that took place, as far as the record knows?"""
        return self.outcome == "preempt" and self.carried_out and not self.is_judgement_only

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
    failure: str  #: why the decision is not what was answered, as by `--on-failure`; "" where it is
    from_request: tuple[str, ...]  #: pods whose state was taken from the request, namespace/name
    arrived_ms: int
    duration_us: int  #: from the arrival of the request until the decision could be written
    waited_us: int = 0  #: of these, for a state that knows what the request proves


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerPosition:
    """Where an entry stands in its cluster's ledger."""

    sequence: int
    hash: str
    previous: str  #: hash of the entry before


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDecision:
    """Everything that the database keeps of a decision."""

    row: DecisionRow
    record: DecisionRecord
    served: ServedCall | None = None  #: the call that it answers; None without one
    outcomes: tuple[OutcomeRow, ...] = ()  #: what was not carried out of it
    ledger: LedgerPosition | None = None  #: its entry; None for a dry run, and where it is gone

    @property
    def is_answered_otherwise(self) -> bool:
        """Was a scheduler that asked answered another thing than this?

        A refusal that changes nothing leads to no revision either, and is what was answered.
        """
        call = self.served
        as_decided = call is not None and call.mode is CallMode.ENFORCE and not call.failure
        return self.row.is_judgement_only and not as_decided

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
