"""The state that remains where the past before it was pruned, and its digest."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from sqlalchemy import Connection, Select, and_, func, or_, select

from policy.store import rows
from policy.store.ledger.covering import RuleSetLines, manifest_defect
from policy.store.state.loading import true_at
from policy.store.tables import (
    ACTIVATIONS,
    ENVIRONMENTS,
    LEDGER,
    NOMINATION_ENDS,
    NOMINATIONS,
    PRUNINGS,
    REVISIONS,
    SCHEDULERS,
    VERSIONS,
)
from policy.store.tables.base import LEDGER_FORMAT

_BATCH = 5000


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Up to where a cluster's past was pruned, and the digest of what was left of it."""

    last_sequence: int
    last_hash: str
    last_revision: int
    digest: str
    format: int  #: of the ledger entry about the pruning, and so of the lines of the digest


def latest(connection: Connection, cluster_id: int) -> Checkpoint | None:
    """The newest pruning of a cluster."""
    row = connection.execute(
        select(PRUNINGS, func.coalesce(LEDGER.c.format, LEDGER_FORMAT).label("format"))
        .outerjoin(LEDGER, LEDGER.c.pruning_id == PRUNINGS.c.id)
        .where(PRUNINGS.c.cluster_id == cluster_id)
        .order_by(PRUNINGS.c.id.desc())
        .limit(1)
    ).first()
    if row is None:
        return None
    return Checkpoint(
        last_sequence=row.last_sequence,
        last_hash=row.last_hash,
        last_revision=row.last_revision,
        digest=row.checkpoint_digest,
        format=row.format,
    )


def clusters_pruned_at(last_hash: str) -> Select[tuple[int]]:
    """Clusters whose pruned past ended with an entry of that hash."""
    return select(PRUNINGS.c.cluster_id).where(PRUNINGS.c.last_hash == last_hash)


def digest(
    connection: Connection, cluster_id: int, revision: int, *, ledger_format: int
) -> tuple[str, list[str]]:
    """Digest of all rows that are left of the time up to a revision, and defects found in them."""
    defects: list[str] = []
    lines = list(_lines(connection, cluster_id, revision, ledger_format, defects))
    return rows.digest_of(lines), defects


def _lines(
    connection: Connection, cluster_id: int, revision: int, ledger_format: int, defects: list[str]
) -> Iterator[bytes]:
    line = partial(rows.line, ledger_format=ledger_format)
    r = REVISIONS.c
    kept = select(REVISIONS).where(r.cluster_id == cluster_id, r.number <= revision)
    for row in connection.execute(kept).mappings():
        yield line(REVISIONS, row)
    for table in VERSIONS.values():
        query = select(table).where(true_at(table, cluster_id, revision))
        for row in connection.execute(query.execution_options(yield_per=_BATCH)).mappings():
            yield line(table, row)
            defect = manifest_defect(table, row)
            if defect:
                defects.append(defect)
    n, e = NOMINATIONS.c, NOMINATION_ENDS.c
    same = and_(e.cluster_id == n.cluster_id, e.made_revision == n.made_revision, e.pod == n.pod)
    standing = (
        select(NOMINATIONS)
        .outerjoin(NOMINATION_ENDS, same)
        .where(n.cluster_id == cluster_id, n.made_revision <= revision)
        .where(or_(e.ended_revision.is_(None), e.ended_revision > revision))
    )
    for row in connection.execute(standing).mappings():
        yield line(NOMINATIONS, row)
    yield from _without_entry(connection, cluster_id, ledger_format, defects)


def _without_entry(
    connection: Connection, cluster_id: int, ledger_format: int, defects: list[str]
) -> Iterator[bytes]:
    """Environments with what is set in them, and prunings: their entries are pruned, they stay."""
    line = partial(rows.line, ledger_format=ledger_format)
    prunings = (
        select(PRUNINGS)
        .outerjoin(LEDGER, LEDGER.c.pruning_id == PRUNINGS.c.id)
        .where(PRUNINGS.c.cluster_id == cluster_id, LEDGER.c.hash.is_(None))
    )
    for row in connection.execute(prunings).mappings():
        yield line(PRUNINGS, row)
    environments = (
        select(ENVIRONMENTS)
        .outerjoin(LEDGER, LEDGER.c.environment_id == ENVIRONMENTS.c.id)
        .where(ENVIRONMENTS.c.cluster_id == cluster_id, LEDGER.c.hash.is_(None))
    )
    for row in connection.execute(environments).mappings():
        yield line(ENVIRONMENTS, row)
    rule_sets = RuleSetLines(connection)
    for table, entry in ((ACTIVATIONS, "activation_id"), (SCHEDULERS, "scheduler_id")):
        unnamed = (
            select(table)
            .join(ENVIRONMENTS, ENVIRONMENTS.c.id == table.c.environment_id)
            .outerjoin(LEDGER, LEDGER.c[entry] == table.c.id)
            .where(ENVIRONMENTS.c.cluster_id == cluster_id, LEDGER.c.hash.is_(None))
        )
        for row in connection.execute(unnamed).mappings():
            yield line(table, row)
            for rule_set_id in {row["rule_set_id"], row.get("previous_rule_set_id")} - {None}:
                text = rule_sets.line(rule_set_id, ledger_format)
                if text is not None:
                    yield text
                if rule_sets.defect(rule_set_id):
                    defects.append(rule_sets.defect(rule_set_id))
