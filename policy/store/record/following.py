"""What a followed cluster showed: its changes as revisions, how far it was read, and gaps."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, and_, delete, insert, select

from policy.cluster.digest import Change
from policy.cluster.objects import Pod
from policy.store import cluster_identity, rows
from policy.store import identity as process
from policy.store.errors import NotFound, OtherPast
from policy.store.ledger import entries
from policy.store.model.state import Cause
from policy.store.observed import ClusterIdentity, Followed, FollowedRevision
from policy.store.record import outcomes
from policy.store.state.loading import digest_at
from policy.store.state.revisions import Put, puts_and_deletes, write_revision
from policy.store.state.versions import (
    Head,
    Live,
    chunks,
    live_versions,
    lock_head,
    nomination_of,
)
from policy.store.tables import FOLLOW_POSITIONS, GAPS, PODS, REVISIONS

_KEYS: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A time in which a followed cluster was not seen."""

    kind: str
    reason: str
    since_ms: int | None
    until_ms: int
    since_version: int
    until_version: int


def follow(
    connection: Connection,
    cluster: str,
    segments: Sequence[Sequence[Change]],
    *,
    at_ms: int,
    source: str,
    actor: str,
    positions: Mapping[str, int] | None = None,
    gaps: Sequence[Gap] = (),
    identity: ClusterIdentity | None = None,
    known: tuple[int, str] | None = None,
    shown_ms: int | None = None,
) -> Followed:
    """Write each segment as one revision, where it changes anything.

    What is there already in the same form, and the removal of what is not there, change nothing:
    the same changes may come again. positions: resourceVersions up to which each kind was read.
    identity: which real cluster it is, where that is known. Raises OtherCluster where the cluster
    of that name is another one. known: a revision that was there, and the digest of its state.
    Raises OtherPast where that is no longer so. shown_ms: until when all that happened to pods is
    known with the segments; None: until now.
    """
    known_ms = at_ms if shown_ms is None else min(at_ms, shown_ms)
    head = lock_head(connection, cluster)
    if known is not None:
        _require(connection, head, *known)
    if identity is not None:
        cluster_identity.keep(connection, head, identity, at_ms=at_ms)
    written: list[FollowedRevision] = []
    waiting = deque(segments)
    before_ms, is_compared = head.at_ms, False
    while waiting:
        segment = waiting.popleft()
        puts, deletes = puts_and_deletes(segment)
        live = _live(connection, head, puts, deletes)
        puts = [
            one
            for one in puts
            if one.key not in live[one.kind] or live[one.kind][one.key].digest != one.digest
        ]
        late = _from_before(connection, head, puts, live.get("Pod", {}), known_ms=known_ms)
        puts = [one for one in puts if one.kind != "Pod" or one.key not in late]
        deletes = [(kind, key) for kind, key in deletes if key in live[kind]]
        if not puts and not deletes:
            continue
        revision = write_revision(
            connection, head, puts, deletes, live=live, at_ms=at_ms, source=source, cause=Cause.LIVE
        )
        contradicted: list[bytes] = []
        if not waiting and not is_compared:  # what comes may show what is missing here
            is_compared = True
            contradicted = outcomes.after_watch(
                connection,
                head,
                revision.number,
                before_ms=before_ms,
                at_ms=at_ms,
                known_ms=known_ms,
            )
        entries.append(
            connection,
            head,
            entries.EntryKind.CHANGE,
            revision.lines + contradicted,
            subject_digest=revision.digest,
            at_ms=at_ms,
            actor=actor,
            revision=revision.number,
        )
        head = Head(head.cluster_id, head.name, revision.number, revision.digest, at_ms)
        changes: list[Change] = [(one.kind, one.key, one.obj) for one in puts]
        changes += [(kind, key, None) for kind, key in deletes]
        written.append(
            FollowedRevision(
                revision=revision.number,
                state_digest=revision.digest,
                changes=changes,
                new={(one.kind, one.key) for one in puts if one.key not in live[one.kind]},
            )
        )
        if contradicted:
            waiting.appendleft(outcomes.undone(connection, head, revision.number))
    for gap in gaps:
        _gap(connection, head, gap, at_ms=at_ms, actor=actor)
    if positions:
        _keep_positions(connection, head, positions, at_ms=at_ms)
    return Followed(revision=head.number, state_digest=head.digest, written=written)


