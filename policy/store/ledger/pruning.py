"""Old stretches of the record out, so that what stays can still be verified.

Everything up to one ledger entry goes: decisions, sessions, revisions, and versions that had ended
by then. The state at that point stays, and a new ledger entry covers it (`checkpoints.py`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from sqlalchemy import ColumnElement, Connection, Table, delete, func, insert, or_, select

from policy.store import identity, partitions, rows, spans
from policy.store.ledger import checkpoints, entries
from policy.store.state.loading import cluster_id as cluster_id_of
from policy.store.state.versions import find_head
from policy.store.tables import (
    ACTIVATIONS,
    CLUSTERS,
    CYCLES,
    DECISION_CHILDREN,
    DECISION_OUTCOMES,
    DECISIONS,
    GAPS,
    LEDGER,
    NOMINATION_ENDS,
    NOMINATIONS,
    OBSERVATIONS,
    OBSERVED_VICTIMS,
    PRUNINGS,
    REVISIONS,
    RULE_SETS,
    SCHEDULERS,
    SESSION_OUTCOMES,
    SESSION_STEPS,
    SESSIONS,
    SIMULATIONS,
    VERSIONS,
)
from policy.store.tables.base import LEDGER_FORMAT
from policy.store.totals import Owner, Totals


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunedCluster:
    """What pruning takes from one cluster: its decisions can no longer be shown or replayed."""

    cluster: str
    last_sequence: int  #: of the newest ledger entry that goes
    last_hash: str  #: its hash
    last_revision: int  #: the oldest state that stays
    decisions: int
    first_decision: int | None
    last_decision: int | None
    first_ms: int  #: when the oldest and the newest of the entries were written
    last_ms: int
    sessions: int
    versions: int
    hypothetical_left: int
    """Hypothetical decisions and cycles that stay, on older states: shown, and not replayed."""
    head: str = ""
    """Hash of the entry about the pruning, once it is done: what stays is proven by keeping it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PrunePlan:
    """What pruning takes, or took."""

    older_than_ms: int
    clusters: tuple[PrunedCluster, ...]


def plan(connection: Connection, older_than_ms: int, *, cluster: str | None = None) -> PrunePlan:
    """What pruning would take: whole stretches of entries that are older than the instant.

    Raises NotFound for an unknown cluster.
    """
    query = select(CLUSTERS.c.id, CLUSTERS.c.name).order_by(CLUSTERS.c.id)
    if cluster is not None:
        query = query.where(CLUSTERS.c.id == cluster_id_of(connection, cluster))
    found = connection.execute(query).all()
    planned = [_plan(connection, row.id, row.name, older_than_ms) for row in found]
    return PrunePlan(older_than_ms=older_than_ms, clusters=tuple(p for p in planned if p))


def _plan(
    connection: Connection, cluster_id: int, cluster: str, older_than_ms: int
) -> PrunedCluster | None:
    c = LEDGER.c
    own = c.cluster_id == cluster_id
    young = connection.execute(
        select(func.min(c.sequence)).where(own, c.at_ms >= older_than_ms)
    ).scalar()
    newest, oldest = connection.execute(
        select(func.max(c.sequence), func.min(c.sequence)).where(own)
    ).one()
    # The newest entry stays in any case: the chain goes on from it.
    last = min(newest, newest if young is None else young) - 1 if newest is not None else 0
    if newest is None or last < oldest:
        return None
    gone = (own) & (c.sequence <= last)
    end = connection.execute(select(LEDGER).where(own, c.sequence == last)).one()
    counted = connection.execute(
        select(
            func.count(c.decision_id).label("decisions"),
            func.min(c.decision_id).label("first_decision"),
            func.max(c.decision_id).label("last_decision"),
            func.count(c.session_id).label("sessions"),
            func.max(c.revision).label("revision"),
            func.min(c.at_ms).label("first_ms"),
            func.max(c.at_ms).label("last_ms"),
        ).where(gone)
    ).one()
    before = checkpoints.latest(connection, cluster_id)
    revision = counted.revision or (before.last_revision if before else 0)
    return PrunedCluster(
        cluster=cluster,
        last_sequence=last,
        last_hash=end.hash,
        last_revision=revision,
        decisions=counted.decisions,
        first_decision=counted.first_decision,
        last_decision=counted.last_decision,
        first_ms=counted.first_ms,
        last_ms=counted.last_ms,
        sessions=counted.sessions,
        versions=sum(
            _ended(connection, table, cluster_id, revision) for table in VERSIONS.values()
        ),
        hypothetical_left=_hypothetical_left(connection, cluster_id, last, revision),
    )


def _hypothetical_left(connection: Connection, cluster_id: int, last: int, revision: int) -> int:
    c = LEDGER.c
    left = 0
    for table, number in ((DECISIONS, c.decision_id), (SESSIONS, c.session_id)):
        query = (
            select(func.count())
            .join_from(table, LEDGER, number == table.c.id)
            .where(c.cluster_id == cluster_id, c.sequence > last)
            .where(table.c.hypothetical, table.c.base_revision < revision)
        )
        left += int(connection.execute(query).scalar_one())
    return left


def _ended_by(table: Table, cluster_id: int, revision: int) -> ColumnElement[bool]:
    return (table.c.cluster_id == cluster_id) & (table.c.valid_to <= revision)


def _ended(connection: Connection, table: Table, cluster_id: int, revision: int) -> int:
    query = select(func.count()).select_from(table).where(_ended_by(table, cluster_id, revision))
    return int(connection.execute(query).scalar_one())


