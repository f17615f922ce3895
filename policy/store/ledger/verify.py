"""Is the record untouched? Everything is computed again from the rows.

Walking a cluster's ledger in order, each entry must follow the one before, hash to its hash, and
have exactly the rows that it hashed. Afterwards no row may be left that belongs to no entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, Row, func, select

from policy.store import rows, totals
from policy.store.connection import any_text
from policy.store.ledger import checkpoints, covering, entries, witnesses
from policy.store.ledger.findings import Finding, Findings, TamperKind, VerifyResult, subject
from policy.store.ledger.orphans import Orphan, orphans
from policy.store.ledger.witnesses import KeptHead, LedgerRead
from policy.store.state.loading import cluster_id
from policy.store.tables import CLUSTERS, LEDGER

Progress = Callable[[int, int], None]
"""Called with the number of ledger entries checked so far, and of those to check."""

_STRETCH: Final = 400
DEFAULT_LIMIT: Final = 100
"""Findings that are given in full, unless more are wanted."""


@dataclass(slots=True)
class _Walk:
    """The walk along one cluster's ledger."""

    cluster_id: int
    cluster: str
    findings: Findings
    sequence: int = 0  #: last one seen
    hash: str = entries.GENESIS
    decision_id: int = 0  #: last one seen

    def found(self, harm: TamperKind, detail: str, entry: Row[Any] | None = None) -> None:
        self.findings.add(
            Finding(
                cluster=self.cluster,
                harm=harm,
                detail=detail,
                sequence=None if entry is None else entry.sequence,
                decision_id=None if entry is None else entry.decision_id,
                revision=None if entry is None else entry.revision,
                subject="" if entry is None else subject(dict(entry._mapping)),
            )
        )


def verify(
    connection: Connection,
    cluster: str | None = None,
    *,
    from_hash: str | None = None,
    kept: Sequence[str | KeptHead] = (),
    accept_pruning: bool = False,
    limit: int = DEFAULT_LIMIT,
    progress: Progress | None = None,
) -> VerifyResult:
    """Compute every hash again from the rows, and name what was changed.

    from_hash: begin with the entry that has this hash, and take what is before it on trust, the
    totals of the record too.
    kept: heads that were kept elsewhere, as hashes or with their entry's number; each must be
    of an entry that is read. accept_pruning: these, and `from_hash`, may also be of entries
    that were pruned. limit: how many findings are given in full; the others are counted.
    Raises NotFound for an unknown cluster, StoreError for a head of an entry before `from_hash`.
    """
    witnessed = [KeptHead(hash=head) if isinstance(head, str) else head for head in kept]
    findings = Findings(limit=limit)
    with any_text(connection):
        walks = _walks(connection, cluster, from_hash, limit)
        for walk in walks:
            _begin(connection, walk, from_hash)
        read = {w.cluster: LedgerRead(cluster_id=w.cluster_id, first=w.sequence + 1) for w in walks}
        pruned = witnesses.prunings_of(connection, [w.cluster_id for w in walks])
        checked = _walked(connection, walks, progress)
        for walk in walks:
            findings.take(walk.findings)
        if from_hash is not None:
            witnessed = [KeptHead(hash=from_hash), *witnessed]
        for missing in witnesses.missing(
            connection, witnessed, read, pruned, accept_pruning=accept_pruning
        ):
            findings.add(missing)
        if walks or from_hash is None:
            ids = None if cluster is None and from_hash is None else [w.cluster_id for w in walks]
            for orphan in orphans(connection, ids):
                findings.add(_inserted(orphan))
            if from_hash is None and not findings.shown and not findings.more:
                # Rows that were changed make totals differ: that is no finding of its own. Totals
                # count all rows, and say nothing of those that follow a hash.
                names = None if ids is None else {"", *(w.cluster for w in walks)}
                for total in totals.wrong(connection):
                    if names is None or total.cluster in names:
                        findings.add(_miscounted(total))
        heads = entries.heads(connection, cluster)
    return VerifyResult(
        entries=checked,
        heads=tuple(heads),
        findings=tuple(findings.shown),
        more=findings.more,
        prunings=tuple(pruned),
    )


def _inserted(orphan: Orphan) -> Finding:
    return Finding(
        cluster=orphan.cluster,
        harm=TamperKind.INSERTED,
        detail=orphan.detail,
        decision_id=orphan.decision_id,
        revision=orphan.revision,
        subject=subject({"decision_id": orphan.decision_id, "revision": orphan.revision}),
    )


def _miscounted(total: totals.WrongTotal) -> Finding:
    return Finding(
        cluster=total.cluster,
        harm=TamperKind.CHANGED,
        detail=f"{total.table} at {total.key} is not what the rows of the record add up to;"
        " `policy db recount` computes it again",
    )


def _walks(
    connection: Connection, cluster: str | None, from_hash: str | None, limit: int
) -> list[_Walk]:
    query = select(CLUSTERS.c.id, CLUSTERS.c.name).order_by(CLUSTERS.c.id)
    if cluster is not None:
        query = query.where(CLUSTERS.c.id == cluster_id(connection, cluster))
    if from_hash is not None:
        holder = select(LEDGER.c.cluster_id).where(LEDGER.c.hash == from_hash)
        pruned = checkpoints.clusters_pruned_at(from_hash)
        query = query.where(CLUSTERS.c.id.in_(holder.union(pruned)))
    return [
        _Walk(cluster_id=row.id, cluster=row.name, findings=Findings(limit=limit))
        for row in connection.execute(query).all()
    ]


