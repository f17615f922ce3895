"""States of the past as they are recorded, with what proves that they are."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, func, select

from policy.cluster.digest import GENESIS, Change, chain_state
from policy.cluster.objects import ClusterObject
from policy.store.model.state import LoadedState
from policy.store.state.loading import decode, no_revision, require_head, true_at
from policy.store.tables import REVISIONS, VERSIONS

_BATCH: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class RevisionStep:
    """One revision with what it changed."""

    revision: int
    at_ms: int
    state_digest: str  #: as it is recorded
    previous: str  #: digest of the revision before, as it is recorded
    computed_digest: str  #: chained from `previous` over the rows that are there
    changes: Sequence[Change]

    @property
    def intact(self) -> bool:
        """Whether the rows have the digest that was recorded for them."""
        return self.computed_digest == self.state_digest


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """An object as it was at a revision, and for how long it was so."""

    kind: str
    key: str
    valid_from: int
    valid_to: int | None  #: the revision that changed it; None while it is still so
    object: ClusterObject


def steps(connection: Connection, cluster: str, since: int, until: int) -> list[RevisionStep]:
    """The revisions after `since` up to and with `until`, oldest first, with their changes.

    Raises NotFound where one of them is not kept.
    """
    head = require_head(connection, cluster)
    r = REVISIONS.c
    query = (
        select(REVISIONS)
        .where(r.cluster_id == head.cluster_id, r.number > since, r.number <= until)
        .order_by(r.number)
    )
    found = connection.execute(query).all()
    lacking = set(range(since + 1, until + 1)) - {row.number for row in found}
    if lacking:
        raise no_revision(connection, head, min(lacking))
    changes: dict[int, list[Change]] = defaultdict(list)
    entries: dict[int, list[tuple[str, str, str | None]]] = defaultdict(list)
    for kind, table in VERSIONS.items():
        c = table.c
        begun = select(c.key, c.valid_from, c.manifest).where(
            c.cluster_id == head.cluster_id, c.valid_from > since, c.valid_from <= until
        )
        put: set[tuple[int, str]] = set()
        for row in connection.execute(begun):
            put.add((row.valid_from, row.key))
            digest = hashlib.sha256(row.manifest.encode()).hexdigest()
            entries[row.valid_from].append((kind, row.key, digest))
            changes[row.valid_from].append((kind, row.key, decode(kind, row.manifest)))
        ended = select(c.key, c.valid_to).where(
            c.cluster_id == head.cluster_id, c.valid_to > since, c.valid_to <= until
        )
        for end in connection.execute(ended):
            if (end.valid_to, end.key) not in put:
                entries[end.valid_to].append((kind, end.key, None))
                changes[end.valid_to].append((kind, end.key, None))
    return [
        RevisionStep(
            revision=row.number,
            at_ms=row.at_ms,
            state_digest=row.digest,
            previous=row.previous,
            computed_digest=chain_state(row.previous, entries[row.number]),
            changes=sorted(changes[row.number], key=lambda change: change[:2]),
        )
        for row in found
    ]


def oldest_revision(connection: Connection, cluster: str) -> int:
    """Number of the oldest revision that is kept; 0 where there is none."""
    head = require_head(connection, cluster)
    query = select(func.min(REVISIONS.c.number)).where(REVISIONS.c.cluster_id == head.cluster_id)
    return int(connection.execute(query).scalar() or 0)


def load_checked(connection: Connection, cluster: str, at: int) -> tuple[LoadedState, bool]:
    """The state at a revision, and whether every object has the digest of its version.

    Raises NotFound for a revision that is not kept.
    """
    cluster_id = kept(connection, cluster, at)
    r = REVISIONS.c
    head = connection.execute(
        select(r.digest, r.at_ms).where(r.cluster_id == cluster_id, r.number == at)
    ).first()
    objects: list[ClusterObject] = []
    intact = True
    for kind, table in VERSIONS.items():
        query = select(table.c.manifest, table.c.digest)
        query = query.where(true_at(table, cluster_id, at))
        for row in connection.execute(query.execution_options(yield_per=_BATCH)):
            intact &= hashlib.sha256(row.manifest.encode()).hexdigest() == row.digest
            objects.append(decode(kind, row.manifest))
    state = LoadedState(
        cluster=cluster,
        revision=at,
        state_digest=head.digest if head else GENESIS,
        at_ms=head.at_ms if head else 0,
        objects=objects,
    )
    return state, intact


def objects_at(
    connection: Connection, cluster: str, kind: str, *, at: int, key: str | None = None
) -> list[StoredObject]:
    """The objects of one kind, or the one of a key, at a revision; by key.

    Raises NotFound for a revision that is not kept.
    """
    table = VERSIONS[kind]
    query = select(table).where(true_at(table, kept(connection, cluster, at), at))
    if key is not None:
        query = query.where(table.c.key == key)
    return [
        StoredObject(
            kind=kind,
            key=row.key,
            valid_from=row.valid_from,
            valid_to=row.valid_to,
            object=decode(kind, row.manifest),
        )
        for row in connection.execute(query.order_by(table.c.key))
    ]


def counts_at(connection: Connection, cluster: str, *, at: int) -> dict[str, int]:
    """Number of objects per kind at a revision; kinds without any are left out."""
    cluster_id = kept(connection, cluster, at)
    counts = {}
    for kind, table in VERSIONS.items():
        query = select(func.count()).where(true_at(table, cluster_id, at))
        counts[kind] = int(connection.execute(query).scalar_one())
    return {kind: count for kind, count in counts.items() if count}


def kept(connection: Connection, cluster: str, number: int) -> int:
    """The cluster's number in the database. Raises NotFound for a revision that is not there."""
    head = require_head(connection, cluster)
    r = REVISIONS.c
    query = select(r.number).where(r.cluster_id == head.cluster_id, r.number == number)
    if number and connection.execute(query).first() is None:
        raise no_revision(connection, head, number)
    return head.cluster_id
