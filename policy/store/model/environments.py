"""Environments, what was made active in them, and what their schedulers run."""

from __future__ import annotations

from dataclasses import dataclass


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
