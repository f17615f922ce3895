"""Is the record untouched? Everything is computed again from the rows.

Walking a cluster's ledger in order, each entry must follow the one before, hash to its hash, and
have exactly the rows that it hashed. Afterwards no row may be left that belongs to no entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from sqlalchemy import Connection, Row, func, select

from policy.store import rows
from policy.store.connection import any_text
from policy.store.ledger import checkpoints, covering, entries
from policy.store.ledger.entries import LedgerHead
from policy.store.ledger.orphans import orphans
from policy.store.state.loading import cluster_id
from policy.store.tables import CLUSTERS, LEDGER, PRUNINGS

Progress = Callable[[int, int], None]
"""Called with the number of ledger entries checked so far, and of those to check."""

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
    sequence: int | None = None  #: of the ledger entry; of the first one where several lack
    decision_id: int | None = None  #: None too for a removed one whose number nothing tells
    revision: int | None = None
    subject: str = ""  #: `decision 12`, `activation 3`, `revision 7`; "" where nothing tells


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyResult:
    """`findings` is empty where the record is untouched; the first in ledger order is first."""

    entries: int
    heads: tuple[LedgerHead, ...]
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
    hash: str = entries.GENESIS
    decision_id: int = 0  #: last one seen
    findings: list[Finding] = field(default_factory=list)

    def found(self, harm: Harm, detail: str, entry: Row[Any] | None = None) -> None:
        self.add(
            Finding(
                cluster=self.cluster,
                harm=harm,
                detail=detail,
                sequence=None if entry is None else entry.sequence,
                decision_id=None if entry is None else entry.decision_id,
                revision=None if entry is None else entry.revision,
                subject="" if entry is None else _subject(dict(entry._mapping)),
            )
        )

    def add(self, finding: Finding) -> None:
        if len(self.findings) < MAX_FINDINGS:
            self.findings.append(finding)


_SUBJECTS: Final = ("decision", "session", "environment", "activation", "pruning")


def _subject(ids: Mapping[str, int | None]) -> str:
    for name in _SUBJECTS:
        number = ids.get(f"{name}_id")
        if number is not None:
            return f"{name} {number}"
    revision = ids.get("revision")
    return "" if revision is None else f"revision {revision}"


def verify(
    connection: Connection,
    *,
    cluster: str | None,
    from_hash: str | None,
    signed: Sequence[str],
    progress: Progress | None,
) -> VerifyResult:
    """Check the ledgers of all clusters, or of one.

    from_hash: begin with the entry that has it, or after the past that was pruned up to it.
    signed: hashes that entries must have, or that a pruning ended with. Raises NotFound for an
    unknown cluster.
    """
    with any_text(connection):
        walks = _walks(connection, cluster, from_hash)
        findings, checked = _walked(connection, walks, from_hash, progress)
        findings += _lost(connection, [from_hash, *signed] if from_hash else signed)
        if walks or from_hash is None:
            ids = None if cluster is None and from_hash is None else [w.cluster_id for w in walks]
            findings += [
                Finding(
                    cluster=found.cluster,
                    harm=Harm.INSERTED,
                    detail=found.detail,
                    decision_id=found.decision_id,
                    revision=found.revision,
                    subject=_subject(
                        {"decision_id": found.decision_id, "revision": found.revision}
                    ),
                )
                for found in orphans(connection, ids, limit=max(0, MAX_FINDINGS - len(findings)))
            ]
        heads = entries.heads(connection, cluster)
    return VerifyResult(entries=checked, heads=tuple(heads), findings=tuple(findings))


def _walks(connection: Connection, cluster: str | None, from_hash: str | None) -> list[_Walk]:
    query = select(CLUSTERS.c.id, CLUSTERS.c.name).order_by(CLUSTERS.c.id)
    if cluster is not None:
        query = query.where(CLUSTERS.c.id == cluster_id(connection, cluster))
    if from_hash is not None:
        holder = select(LEDGER.c.cluster_id).where(LEDGER.c.hash == from_hash)
        pruned = checkpoints.clusters_pruned_at(from_hash)
        query = query.where(CLUSTERS.c.id.in_(holder.union(pruned)))
    return [_Walk(cluster_id=row.id, cluster=row.name) for row in connection.execute(query).all()]


def _lost(connection: Connection, hashes: Sequence[str]) -> Iterator[Finding]:
    """Hashes that were signed off, and that no entry has.

    Whether the entry with a hash is the one that was written is found by walking over it.
    """
    for wanted in dict.fromkeys(hashes):
        held = select(LEDGER.c.hash).where(LEDGER.c.hash == wanted)
        pruned = select(PRUNINGS.c.last_hash).where(PRUNINGS.c.last_hash == wanted)
        if connection.execute(held.union(pruned)).first() is None:
            # A head that was kept before a pruning went with what was older than its last hash.
            cut = connection.execute(select(PRUNINGS.c.last_hash).order_by(PRUNINGS.c.id)).first()
            yield Finding(
                cluster="",
                harm=Harm.REMOVED,
                detail=f"no entry has the hash {wanted}"
                + (", nor was it the last one that a pruning took" if cut is not None else ""),
            )


def _walked(
    connection: Connection,
    walks: Sequence[_Walk],
    from_hash: str | None,
    progress: Progress | None,
) -> tuple[list[Finding], int]:
    """All findings of the walks, and the number of entries that were checked."""
    known = covering.RuleSetLines(connection)
    for walk in walks:
        _begin(connection, walk, from_hash)
    total = sum(_length(connection, walk) for walk in walks) if progress is not None else 0
    checked = 0
    for walk in walks:
        for count in _walk(connection, walk, known):
            checked += count
            if progress is not None:
                progress(checked, total)
        _check_checkpoint(connection, walk)
    return [found for walk in walks for found in walk.findings], checked


def _begin(connection: Connection, walk: _Walk, from_hash: str | None) -> None:
    """Where the walk starts: at the genesis, after the pruned past, or with a given entry."""
    start = checkpoints.latest(connection, walk.cluster_id)
    if start is not None:
        walk.sequence, walk.hash = start.last_sequence, start.last_hash
    c = LEDGER.c
    early = select(LEDGER).where(c.cluster_id == walk.cluster_id, c.sequence <= walk.sequence)
    for entry in connection.execute(early.order_by(c.sequence).limit(1)):
        walk.found(Harm.INSERTED, "an entry before the first one", entry)
    if from_hash is not None and from_hash != walk.hash:
        # The entry itself is computed again: its hash stands for all before it only if it is its.
        entry = connection.execute(
            select(c.sequence, c.previous).where(
                c.cluster_id == walk.cluster_id, c.hash == from_hash
            )
        ).one()
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
                walk.add(_gap(connection, walk, entry))
            _check(walk, entry, covered)
        yield len(entries)


def _gap(connection: Connection, walk: _Walk, entry: Row[Any]) -> Finding:
    """Entries lack before this one. Which decisions went with them, the numbers around tell."""
    first, last = walk.sequence + 1, entry.sequence - 1
    c = LEDGER.c
    after = connection.execute(
        select(func.min(c.decision_id)).where(
            c.cluster_id == walk.cluster_id, c.sequence > last, c.decision_id > walk.decision_id
        )
    ).scalar()
    lacking: list[int] = []
    # Decisions of all clusters are numbered in one sequence.
    if after is not None and after - walk.decision_id - 1 <= _STRETCH:
        between = range(walk.decision_id + 1, after)
        elsewhere = select(c.decision_id).where(c.decision_id.in_(between))
        there = set(connection.execute(elsewhere).scalars())
        lacking = [number for number in between if number not in there]
    named = 0 < len(lacking) <= last - first + 1
    return Finding(
        cluster=walk.cluster,
        harm=Harm.REMOVED,
        detail=f"entry {first} of the ledger lacks"
        if first == last
        else f"entries {first} to {last} of the ledger lack",
        sequence=first,
        decision_id=lacking[0] if named else None,
        subject=f"decision {lacking[0]}" if named else "",
    )


def _check(walk: _Walk, entry: Row[Any], covered: covering.Covered) -> None:
    owners = covering.owners_of(entry)
    lines = [line for owner in owners for line in covered.lines.get(owner, ())]
    if entry.sequence == walk.sequence + 1 and entry.previous != walk.hash:
        walk.found(Harm.REORDERED, "the entry does not follow the one before it", entry)
    if entries.hash_of(walk.cluster_id, walk.cluster, entry._mapping) != entry.hash:
        walk.found(Harm.CHANGED, "the entry is not the one that was written", entry)
    elif rows.digest_of(lines) != entry.rows_digest:
        walk.found(Harm.CHANGED, "the rows are not those that were written", entry)
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
