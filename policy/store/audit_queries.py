"""Reading the record in bulk: for replay, comparison, looking at the past, and export."""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Table, or_, select, text

from policy.cluster.digest import GENESIS, Change, chain_state
from policy.cluster.objects import ClusterObject
from policy.store.connection import Database
from policy.store.errors import NotFound
from policy.store.model import StoredVictim
from policy.store.queries import victim_of
from policy.store.state import decode, require_head, true_at
from policy.store.tables import METADATA, REVISIONS, VERSIONS, VICTIMS
from policy.store.types import Bool, Json, Millis, Str

_BATCH: Final = 1000
_IDS: Final = 500
"""Bound parameters per statement stay below every database's limit."""


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
        """Do the rows have the digest that was recorded for them?"""
        return self.computed_digest == self.state_digest


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnInfo:
    """A column of a table, as exports and documentation need it."""

    name: str
    type: str  #: `int64`, `millis`, `bool`, `text` or `json`
    nullable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """An object as it was at a revision, with the revisions between which that was so."""

    kind: str
    key: str
    valid_from: int
    valid_to: int | None  #: None while it is still so
    object: ClusterObject


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

    def objects_at(
        self, cluster: str, kind: str, *, at: int, key: str | None = None
    ) -> list[StoredObject]:
        """The objects of one kind (or the one of a key) at a revision, by key.

        Raises NotFound for a revision that is not kept.
        """
        with self._database.reading() as connection:
            return _objects_at(connection, cluster, kind, at, key)

    def counts_at(self, cluster: str, *, at: int) -> dict[str, int]:
        """Number of objects per kind at a revision, kinds without any left out."""
        with self._database.reading() as connection:
            head = require_head(connection, cluster)
            _require_revision(connection, head.cluster_id, cluster, at)
            found = {}
            for kind, table in VERSIONS.items():
                query = select(table.c.key).where(true_at(table, head.cluster_id, at))
                count = connection.execute(
                    text("SELECT 1").select_from(query.subquery())  # pragma: no cover
                )
                found[kind] = len(count.all())
            return {kind: n for kind, n in found.items() if n}

    def victims_of(self, decisions: Sequence[int]) -> dict[int, tuple[StoredVictim, ...]]:
        """The victims of many decisions; those without any are left out."""
        found: dict[int, list[StoredVictim]] = defaultdict(list)
        with self._database.reading() as connection:
            for start in range(0, len(decisions), _IDS):
                query = (
                    select(VICTIMS)
                    .where(VICTIMS.c.decision_id.in_(decisions[start : start + _IDS]))
                    .order_by(VICTIMS.c.decision_id, VICTIMS.c.position)
                )
                for row in connection.execute(query):
                    found[row.decision_id].append(victim_of(row))
        return {decision: tuple(victims) for decision, victims in found.items()}
