"""What a decision was made on: none is recorded whose snapshot is not that of its revision.

A decision carries the digest of its snapshot, the row that is kept of it the revision. Replay
needs both to agree, and nothing could make them agree afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from sqlalchemy import Connection

from policy.cluster.digest import Change, HistoryFigures, chain_changes, snapshot_digest
from policy.store.errors import Conflict, StaleRevision
from policy.store.state.loading import digest_at
from policy.store.state.versions import Head


class SnapshotMismatch(Conflict):
    """A decision was made on another state than the one that it is to be recorded on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Basis:
    """The state that something was decided on: a revision, or what was supposed of one."""

    cluster: str
    revision: int
    state_digest: str

    @classmethod
    def newest(cls, head: Head, *, expected_revision: int, expected_digest: str = "") -> Basis:
        """The newest state. Raises StaleRevision where that is not the expected one."""
        same = expected_digest in {"", head.digest}
        if head.number != expected_revision or not same:
            raise StaleRevision(cluster=head.name, expected=expected_revision, actual=head.number)
        return cls(cluster=head.name, revision=head.number, state_digest=head.digest)

    @classmethod
    def at(cls, connection: Connection, head: Head, revision: int) -> Basis:
        """The state at a revision of the past. Raises NotFound."""
        digest = digest_at(connection, head, revision)
        return cls(cluster=head.name, revision=revision, state_digest=digest)

    def supposing(self, steps: Iterable[Sequence[Change]]) -> Basis:
        """The state after changes that are only supposed, one step after the other."""
        digest = self.state_digest
        for changes in steps:
            last = {(kind, key): obj for kind, key, obj in changes}
            if last:
                digest = chain_changes(digest, ((k, n, obj) for (k, n), obj in last.items()))
        return replace(self, state_digest=digest)

    def require(
        self, digest: str, *, now_ms: int, history: HistoryFigures | None = None, subject: str
    ) -> None:
        """Raises SnapshotMismatch unless `digest` is that of this state at that instant."""
        if snapshot_digest(self.state_digest, now_ms=now_ms, history=history) != digest:
            raise SnapshotMismatch(
                f"{subject} was not made on revision {self.revision} of cluster `{self.cluster}`:"
                " its snapshot digest does not follow from that state, its time and its history"
                " figures",
                help="load the state again and decide again",
            )
