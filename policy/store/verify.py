"""Is the record untouched? Everything is computed again from the rows.

Walking a cluster's ledger in order, each entry must follow the one before, hash to its hash, and
have exactly the rows that it hashed. Afterwards no row may be left that belongs to no entry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from sqlalchemy import Connection, Row, select

from policy.store import checkpoints, covering, ledger, rows
from policy.store.orphans import orphans
from policy.store.tables import CLUSTERS, LEDGER

Progress = Callable[[int], None]
"""Called with the number of ledger entries checked so far."""

_STRETCH: Final = 400
MAX_FINDINGS: Final = 100


class Harm(StrEnum):
    """What was done to the record."""

    CHANGED = "changed"  # a row, or the entry itself, is not what was written
    INSERTED = "inserted"  # rows that no entry covers
    REMOVED = "removed"  # entries lack
    REORDERED = "reordered"  # an entry does not follow the one before it


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One place where the record is not what was written."""

    cluster: str
    harm: Harm
    detail: str
    sequence: int | None = None  #: of the ledger entry
    decision_id: int | None = None
    revision: int | None = None
    subject: str = ""  #: what the entry is about: `decision 12`, `activation 3`


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyResult:
    """`findings` is empty where the record is untouched; the first in ledger order is first."""

    entries: int
    heads: tuple[ledger.LedgerHead, ...]
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        return not self.findings


@dataclass(slots=True)
class _Walk:
    """The walk along one cluster's ledger."""

    cluster_id: int
    cluster: str
    sequence: int = 0  #: last one seen
    hash: str = ledger.GENESIS
    findings: list[Finding] = field(default_factory=list)

    def found(self, harm: Harm, detail: str, entry: Row[Any] | None = None) -> None:
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(
                Finding(
                    cluster=self.cluster,
                    harm=harm,
                    detail=detail,
                    sequence=None if entry is None else entry.sequence,
                    decision_id=None if entry is None else entry.decision_id,
                    revision=None if entry is None else entry.revision,
                    subject="" if entry is None else _subject(entry),
                )
            )


_SUBJECTS: Final = ("decision", "session", "environment", "activation", "pruning")


def _subject(entry: Row[Any]) -> str:
    for name in _SUBJECTS:
        number = entry._mapping[f"{name}_id"]
        if number is not None:
            return f"{name} {number}"
    return "" if entry.revision is None else f"revision {entry.revision}"


def verify(
    connection: Connection,
    *,
    cluster: str | None,
    from_hash: str | None,
    progress: Progress | None,
) -> VerifyResult:
    """Check the ledgers of all clusters, or of one; from the entry after a signed-off hash on."""
    query = select(CLUSTERS.c.id, CLUSTERS.c.name).order_by(CLUSTERS.c.id)
    if cluster is not None:
        query = query.where(CLUSTERS.c.name == cluster)
    if from_hash is not None:
        holder = select(LEDGER.c.cluster_id).where(LEDGER.c.hash == from_hash)
        pruned = checkpoints.clusters_pruned_at(from_hash)
        query = query.where(CLUSTERS.c.id.in_(holder.union(pruned)))
    walks = [_Walk(cluster_id=row.id, cluster=row.name) for row in connection.execute(query).all()]
    if from_hash is not None and not walks:
        lost = Finding(
            cluster=cluster or "",
            harm=Harm.REMOVED,
            detail=f"no ledger holds an entry with hash {from_hash}",
        )
        return VerifyResult(entries=0, heads=(), findings=(lost,))
    known = covering.RuleSetLines(connection)
    checked = 0
    for walk in walks:
        _begin(connection, walk, from_hash)
        checked = _walk(connection, walk, known, checked, progress)
        _check_checkpoint(connection, walk)
    findings = [found for walk in walks for found in walk.findings]
    if not findings or len(findings) < MAX_FINDINGS:
        ids = None if cluster is None and from_hash is None else [w.cluster_id for w in walks]
        findings += [
            Finding(
                cluster=found.cluster,
                harm=Harm.INSERTED,
                detail=found.detail,
                decision_id=found.decision_id,
                revision=found.revision,
            )
            for found in orphans(connection, ids, limit=MAX_FINDINGS - len(findings))
        ]
    return VerifyResult(
        entries=checked, heads=tuple(ledger.heads(connection, cluster)), findings=tuple(findings)
    )


