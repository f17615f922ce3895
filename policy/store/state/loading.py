"""Cluster state out: as it is, as it was, and what changed in between."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, Connection, Row, Table, func, or_, select

from policy.cluster import collector
from policy.cluster.digest import GENESIS, Change
from policy.cluster.objects import KINDS, ClusterObject, Node, Pod
from policy.cluster.sharing import Sharing
from policy.store import bulk
from policy.store.errors import DamagedRows, NotFound
from policy.store.model.state import ChangesSince, ClusterRow, LoadedState, RevisionRow
from policy.store.state.versions import Head, find_head
from policy.store.tables import CLUSTERS, DECISIONS, REVISIONS, VERSIONS
from policy.typed import prepared


@cache
def _decoder(kind: str) -> msgspec.json.Decoder[ClusterObject]:
    """Made when the first object of its kind is read: that takes as long as a short command."""
    return msgspec.json.Decoder(prepared(KINDS[kind]))


def decode(kind: str, manifest: str) -> ClusterObject:
    """The object of a stored manifest."""
    try:
        return _decoder(kind).decode(manifest)
    except msgspec.DecodeError as exc:
        raise _unreadable(kind, exc) from exc


def _unreadable(kind: str, error: msgspec.DecodeError) -> DamagedRows:
    return DamagedRows(
        f"a stored {kind} cannot be read: {error}",
        help="run `policy audit verify` to find what was changed",
    )


def require_head(connection: Connection, cluster: str) -> Head:
    """Raises NotFound for a cluster that the database does not know."""
    head = find_head(connection, cluster)
    if head is None:
        names = ", ".join(f"`{name}`" for name in cluster_names(connection))
        raise NotFound(
            f"there is no cluster `{cluster}` in this database",
            help=f"it holds {names}" if names else "import a dump first: `policy import FILE`",
        )
    return head


def cluster_id(connection: Connection, cluster: str) -> int:
    """Raises NotFound for a cluster that the database does not know."""
    return require_head(connection, cluster).cluster_id


def _revision(connection: Connection, head: Head, number: int) -> Row[Any]:
    row = connection.execute(
        select(REVISIONS).where(
            REVISIONS.c.cluster_id == head.cluster_id, REVISIONS.c.number == number
        )
    ).first()
    if row is None:
        raise no_revision(connection, head, number)
    return row


def digest_at(connection: Connection, head: Head, number: int) -> str:
    """Digest of the state at a revision, that before the first for 0. Raises NotFound."""
    return GENESIS if number == 0 else str(_revision(connection, head, number).digest)


def no_revision(connection: Connection, head: Head, number: int) -> NotFound:
    """That a revision is not there, and which are."""
    oldest = connection.execute(
        select(func.min(REVISIONS.c.number)).where(REVISIONS.c.cluster_id == head.cluster_id)
    ).scalar()
    kept = f"revisions {oldest} to {head.number}" if oldest else "no revision yet"
    return NotFound(f"cluster `{head.name}` has no revision {number}", help=f"it has {kept}")


def true_at(table: Table, cluster_id: int, number: int) -> ColumnElement[bool]:
    """Condition for the versions that were true at a revision."""
    versions = table.c
    return (
        (versions.cluster_id == cluster_id)
        & (versions.valid_from <= number)
        & or_(versions.valid_to.is_(None), versions.valid_to > number)
    )


def _objects(connection: Connection, head: Head, kind: str, number: int) -> Iterator[ClusterObject]:
    query = _TRUE_AT
    at: bulk.Row = (head.cluster_id, number, number)
    if number == head.number:
        # The short form of the same: every version that is still true began by now.
        query, at = _TRUE_NOW, (head.cluster_id,)
    sharing, decoder = Sharing(), _decoder(kind)
    for (manifest,) in bulk.stream(connection, query.format(table=VERSIONS[kind].name), at):
        try:
            obj = decoder.decode(manifest)
        except msgspec.DecodeError as exc:
            raise _unreadable(kind, exc) from exc
        if type(obj) is Pod:
            sharing.pod(obj)  # at once: the next one is made where its own parts were
        yield obj


_TRUE_NOW: Final = "SELECT manifest FROM {table} WHERE cluster_id = ? AND valid_to IS NULL"
_TRUE_AT: Final = (
    "SELECT manifest FROM {table} WHERE cluster_id = ? AND valid_from <= ?"
    " AND (valid_to IS NULL OR valid_to > ?)"
)
"""As `true_at` says it."""


def head_revision(connection: Connection, cluster: str) -> int:
    """Number of the newest revision. Raises NotFound."""
    return require_head(connection, cluster).number


@collector.paused()
def load(connection: Connection, cluster: str, *, at: int | None = None) -> LoadedState:
    """The cluster at a revision, the newest by default. Raises NotFound."""
    head = require_head(connection, cluster)
    number = head.number if at is None else at
    if number == 0:
        return LoadedState(cluster=cluster, revision=0, state_digest=GENESIS, at_ms=0, objects=())
    row = _revision(connection, head, number)
    objects = [obj for kind in VERSIONS for obj in _objects(connection, head, kind, number)]
    return LoadedState(
        cluster=cluster,
        revision=number,
        state_digest=row.digest,
        at_ms=row.at_ms,
        objects=objects,
    )


def changes_since(
    connection: Connection,
    cluster: str,
    since: int,
    *,
    until: int | None = None,
    state_digest: str = "",
) -> ChangesSince:
    """Net changes from a revision to a later one, the newest by default. Raises NotFound.

    state_digest: that the first one has to have, or it counts as none that is there.
    """
    head = require_head(connection, cluster)
    number = head.number if until is None else until
    if not 0 <= since <= number <= head.number:
        raise NotFound(
            f"cluster `{cluster}` has no changes between revision {since} and {number}",
            help=f"its newest revision is {head.number}",
        )
    its = head.digest if since == head.number else digest_at(connection, head, since)
    if state_digest not in {"", its}:
        raise NotFound(f"revision {since} of cluster `{cluster}` is another one by now")
    if since == head.number:
        # Mostly nothing changed: whoever decides asks after each announcement, its own too.
        return ChangesSince(changes=[], revision=number, state_digest=head.digest)
    if since == 0 < number:
        _revision(connection, head, 1)
    state = digest_at(connection, head, number)
    changes: list[Change] = []
    if since < number:
        for kind, table in VERSIONS.items():
            changes += _changes(connection, head, kind, table, since, number)
    return ChangesSince(changes=changes, revision=number, state_digest=state)


def _changes(
    connection: Connection, head: Head, kind: str, table: Table, since: int, until: int
) -> list[Change]:
    c = table.c
    ended = select(c.key).where(
        c.cluster_id == head.cluster_id,
        c.valid_to > since,
        c.valid_to <= until,
        c.valid_from <= since,
    )
    begun = select(c.key, c.manifest).where(
        c.cluster_id == head.cluster_id,
        c.valid_from > since,
        c.valid_from <= until,
        or_(c.valid_to.is_(None), c.valid_to > until),
    )
    puts = {row.key: row.manifest for row in connection.execute(begun)}
    gone = [key for key in connection.execute(ended).scalars() if key not in puts]
    return [
        *((kind, key, None) for key in sorted(gone)),
        *((kind, key, decode(kind, puts[key])) for key in sorted(puts)),
    ]


def revision_at(connection: Connection, cluster: str, time_ms: int) -> int:
    """The newest revision that was there at an instant; 0 before the first."""
    head = require_head(connection, cluster)
    found = connection.execute(
        select(func.max(REVISIONS.c.number)).where(
            REVISIONS.c.cluster_id == head.cluster_id, REVISIONS.c.at_ms <= time_ms
        )
    ).scalar()
    return int(found or 0)


def revisions(
    connection: Connection, cluster: str, *, limit: int | None = None, before: int | None = None
) -> list[RevisionRow]:
    """The cluster's history, newest first. before: only revisions with smaller numbers."""
    head = require_head(connection, cluster)
    c = REVISIONS.c
    query = select(REVISIONS).where(c.cluster_id == head.cluster_id).order_by(c.number.desc())
    if before is not None:
        query = query.where(c.number < before)
    if limit is not None:
        query = query.limit(limit)
    return [
        RevisionRow(
            cluster=cluster,
            number=row.number,
            at_ms=row.at_ms,
            source=row.source,
            cause=row.cause,
            put_count=row.put_count,
            deleted_count=row.deleted_count,
            digest=row.digest,
        )
        for row in connection.execute(query)
    ]


