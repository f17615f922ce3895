"""The ledger: one entry per transaction, each hashing the one before and all rows it wrote.

An entry's hash is the SHA-256 of every other column of the entry and the cluster's name; among
them `rows_digest`, over every covered column of every row that the transaction wrote (`rows.py`),
and `subject_digest`: of the decision, session, revision or rule set that it is about.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final

from sqlalchemy import Connection, insert, select

from policy.store import rows
from policy.store.tables import LEDGER
from policy.store.tables.base import LEDGER_FORMAT
from policy.store.versions import Head

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
    "subject_digest",
    "rows_digest",
    "at_ms",
    "actor",
    "environment",
)


class EntryKind(StrEnum):
    """What an entry is about. Values are stored and never renamed."""

    IMPORT = "import"
    CHANGE = "change"  # a revision from a live event or a simulation step
    DECISION = "decision"
    SESSION = "session"
    ENVIRONMENT = "environment"
    ACTIVATION = "activation"


def hash_of(cluster_id: int, cluster: str, entry: Mapping[str, Any]) -> str:
    """The hash of an entry of the cluster."""
    return rows.digest_of_values([cluster_id, cluster, *[entry[name] for name in _HASHED]])


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
    revision: int | None = None,
    decision_id: int | None = None,
    session_id: int | None = None,
    environment_id: int | None = None,
    activation_id: int | None = None,
) -> str:
    """Write the cluster's next entry and give its hash; the caller holds the cluster's lock."""
    last = connection.execute(
        select(LEDGER.c.sequence, LEDGER.c.hash)
        .where(LEDGER.c.cluster_id == head.cluster_id)
        .order_by(LEDGER.c.sequence.desc())
        .limit(1)
    ).first()
    entry: dict[str, Any] = {
        "cluster_id": head.cluster_id,
        "sequence": last.sequence + 1 if last else 1,
        "format": LEDGER_FORMAT,
        "kind": kind.value,
        "revision": revision,
        "decision_id": decision_id,
        "session_id": session_id,
        "environment_id": environment_id,
        "activation_id": activation_id,
        "subject_digest": subject_digest,
        "rows_digest": rows.digest_of(lines),
        "at_ms": at_ms,
        "actor": actor,
        "environment": environment,
        "previous": last.hash if last else GENESIS,
    }
    entry["hash"] = hash_of(head.cluster_id, head.name, entry)
    connection.execute(insert(LEDGER), entry)
    return str(entry["hash"])


def head_hash(connection: Connection, cluster_id: int) -> str:
    """Hash of the newest entry, the genesis value before the first."""
    found = connection.execute(
        select(LEDGER.c.hash)
        .where(LEDGER.c.cluster_id == cluster_id)
        .order_by(LEDGER.c.sequence.desc())
        .limit(1)
    ).scalar()
    return GENESIS if found is None else str(found)