def _begin(connection: Connection, walk: _Walk, from_hash: str | None) -> None:
    """Where the walk starts: at the genesis, after the pruned past, or after a given entry."""
    start = checkpoints.latest(connection, walk.cluster_id)
    if start is not None:
        walk.sequence, walk.hash = start.last_sequence, start.last_hash
    c = LEDGER.c
    early = select(LEDGER).where(c.cluster_id == walk.cluster_id, c.sequence <= walk.sequence)
    for entry in connection.execute(early.order_by(c.sequence).limit(1)):
        walk.found(Harm.INSERTED, "an entry before the first one", entry)
    if from_hash is not None and from_hash != walk.hash:
        walk.sequence = connection.execute(
            select(c.sequence).where(c.cluster_id == walk.cluster_id, c.hash == from_hash)
        ).scalar_one()
        walk.hash = from_hash


def _walk(
    connection: Connection,
    walk: _Walk,
    known: covering.RuleSetLines,
    checked: int,
    progress: Progress | None,
) -> int:
    c = LEDGER.c
    while True:
        entries = connection.execute(
            select(LEDGER)
            .where(c.cluster_id == walk.cluster_id, c.sequence > walk.sequence)
            .order_by(c.sequence)
            .limit(_STRETCH)
        ).all()
        if not entries:
            return checked
        covered = covering.read(connection, walk.cluster_id, entries, known)
        for entry in entries:
            _check(walk, entry, covered)
        checked += len(entries)
        if progress is not None:
            progress(checked)


def _check(walk: _Walk, entry: Row[Any], covered: covering.Covered) -> None:
    owners = covering.owners_of(entry)
    lines = [line for owner in owners for line in covered.lines.get(owner, ())]
    if entry.sequence != walk.sequence + 1:
        first, last = walk.sequence + 1, entry.sequence - 1
        walk.found(Harm.REMOVED, f"entries {first} to {last} of the ledger lack", entry)
    elif entry.previous != walk.hash:
        walk.found(Harm.REORDERED, "the entry does not follow the one before it", entry)
    if ledger.hash_of(walk.cluster_id, walk.cluster, entry._mapping) != entry.hash:
        walk.found(Harm.CHANGED, "the entry is not the one that was written", entry)
    elif rows.digest_of(lines) != entry.rows_digest:
        walk.found(Harm.CHANGED, "the rows are not those that were written", entry)
    else:
        _check_subject(walk, entry, owners, covered)
    walk.sequence, walk.hash = entry.sequence, entry.hash


def _check_subject(
    walk: _Walk, entry: Row[Any], owners: list[covering.Owner], covered: covering.Covered
) -> None:
    """The texts that the rows cover by their digests only."""
    for owner in owners:
        if owner in covered.defects:
            walk.found(Harm.CHANGED, covered.defects[owner], entry)
            return
    digests = {covered.digests[owner] for owner in owners if owner in covered.digests}
    if digests and entry.subject_digest not in digests:
        walk.found(Harm.CHANGED, "the entry is about another digest", entry)


def _check_checkpoint(connection: Connection, walk: _Walk) -> None:
    """What a pruning left of the past is what it left."""
    start = checkpoints.latest(connection, walk.cluster_id)
    if start is None:
        return
    found, defects = checkpoints.digest(connection, walk.cluster_id, start.last_revision)
    if found != start.digest:
        defects.insert(0, "the state that the pruning left is not what it was")
    for defect in defects[:1]:
        walk.found(Harm.CHANGED, defect)
