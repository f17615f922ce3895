"""Rows that belong to no ledger entry."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from sqlalchemy import (
    ColumnElement,
    Connection,
    Select,
    Table,
    func,
    literal,
    null,
    or_,
    select,
)

from policy.store.tables import (
    ACTIVATIONS,
    CLUSTERS,
    CYCLES,
    DECISION_CHILDREN,
    DECISION_OUTCOMES,
    DECISIONS,
    ENVIRONMENTS,
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Orphan:
    """A row that no entry covers."""

    cluster: str
    detail: str
    decision_id: int | None
    revision: int | None


_BATCH: Final = 1000

#: Newest revision whose past was pruned away, per cluster.
_PRUNED: Final = (
    select(PRUNINGS.c.cluster_id, func.max(PRUNINGS.c.last_revision).label("revision"))
    .group_by(PRUNINGS.c.cluster_id)
    .subquery()
)


def orphans(connection: Connection, cluster_ids: Collection[int] | None) -> Iterator[Orphan]:
    """Rows that belong to no entry.

    Of all clusters, or of some (`cluster_ids`) and of none: which no cluster's entries would show.
    """
    names = {row.id: row.name for row in connection.execute(select(CLUSTERS))}
    others = frozenset[int]() if cluster_ids is None else names.keys() - set(cluster_ids)
    return (
        Orphan(
            cluster=names.get(row.cluster_id, ""),
            detail=detail,
            decision_id=row.decision_id,
            revision=row.revision,
        )
        for detail, query in _queries()
        for row in connection.execute(query.execution_options(yield_per=_BATCH))
        if row.cluster_id not in others
    )


def _select(*, cluster: Any = None, decision: Any = None, revision: Any = None) -> Select[Any]:
    def column(value: Any, name: str) -> ColumnElement[Any]:
        return (null() if value is None else value).label(name)

    return select(
        column(cluster, "cluster_id"),
        column(decision, "decision_id"),
        column(revision, "revision"),
    )


@cache
def _queries() -> tuple[tuple[str, Select[Any]], ...]:
    return tuple(_all_queries())


def _all_queries() -> Iterator[tuple[str, Select[Any]]]:
    yield (
        "a cluster without ledger",
        _select(cluster=CLUSTERS.c.id).where(
            ~select(literal(1)).where(LEDGER.c.cluster_id == CLUSTERS.c.id).exists()
        ),
    )
    yield (
        "a ledger entry of no cluster",
        _select(cluster=LEDGER.c.cluster_id).where(
            ~select(literal(1)).where(CLUSTERS.c.id == LEDGER.c.cluster_id).exists()
        ),
    )
    for table in (DECISIONS, CYCLES):
        yield (
            f"a row of {table.name} without ledger entry",
            _select(cluster=table.c.cluster_id, decision=table.c.id).where(
                ~select(literal(1)).where(LEDGER.c.decision_id == table.c.id).exists()
            ),
        )
    for table in DECISION_CHILDREN:
        yield (
            f"a row of {table.name} without decision",
            _select(decision=table.c.decision_id).where(
                ~select(literal(1)).where(DECISIONS.c.id == table.c.decision_id).exists()
            ),
        )
    yield from _others()
    yield from _of_revisions()


def _lacks(table: Table, column: str) -> ColumnElement[bool]:
    """No ledger entry names the row."""
    return table.c.id.not_in(select(LEDGER.c[column]).where(LEDGER.c[column].is_not(None)))


def _others() -> Iterator[tuple[str, Select[Any]]]:
    yield (
        "a session without ledger entry",
        _select(cluster=SESSIONS.c.cluster_id).where(_lacks(SESSIONS, "session_id")),
    )
    yield (
        "a session step without session",
        _select()
        .select_from(SESSION_STEPS)
        .where(~select(literal(1)).where(SESSIONS.c.id == SESSION_STEPS.c.session_id).exists()),
    )
    for table, column in (
        (OBSERVATIONS, "observation_id"),
        (GAPS, "gap_id"),
        (SIMULATIONS, "simulation_id"),
    ):
        yield (
            f"a row of {table.name} without ledger entry",
            _select(cluster=table.c.cluster_id).where(_lacks(table, column)),
        )
    observed = select(literal(1)).where(OBSERVATIONS.c.id == OBSERVED_VICTIMS.c.observation_id)
    yield (
        "an observed victim without observation",
        _select(cluster=OBSERVED_VICTIMS.c.cluster_id).where(~observed.exists()),
    )
    # An earlier pruning, whose entry went with a later one, is covered by that one's checkpoint.
    next_one = PRUNINGS.alias("next_one")
    later = (
        select(literal(1))
        .select_from(LEDGER)
        .join(next_one, next_one.c.id == LEDGER.c.pruning_id)
        .where(next_one.c.cluster_id == PRUNINGS.c.cluster_id, next_one.c.id > PRUNINGS.c.id)
        .correlate(PRUNINGS)
        .exists()
    )
    yield (
        "a pruning without ledger entry",
        _select(cluster=PRUNINGS.c.cluster_id).where(_lacks(PRUNINGS, "pruning_id"), ~later),
    )
    # Where entries were pruned, the checkpoint covers what they were about.
    unpruned = ENVIRONMENTS.c.cluster_id.not_in(select(PRUNINGS.c.cluster_id))
    yield (
        "an environment without ledger entry",
        _select(cluster=ENVIRONMENTS.c.cluster_id).where(
            _lacks(ENVIRONMENTS, "environment_id"), unpruned
        ),
    )
    for table, column, what in (
        (ACTIVATIONS, "activation_id", "an activation"),
        (SCHEDULERS, "scheduler_id", "a scheduler's profile"),
    ):
        yield (
            f"{what} without ledger entry",
            _select(cluster=ENVIRONMENTS.c.cluster_id)
            .select_from(table)
            .outerjoin(ENVIRONMENTS, ENVIRONMENTS.c.id == table.c.environment_id)
            .where(_lacks(table, column), or_(ENVIRONMENTS.c.id.is_(None), unpruned)),
        )
    unused = [
        ~select(literal(1)).where(table.c[column] == RULE_SETS.c.id).exists()
        for table, column in (
            (DECISIONS, "rule_set_id"),
            (SESSIONS, "rule_set_id"),
            (ACTIVATIONS, "rule_set_id"),
            (SCHEDULERS, "rule_set_id"),
            (SIMULATIONS, "rule_set_id"),
        )
    ]
    yield "a rule set that nothing used", _select().select_from(RULE_SETS).where(*unused)


def _of_revisions() -> Iterator[tuple[str, Select[Any]]]:
    r = REVISIONS.c
    entry = select(literal(1)).where(
        LEDGER.c.cluster_id == r.cluster_id, LEDGER.c.revision == r.number
    )
    yield (
        "a revision without ledger entry",
        _select(cluster=r.cluster_id, revision=r.number)
        .outerjoin_from(REVISIONS, _PRUNED, _PRUNED.c.cluster_id == r.cluster_id)
        .where(
            ~entry.exists(),
            or_(_PRUNED.c.revision.is_(None), r.number > _PRUNED.c.revision),
        ),
    )
    for table in VERSIONS.values():
        yield from _of_versions(table)
    for table, column in ((NOMINATIONS, "made_revision"), (NOMINATION_ENDS, "ended_revision")):
        yield (
            f"a row of {table.name} without revision",
            _without_revision(table, table.c[column], revision=table.c.made_revision),
        )
    decision: dict[str, ColumnElement[Any]] = {"decision": DECISION_OUTCOMES.c.decision_id}
    for table, named in ((DECISION_OUTCOMES, decision), (SESSION_OUTCOMES, {})):
        f = table.c
        yield (
            f"a row of {table.name} without revision",
            _without_revision(table, f.revision, revision=f.revision),
        )
        yield (
            f"a row of {table.name} of a time that was pruned",
            _select(cluster=f.cluster_id, revision=f.revision, **named)
            .join_from(table, _PRUNED, _PRUNED.c.cluster_id == f.cluster_id)
            .where(f.revision <= _PRUNED.c.revision),
        )
    e = NOMINATION_ENDS.c
    yield (
        "a nomination's end of a time that was pruned",
        _select(cluster=e.cluster_id, revision=e.ended_revision)
        .join_from(NOMINATION_ENDS, _PRUNED, _PRUNED.c.cluster_id == e.cluster_id)
        .where(e.ended_revision <= _PRUNED.c.revision),
    )


def _without_revision(
    table: Table, number: ColumnElement[Any], *, revision: ColumnElement[Any]
) -> Select[Any]:
    """Rows whose revision is not there, and was not pruned."""
    known = select(literal(1)).where(
        REVISIONS.c.cluster_id == table.c.cluster_id, REVISIONS.c.number == number
    )
    return (
        _select(cluster=table.c.cluster_id, revision=revision)
        .outerjoin_from(table, _PRUNED, _PRUNED.c.cluster_id == table.c.cluster_id)
        .where(
            ~known.exists(),
            or_(_PRUNED.c.revision.is_(None), number > _PRUNED.c.revision),
        )
    )


def _of_versions(table: Table) -> Iterator[tuple[str, Select[Any]]]:
    c = table.c
    yield (
        f"a version in {table.name} that no revision began",
        _without_revision(table, c.valid_from, revision=c.valid_from),
    )
    yield (
        f"a version in {table.name} that no revision ended",
        _without_revision(table, c.valid_to, revision=c.valid_to).where(c.valid_to.is_not(None)),
    )
    yield (
        f"a version in {table.name} of a time that was pruned",
        _select(cluster=c.cluster_id, revision=c.valid_to)
        .join_from(table, _PRUNED, _PRUNED.c.cluster_id == c.cluster_id)
        .where(c.valid_to <= _PRUNED.c.revision),
    )
