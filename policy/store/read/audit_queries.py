"""Reading the record in bulk: for replay, comparison, looking at the past, and export."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, func, select

from policy.cluster.digest import GENESIS, Change, chain_state
from policy.cluster.objects import ClusterObject
from policy.decision.model import ExtenderCall, Victim
from policy.store import rows
from policy.store.connection import Database
from policy.store.decision_rows import victim_from
from policy.store.model import DecisionRow, LoadedState
from policy.store.read import queries
from policy.store.read.queries import DecisionFilter
from policy.store.state.loading import decode, no_revision, require_head, true_at
from policy.store.tables import DECISION_TRACES, METADATA, REVISIONS, VERSIONS, VICTIMS
from policy.store.types import Bool, Json, Millis, Str

_BATCH: Final = 1000
_IDS: Final = 500
"""Numbers per statement: bound parameters stay below every database's limit."""


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
class Frozen:
    """What a decision was told beside the state that it was made on."""

    history: Mapping[str, Mapping[str, int]] | None = None  #: None where it read no figures
    extender_calls: tuple[ExtenderCall, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnInfo:
    """A column of a table."""

    name: str
    type: str  #: `int64`, `millis`, `bool`, `text` or `json`
    nullable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """An object as it was at a revision, and for how long it was so."""

    kind: str
    key: str
    valid_from: int
    valid_to: int | None  #: the revision that changed it; None while it is still so
    object: ClusterObject


class TableReader:
    """Whole tables out of one consistent view of the database."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def rows(self, table: str) -> Iterator[Sequence[tuple[Any, ...]]]:
        """All rows in batches, in the order of the primary key."""
        found = METADATA.tables[table]
        query = select(found).order_by(*found.primary_key.columns)
        result = self._connection.execute(query.execution_options(yield_per=_BATCH))
        for part in result.partitions():
            yield [tuple(row) for row in part]


class AuditQueries:
    """Queries over many decisions or revisions at once; nothing here writes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def steps(self, cluster: str, since: int, until: int) -> list[RevisionStep]:
        """The revisions after `since` up to and with `until`, oldest first, with their changes.

        Raises NotFound where one of them is not kept.
        """
        with self._database.reading() as connection:
            return _steps(connection, cluster, since, until)

    def oldest_revision(self, cluster: str) -> int:
        """Number of the oldest revision that is kept; 0 where there is none."""
        with self._database.reading() as connection:
            head = require_head(connection, cluster)
            query = select(func.min(REVISIONS.c.number)).where(
                REVISIONS.c.cluster_id == head.cluster_id
            )
            return int(connection.execute(query).scalar() or 0)

    def load_checked(self, cluster: str, at: int) -> tuple[LoadedState, bool]:
        """The state at a revision, and whether every object has the digest of its version.

        Raises NotFound for a revision that is not kept.
        """
        with self._database.reading() as connection:
            cluster_id = _kept(connection, cluster, at)
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
        self, cluster: str, kind: str, *, at: int, key: str | None = None
    ) -> list[StoredObject]:
        """The objects of one kind, or the one of a key, at a revision; by key.

        Raises NotFound for a revision that is not kept.
        """
        with self._database.reading() as connection:
            cluster_id = _kept(connection, cluster, at)
            table = VERSIONS[kind]
            query = select(table).where(true_at(table, cluster_id, at)).order_by(table.c.key)
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
                for row in connection.execute(query)
            ]

    def counts_at(self, cluster: str, *, at: int) -> dict[str, int]:
        """Number of objects per kind at a revision; kinds without any are left out."""
        with self._database.reading() as connection:
            cluster_id = _kept(connection, cluster, at)
            counts = {}
            for kind, table in VERSIONS.items():
                query = select(func.count()).where(true_at(table, cluster_id, at))
                counts[kind] = int(connection.execute(query).scalar_one())
            return {kind: count for kind, count in counts.items() if count}

    def decision_ids(
        self, cluster: str, *, since_ms: int | None = None, until_ms: int | None = None
    ) -> list[int]:
        """Numbers of the cluster's decisions made for that time, hypothetical ones left out."""
        wanted = DecisionFilter(cluster=cluster, since_ms=since_ms, until_ms=until_ms)
        with self._database.reading() as connection:
            return queries.decision_ids(connection, wanted)

    def decisions(self, ids: Sequence[int]) -> list[DecisionRow]:
        """Decisions by number, oldest first; numbers that are none are left out."""
        with self._database.reading() as connection:
            return [
                row
                for start in range(0, len(ids), _IDS)
                for row in queries.decisions_by_id(connection, ids[start : start + _IDS])
            ]

    def frozen(self, ids: Sequence[int]) -> dict[int, Frozen]:
        """What decisions were told beside their state, by number."""
        found = {}
        with self._database.reading() as connection:
            for start in range(0, len(ids), _IDS):
                query = select(DECISION_TRACES).where(
                    DECISION_TRACES.c.decision_id.in_(ids[start : start + _IDS])
                )
                for row in connection.execute(query):
                    document = rows.from_json(row.document)
                    calls = document.get("extenderCalls", ())
                    found[row.decision_id] = Frozen(
                        history=document.get("history"),
                        extender_calls=tuple(ExtenderCall(**call) for call in calls),
                    )
        return found

    def victims_of(self, decisions: Sequence[int]) -> dict[int, tuple[Victim, ...]]:
        """The victims of many decisions by number; decisions without any are left out."""
        found: dict[int, list[Victim]] = defaultdict(list)
        with self._database.reading() as connection:
            for start in range(0, len(decisions), _IDS):
                query = (
                    select(VICTIMS)
                    .where(VICTIMS.c.decision_id.in_(decisions[start : start + _IDS]))
                    .order_by(VICTIMS.c.decision_id, VICTIMS.c.position)
                )
                for row in connection.execute(query):
                    found[row.decision_id].append(victim_from(row._asdict()))
        return {decision: tuple(victims) for decision, victims in found.items()}

    @contextmanager
    def reading_tables(self) -> Iterator[TableReader]:
        """Whole tables, all as they are at one instant."""
        with self._database.reading() as connection:
            yield TableReader(connection)


def tables() -> Mapping[str, Sequence[ColumnInfo]]:
    """The tables by name with their columns in order."""
    return {
        name: tuple(
            ColumnInfo(name=c.name, type=_type_name(c.type), nullable=bool(c.nullable))
            for c in table.columns
        )
        for name, table in sorted(METADATA.tables.items())
    }


def _type_name(of: object) -> str:
    names = ((Millis, "millis"), (Bool, "bool"), (Json, "json"), (Str, "text"))
    return next((name for kind, name in names if isinstance(of, kind)), "int64")


def _kept(connection: Connection, cluster: str, number: int) -> int:
    """The cluster's number in the database. Raises NotFound for a revision that is not there."""
    head = require_head(connection, cluster)
    r = REVISIONS.c
    query = select(r.number).where(r.cluster_id == head.cluster_id, r.number == number)
    if number and connection.execute(query).first() is None:
        raise no_revision(connection, head, number)
    return head.cluster_id


def _steps(connection: Connection, cluster: str, since: int, until: int) -> list[RevisionStep]:
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