def on_node(connection: Connection, name: str) -> dict[str, tuple[Node | None, list[Pod]]]:
    """By cluster, the node of that name, None where it is gone, and the pods on it by key.

    Clusters that know neither are left out.
    """
    found: dict[str, tuple[Node | None, list[Pod]]] = {}
    for number, cluster in connection.execute(
        select(CLUSTERS.c.id, CLUSTERS.c.name).order_by(CLUSTERS.c.name)
    ):
        objects: list[ClusterObject] = []
        for kind, column in (("Node", "key"), ("Pod", "node")):
            c = VERSIONS[kind].c
            query = select(c.key, c.manifest).where(
                c.cluster_id == number, c[column] == name, c.valid_to.is_(None)
            )
            # Sorted here: for the order, SQLite would go through all pods by key.
            rows = sorted((row.key, row.manifest) for row in connection.execute(query))
            objects += [decode(kind, manifest) for _, manifest in rows]
        if objects:
            node = next((one for one in objects if isinstance(one, Node)), None)
            found[cluster] = node, [one for one in objects if isinstance(one, Pod)]
    return found


def cluster_names(connection: Connection) -> list[str]:
    """All clusters, without a look at what is in them."""
    return list(connection.execute(select(CLUSTERS.c.name).order_by(CLUSTERS.c.name)).scalars())


def clusters(connection: Connection) -> list[ClusterRow]:
    """All clusters by name."""
    newest = (
        select(func.max(REVISIONS.c.number))
        .where(REVISIONS.c.cluster_id == CLUSTERS.c.id)
        .correlate(CLUSTERS)
        .scalar_subquery()
    )
    decided = (
        select(func.count())
        .select_from(DECISIONS)
        .where(DECISIONS.c.cluster_id == CLUSTERS.c.id)
        .scalar_subquery()
    )
    query = (
        select(CLUSTERS.c.name, REVISIONS, decided.label("decided"))
        .select_from(CLUSTERS)
        .outerjoin(
            REVISIONS,
            (REVISIONS.c.cluster_id == CLUSTERS.c.id) & (REVISIONS.c.number == newest),
        )
        .order_by(CLUSTERS.c.name)
    )
    return [
        ClusterRow(
            name=row.name,
            revision=row.number or 0,
            state_digest=row.digest or GENESIS,
            at_ms=row.at_ms,
            decisions=row.decided,
        )
        for row in connection.execute(query)
    ]