def _walked(connection: Connection, walks: Sequence[_Walk], progress: Progress | None) -> int:
    """Walk all of the ledgers; gives the number of entries that were checked."""
    known = covering.RuleSetLines(connection)
    total = sum(_length(connection, walk) for walk in walks) if progress is not None else 0
    checked = 0
    for walk in walks:
        for count in _walk(connection, walk, known):
            checked += count
            if progress is not None:
                progress(checked, total)
        _check_checkpoint(connection, walk)
    return checked


def _begin(connection: Connection, walk: _Walk, from_hash: str | None) -> None:
    """Where the walk starts: at the genesis, after the pruned past, or with a given entry."""
    start = checkpoints.latest(connection, walk.cluster_id)
    if start is not None:
        walk.sequence, walk.hash = start.last_sequence, start.last_hash
    c = LEDGER.c
    early = select(LEDGER).where(c.cluster_id == walk.cluster_id, c.sequence <= walk.sequence)
    for inserted in connection.execute(early.order_by(c.sequence)):
        walk.found(TamperKind.INSERTED, "an entry before the first one", inserted)
    if from_hash is not None and from_hash != walk.hash:
        # The entry itself is computed again: its hash stands for all before it only if it is its.
        entry = connection.execute(
            select(c.sequence, c.previous).where(
                c.cluster_id == walk.cluster_id, c.hash == from_hash
            )
        ).first()
        if entry is not None:  # else the entry was pruned, and all that stays is read
            walk.sequence, walk.hash = entry.sequence - 1, entry.previous


def _length(connection: Connection, walk: _Walk) -> int:
    c = LEDGER.c
    query = select(func.count()).where(c.cluster_id == walk.cluster_id, c.sequence > walk.sequence)
    return int(connection.execute(query).scalar_one())


def _walk(connection: Connection, walk: _Walk, known: covering.RuleSetLines) -> Iterator[int]:
    """Check all entries, in stretches; gives the number of entries of each."""
    c = LEDGER.c
    while True:
        entries = connection.execute(
            select(LEDGER)
            .where(c.cluster_id == walk.cluster_id, c.sequence > walk.sequence)
            .order_by(c.sequence)
            .limit(_STRETCH)
        ).all()
        if not entries:
            return
        covered = covering.read(connection, walk.cluster_id, entries, known)
        for entry in entries:
            if entry.sequence != walk.sequence + 1:
                walk.findings.add(_gap(connection, walk, entry))
            _check(walk, entry, covered)
        yield len(entries)


def _gap(connection: Connection, walk: _Walk, entry: Row[Any]) -> Finding:
    """Entries are missing before this one; the numbers around tell which decisions went along."""
    first, last = walk.sequence + 1, entry.sequence - 1
    c = LEDGER.c
    after = connection.execute(
        select(func.min(c.decision_id)).where(
            c.cluster_id == walk.cluster_id, c.sequence > last, c.decision_id > walk.decision_id
        )
    ).scalar()
    first_missing: int | None = None
    if after is not None:
        # Decisions of all clusters are numbered in one sequence.
        elsewhere = select(c.decision_id).where(
            c.decision_id > walk.decision_id, c.decision_id < after
        )
        there = set(connection.execute(elsewhere).scalars())
        numbers = range(walk.decision_id + 1, after)
        if 0 < len(numbers) - len(there) <= last - first + 1:
            first_missing = next(number for number in numbers if number not in there)
    return Finding(
        cluster=walk.cluster,
        harm=TamperKind.REMOVED,
        detail=f"entry {first} of the ledger is missing"
        if first == last
        else f"entries {first} to {last} of the ledger are missing",
        sequence=first,
        decision_id=first_missing,
        subject="" if first_missing is None else f"decision {first_missing}",
    )


def _check(walk: _Walk, entry: Row[Any], covered: covering.Covered) -> None:
    owners = covering.owners_of(entry)
    lines = [line for owner in owners for line in covered.lines.get(owner, ())]
    if entry.sequence == walk.sequence + 1 and entry.previous != walk.hash:
        walk.found(TamperKind.REORDERED, "the entry does not follow the one before it", entry)
    if entries.hash_of(walk.cluster_id, walk.cluster, entry._mapping) != entry.hash:
        walk.found(TamperKind.CHANGED, "the entry is not the one that was written", entry)
    elif rows.digest_of(lines) != entry.rows_digest:
        walk.found(TamperKind.CHANGED, "the rows are not those that were written", entry)
    else:
        _check_subject(walk, entry, owners, covered)
    walk.sequence, walk.hash = entry.sequence, entry.hash
    walk.decision_id = entry.decision_id or walk.decision_id


def _check_subject(
    walk: _Walk, entry: Row[Any], owners: list[covering.Owner], covered: covering.Covered
) -> None:
    """The texts that the rows cover by their digests only."""
    for owner in owners:
        if owner in covered.defects:
            walk.found(TamperKind.CHANGED, covered.defects[owner], entry)
            return
    digests = {covered.digests[owner] for owner in owners if owner in covered.digests}
    if digests and entry.subject_digest not in digests:
        walk.found(TamperKind.CHANGED, "the entry is about another digest", entry)


def _check_checkpoint(connection: Connection, walk: _Walk) -> None:
    """What a pruning left of the past is what it left."""
    start = checkpoints.latest(connection, walk.cluster_id)
    if start is None:
        return
    found, defects = checkpoints.digest(
        connection, walk.cluster_id, start.last_revision, ledger_format=start.format
    )
    if found != start.digest:
        defects.insert(0, "the state that the pruning left is not what it was")
    for defect in defects:
        walk.found(TamperKind.CHANGED, defect)
