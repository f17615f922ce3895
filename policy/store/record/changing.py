"""State changes that no decision made: live events and simulation steps."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection

from policy.cluster.digest import GENESIS, Change
from policy.store.ledger import entries
from policy.store.model.state import Cause, ChangedState
from policy.store.record.basis import Basis
from policy.store.state.revisions import puts_and_deletes, write_revision
from policy.store.state.versions import find_head, lock_head


def change(
    connection: Connection,
    cluster: str,
    changes: Sequence[Change],
    *,
    at_ms: int,
    source: str,
    cause: Cause,
    actor: str = "",
    expected_revision: int | None = None,
    expected_digest: str = "",
) -> ChangedState:
    """Write changes that no decision made (live events, simulation steps) as one revision.

    None where there are no changes. Raises StaleRevision where `expected_revision` is given and
    is no longer the newest, or `expected_digest` is and is not that of the newest.
    """
    if not changes:
        found = find_head(connection, cluster)
        if found is None:
            return ChangedState(revision=0, state_digest=GENESIS)
        return ChangedState(revision=found.number, state_digest=found.digest)
    head = lock_head(connection, cluster)
    if expected_revision is not None:
        Basis.newest(head, expected_revision=expected_revision, expected_digest=expected_digest)
    puts, deletes = puts_and_deletes(changes)
    written = write_revision(
        connection, head, puts, deletes, at_ms=at_ms, source=source, cause=cause
    )
    entries.append(
        connection,
        head,
        entries.EntryKind.CHANGE,
        written.lines,
        subject_digest=written.digest,
        at_ms=at_ms,
        actor=actor,
        revision=written.number,
    )
    return ChangedState(revision=written.number, state_digest=written.digest)