def prune(
    connection: Connection,
    older_than_ms: int,
    *,
    cluster: str | None = None,
    actor: str,
    at_ms: int,
) -> PrunePlan:
    """Take out whole stretches of the past; keep each `head`: it proves what stays."""
    if connection.dialect.name == "postgresql":
        partitions.alone(connection)
    names = plan(connection, older_than_ms, cluster=cluster).clusters
    done: list[PrunedCluster] = []
    decisions: dict[int, Sequence[int]] = {}
    for name in [found.cluster for found in names]:
        head = find_head(connection, name, lock=True)
        assert head is not None
        again = plan(connection, older_than_ms, cluster=name).clusters
        if not again:
            continue
        taken = again[0]
        decisions[head.cluster_id] = _take_out(connection, head.cluster_id, taken)
        checkpoint, _ = checkpoints.digest(
            connection, head.cluster_id, taken.last_revision, ledger_format=LEDGER_FORMAT
        )
        row: dict[str, Any] = {
            "cluster_id": head.cluster_id,
            "at_ms": at_ms,
            "actor": actor,
            "older_than_ms": older_than_ms,
            "last_sequence": taken.last_sequence,
            "last_hash": taken.last_hash,
            "last_revision": taken.last_revision,
            "decision_count": taken.decisions,
            "version_count": taken.versions,
            "checkpoint_digest": checkpoint,
            **identity.columns(connection),
        }
        row["id"] = connection.execute(insert(PRUNINGS).returning(PRUNINGS.c.id), row).scalar_one()
        head_hash = entries.append(
            connection,
            head,
            entries.EntryKind.PRUNING,
            [rows.line(PRUNINGS, row)],
            subject_digest=checkpoint,
            at_ms=at_ms,
            actor=actor,
            pruning_id=row["id"],
        )
        done.append(replace(taken, head=head_hash))
    _take_out_decisions(connection, [*chain.from_iterable(decisions.values())])
    for cluster_id, gone in decisions.items():
        spans.renew(connection, cluster_id, gone)
    _drop_unused_rule_sets(connection)
    return PrunePlan(older_than_ms=older_than_ms, clusters=tuple(done))


def _take_out(connection: Connection, cluster_id: int, taken: PrunedCluster) -> Sequence[int]:
    """Take out all but the decisions; gives their numbers."""
    gone = (LEDGER.c.cluster_id == cluster_id) & (LEDGER.c.sequence <= taken.last_sequence)
    named = {
        column: connection.execute(
            select(LEDGER.c[column]).where(gone, LEDGER.c[column].is_not(None))
        )
        .scalars()
        .all()
        for column in ("decision_id", "session_id", "observation_id", "gap_id", "simulation_id")
    }
    totals = Totals()
    for owner in Owner:
        totals.take(connection, owner, named[owner.value], sign=-1)
    totals.write(connection)
    connection.execute(delete(LEDGER).where(gone))
    _delete(connection, SESSION_STEPS, "session_id", named["session_id"])
    _delete(connection, SESSIONS, "id", named["session_id"])
    _delete(connection, OBSERVED_VICTIMS, "observation_id", named["observation_id"])
    _delete(connection, OBSERVATIONS, "id", named["observation_id"])
    _delete(connection, GAPS, "id", named["gap_id"])
    _delete(connection, SIMULATIONS, "id", named["simulation_id"])
    revision = taken.last_revision
    for table in VERSIONS.values():
        connection.execute(delete(table).where(_ended_by(table, cluster_id, revision)))
    _delete_nominations(connection, cluster_id, revision)
    for table in (DECISION_OUTCOMES, SESSION_OUTCOMES):
        f = table.c
        connection.execute(delete(table).where(f.cluster_id == cluster_id, f.revision <= revision))
    connection.execute(
        delete(REVISIONS).where(REVISIONS.c.cluster_id == cluster_id, REVISIONS.c.number < revision)
    )
    return named["decision_id"]


def _take_out_decisions(connection: Connection, ids: Sequence[int]) -> None:
    """At the end: others wait from the first partition on that is dropped."""
    left = ids
    if connection.dialect.name == "postgresql":
        left = partitions.drop_whole(connection, ids)
    for table in DECISION_CHILDREN:
        _delete(connection, table, "decision_id", left)
    _delete(connection, DECISIONS, "id", left)
    _delete(connection, CYCLES, "id", ids)


_CHUNK = 500


def _delete(connection: Connection, table: Table, column: str, values: Collection[int]) -> None:
    ids = sorted(values)
    for start in range(0, len(ids), _CHUNK):
        connection.execute(delete(table).where(table.c[column].in_(ids[start : start + _CHUNK])))


def _delete_nominations(connection: Connection, cluster_id: int, revision: int) -> None:
    n, e = NOMINATIONS.c, NOMINATION_ENDS.c
    over = (e.cluster_id == cluster_id) & (e.ended_revision <= revision)
    found = connection.execute(select(e.made_revision, e.pod).where(over)).all()
    connection.execute(delete(NOMINATION_ENDS).where(over))
    for start in range(0, len(found), _CHUNK):
        either = [
            (n.made_revision == row.made_revision) & (n.pod == row.pod)
            for row in found[start : start + _CHUNK]
        ]
        connection.execute(delete(NOMINATIONS).where(n.cluster_id == cluster_id, or_(*either)))


def _drop_unused_rule_sets(connection: Connection) -> None:
    used = [
        select(table.c[column]).where(table.c[column].is_not(None))
        for table, column in (
            (DECISIONS, "rule_set_id"),
            (SESSIONS, "rule_set_id"),
            (ACTIVATIONS, "rule_set_id"),
            (ACTIVATIONS, "previous_rule_set_id"),
            (SCHEDULERS, "rule_set_id"),
            (SIMULATIONS, "rule_set_id"),
        )
    ]
    connection.execute(delete(RULE_SETS).where(*(RULE_SETS.c.id.not_in(one) for one in used)))
