"""The ledger: an entry for everything that is recorded, with the hash of the one before.

A transaction appends one entry, or one for each decision that it records. An entry's hash is the
SHA-256 of every other column of the entry and the cluster's name; among them `rows_digest`, over
every covered column of every row that was written for it (`rows.py`), and `subject_digest`: of the
decision, session, revision or rule set that it is about.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from sqlalchemy import Connection, func, select

from policy.cluster import canonical
from policy.store import identity, rows
from policy.store.announcing import announce
from policy.store.bulk import Asked, PendingRows
from policy.store.state.loading import require_head
from policy.store.state.versions import Head
from policy.store.tables import CLUSTERS, LEDGER
from policy.store.tables.base import LEDGER_FORMAT

GENESIS: Final = "sha256:" + 64 * "0"
"""`previous` of a cluster's first entry."""

_HASHED: Final = (
    "format",
    "sequence",
    "previous",
    "kind",
    "revision",
    "decision_id",
    "session_id",
    "environment_id",
    "activation_id",
    "pruning_id",
    "subject_digest",
    "rows_digest",
    "at_ms",
    "actor",
    "environment",
)
_HASHED_SINCE_2: Final = (
    "process_uid",
    "process_user",
    "database_user",
    "observation_id",
    "gap_id",
    "simulation_id",
    "scheduler_id",
)


_NEWEST: Final = (
    "SELECT sequence, hash FROM ledger WHERE cluster_id = ? ORDER BY sequence DESC LIMIT 1"
)
SUBJECTS: Final = (
    "decision_id",
    "session_id",
    "environment_id",
    "activation_id",
    "pruning_id",
    "observation_id",
    "gap_id",
    "simulation_id",
    "scheduler_id",
    "revision",
)
"""Columns for what an entry is about, null where it is about something else."""


class EntryKind(StrEnum):
    """What an entry is about. Values are stored and never renamed."""

    IMPORT = "import"
    CHANGE = "change"  # a revision from a live event or a simulation step
    DECISION = "decision"
    SESSION = "session"
    ENVIRONMENT = "environment"
    ACTIVATION = "activation"
    PRUNING = "pruning"
    OBSERVATION = "observation"  # a preemption that a real scheduler made
    GAP = "gap"  # a time in which a followed cluster was not seen
    SIMULATION = "simulation"
    SCHEDULER = "scheduler"  # the configuration that a real scheduler runs


def hash_of(cluster_id: int, cluster: str, entry: rows.Values) -> str:
    """The hash of an entry of the cluster, in the entry's own format."""
    names = _HASHED if entry["format"] < 2 else (*_HASHED, *_HASHED_SINCE_2)
    return canonical.digest([cluster_id, cluster, *[entry[name] for name in names]])


class Chain:
    """The ledger of one cluster as a transaction continues it, entry by entry."""

    def __init__(self, connection: Connection, head: Head, pending: PendingRows) -> None:
        """The caller holds the cluster's lock, and writes what is pending."""
        self._head = head
        self._pending = pending
        self._identity = identity.columns(connection)
        self._newest = Asked(connection, _NEWEST, (head.cluster_id,))
        self._last: tuple[int, str] | None = None
        announce(connection, head.cluster_id)

    def append(
        self,
        kind: EntryKind,
        lines: Iterable[bytes],
        *,
        subject_digest: str,
        at_ms: int,
        actor: str,
        environment: str = "",
        **subjects: int | None,
    ) -> str:
        """The hash of the next entry. subjects: of `SUBJECTS`, what the entry is about."""
        assert subjects.keys() <= set(SUBJECTS)
        sequence, previous = self._last or self._read()
        entry: dict[str, Any] = {
            "cluster_id": self._head.cluster_id,
            "sequence": sequence + 1,
            "format": LEDGER_FORMAT,
            "kind": kind.value,
            **dict.fromkeys(SUBJECTS),
            **subjects,
            "subject_digest": subject_digest,
            "rows_digest": rows.digest_of(lines),
            "at_ms": at_ms,
            "actor": actor,
            "environment": environment,
            **self._identity,
            "previous": previous,
        }
        entry["hash"] = hash_of(self._head.cluster_id, self._head.name, entry)
        self._pending.add(LEDGER, [rows.of_table(LEDGER, entry)])
        self._last = (entry["sequence"], entry["hash"])
        return str(entry["hash"])

    def _read(self) -> tuple[int, str]:
        """The last entry that there was."""
        found = self._newest.rows()
        return (found[0][0], found[0][1]) if found else (0, GENESIS)


def append(
    connection: Connection,
    head: Head,
    kind: EntryKind,
    lines: Iterable[bytes],
    *,
    subject_digest: str,
    at_ms: int,
    actor: str,
    environment: str = "",
    **subjects: int | None,
) -> str:
    """Write the cluster's next entry and give its hash; the caller holds the cluster's lock."""
    pending = PendingRows()
    found = Chain(connection, head, pending).append(
        kind,
        lines,
        subject_digest=subject_digest,
        at_ms=at_ms,
        actor=actor,
        environment=environment,
        **subjects,
    )
    pending.write(connection)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerHead:
    """The newest entry of a cluster's ledger; who keeps its hash elsewhere misses nothing."""

    cluster: str
    sequence: int
    hash: str
    at_ms: int


def head(connection: Connection, cluster: str) -> LedgerHead:
    """The newest entry of a cluster. Raises NotFound."""
    require_head(connection, cluster)
    return heads(connection, cluster)[0]


def heads(connection: Connection, cluster: str | None = None) -> list[LedgerHead]:
    """The newest entry of every cluster, or of one."""
    newest = (
        select(func.max(LEDGER.c.sequence))
        .where(LEDGER.c.cluster_id == CLUSTERS.c.id)
        .correlate(CLUSTERS)
        .scalar_subquery()
    )
    query = (
        select(CLUSTERS.c.name, LEDGER.c.sequence, LEDGER.c.hash, LEDGER.c.at_ms)
        .join(LEDGER, (LEDGER.c.cluster_id == CLUSTERS.c.id) & (LEDGER.c.sequence == newest))
        .order_by(CLUSTERS.c.name)
    )
    if cluster is not None:
        query = query.where(CLUSTERS.c.name == cluster)
    return [
        LedgerHead(cluster=row.name, sequence=row.sequence, hash=row.hash, at_ms=row.at_ms)
        for row in connection.execute(query)
    ]