def _require(connection: Connection, head: Head, revision: int, digest: str) -> None:
    if (revision, digest) == (head.number, head.digest):
        return
    with suppress(NotFound):
        if revision <= head.number and digest_at(connection, head, revision) == digest:
            return
    raise OtherPast(cluster=head.name, revision=revision)


def _live(
    connection: Connection, head: Head, puts: Sequence[Put], deletes: Sequence[tuple[str, str]]
) -> dict[str, dict[str, Live]]:
    keys: dict[str, list[str]] = {}
    for one in puts:
        keys.setdefault(one.kind, []).append(one.key)
    for kind, key in deletes:
        keys.setdefault(kind, []).append(key)
    return {kind: live_versions(connection, head, kind, found) for kind, found in keys.items()}


def _from_before(
    connection: Connection,
    head: Head,
    puts: Sequence[Put],
    live: Mapping[str, Live],
    *,
    known_ms: int,
) -> set[str]:
    """Pods that are shown as they were before a decision of a moment ago nominated them.

    A watch shows them late: what the scheduler made of the decision follows. Were it taken over,
    the room of the nomination could be promised to another pod meanwhile.
    """
    asked = {
        one.key: one.digest
        for one in puts
        if one.kind == "Pod"
        and one.key in live
        and live[one.key].nominated
        and isinstance(one.obj, Pod)
        and not nomination_of(one.obj)
    }
    if not asked:
        return set()
    p, r = PODS.c, REVISIONS.c
    found = set()
    for some in chunks(sorted(asked), _KEYS):
        query = (
            select(p.key, p.valid_to, p.digest)
            .join(REVISIONS, and_(r.cluster_id == p.cluster_id, r.number == p.valid_to))
            .where(
                p.cluster_id == head.cluster_id,
                p.key.in_(some),
                r.cause == str(Cause.DECISION),
                r.at_ms > known_ms - outcomes.ALLOWANCE_MS,
            )
        )
        for row in connection.execute(query):
            if row.valid_to == live[row.key].valid_from and row.digest == asked[row.key]:
                found.add(row.key)
    return found


def _gap(connection: Connection, head: Head, gap: Gap, *, at_ms: int, actor: str) -> None:
    row = {
        "cluster_id": head.cluster_id,
        "at_ms": at_ms,
        "actor": actor,
        "kind": gap.kind,
        "reason": gap.reason,
        "since_ms": gap.since_ms,
        "until_ms": gap.until_ms,
        "since_version": gap.since_version,
        "until_version": gap.until_version,
        "revision": head.number,
        **process.columns(connection),
    }
    row["id"] = connection.execute(insert(GAPS).returning(GAPS.c.id), row).scalar_one()
    entries.append(
        connection,
        head,
        entries.EntryKind.GAP,
        [rows.line(GAPS, row)],
        subject_digest="",
        at_ms=at_ms,
        actor=actor,
        gap_id=row["id"],
    )


def _keep_positions(
    connection: Connection, head: Head, positions: Mapping[str, int], *, at_ms: int
) -> None:
    p = FOLLOW_POSITIONS.c
    connection.execute(
        delete(FOLLOW_POSITIONS).where(p.cluster_id == head.cluster_id, p.kind.in_(list(positions)))
    )
    connection.execute(
        insert(FOLLOW_POSITIONS),
        [
            {
                "cluster_id": head.cluster_id,
                "kind": kind,
                "resource_version": version,
                "at_ms": at_ms,
            }
            for kind, version in positions.items()
        ],
    )
