"""Heads that were kept elsewhere: is what each of them is the witness of still there?

A head is searched in the ledgers that were read and nowhere else: an entry of another ledger with
the same hash proves nothing about them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, select

from policy.cluster import times
from policy.store.errors import InvalidValue
from policy.store.ledger.findings import Finding, Pruning, TamperKind
from policy.store.state.loading import cluster_id
from policy.store.tables import CLUSTERS, LEDGER, PRUNINGS


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptHead:
    """The hash of an entry, and where it is known, the entry that it was the hash of."""

    hash: str
    cluster: str | None = None
    sequence: int | None = None
    source: str = ""  #: where it was kept (`heads.jsonl:3`), for messages


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerRead:
    """A ledger that was read, from an entry on."""

    cluster_id: int
    first: int  #: sequence of the first entry that was computed again


def prunings(connection: Connection, cluster: str | None = None) -> list[Pruning]:
    """Old stretches of the record that were taken out. Raises NotFound."""
    return prunings_of(connection, None if cluster is None else [cluster_id(connection, cluster)])


def prunings_of(connection: Connection, cluster_ids: Sequence[int] | None) -> list[Pruning]:
    """What was pruned, by cluster and time; of all clusters, or of some."""
    query = (
        select(PRUNINGS, CLUSTERS.c.name)
        .join(CLUSTERS, CLUSTERS.c.id == PRUNINGS.c.cluster_id)
        .order_by(CLUSTERS.c.name, PRUNINGS.c.id)
    )
    if cluster_ids is not None:
        query = query.where(CLUSTERS.c.id.in_(cluster_ids))
    found: list[Pruning] = []
    for row in connection.execute(query):
        follows = bool(found) and found[-1].cluster == row.name
        before = found[-1].last_sequence if follows else 0
        found.append(
            Pruning(
                cluster=row.name,
                at_ms=row.at_ms,
                actor=row.actor,
                process_uid=row.process_uid,
                process_user=row.process_user,
                database_user=row.database_user,
                older_than_ms=row.older_than_ms,
                entries=row.last_sequence - before,
                decisions=row.decision_count,
                versions=row.version_count,
                last_sequence=row.last_sequence,
                last_hash=row.last_hash,
            )
        )
    return found


def missing(
    connection: Connection,
    kept: Sequence[KeptHead],
    read: Mapping[str, LedgerRead],
    pruned: Sequence[Pruning],
    *,
    accept_pruning: bool,
) -> Iterator[Finding]:
    """Kept heads that the ledgers do not have any more.

    read: the ledgers that were read, by cluster; whether an entry that has the hash is the one
    that was written, is found by reading it. accept_pruning: a head whose entries were pruned is
    let pass. Raises StoreError for a head of an entry before the first that was read.
    """
    for head in dict.fromkeys(kept):
        holder = _holder(connection, head)
        if holder is not None and holder[0] in read:
            cluster, sequence = holder
            if sequence < read[cluster].first:
                raise InvalidValue(
                    f"the head {head.hash} is of entry {sequence} of cluster `{cluster}`, which is"
                    f" before entry {read[cluster].first}, where verification begins",
                    help="leave `--from` out: what is before it is not computed again",
                )
            continue
        gone = _pruning(head, read, pruned)
        if gone is None:
            yield _finding(head, TamperKind.REMOVED, _nowhere(head, holder))
        elif not accept_pruning:
            yield _finding(head, TamperKind.PRUNED, _pruned(gone, pruned), cluster=gone.cluster)


def _holder(connection: Connection, head: KeptHead) -> tuple[str, int] | None:
    """Cluster and sequence of the entry that has the hash, and is the one it was kept for."""
    query = (
        select(CLUSTERS.c.name, LEDGER.c.sequence)
        .join(CLUSTERS, CLUSTERS.c.id == LEDGER.c.cluster_id)
        .where(LEDGER.c.hash == head.hash)
    )
    if head.cluster is not None:
        query = query.where(CLUSTERS.c.name == head.cluster)
    if head.sequence is not None:
        query = query.where(LEDGER.c.sequence == head.sequence)
    row = connection.execute(query).first()
    return None if row is None else (row.name, row.sequence)


def _pruning(
    head: KeptHead, read: Mapping[str, LedgerRead], pruned: Sequence[Pruning]
) -> Pruning | None:
    """The pruning that took the entry; told by the hash, or by the number where it was kept."""
    for one in pruned:
        if one.cluster not in read or head.cluster not in (None, one.cluster):
            continue
        if one.last_hash == head.hash and head.sequence in (None, one.last_sequence):
            return one
        if head.sequence is not None and head.sequence < one.last_sequence:
            return one
    return None


def _nowhere(head: KeptHead, holder: tuple[str, int] | None) -> str:
    if holder is not None:
        return (
            f"no ledger that was read has the hash {head.hash}: it is of entry {holder[1]} of"
            f" cluster {holder[0]}"
        )
    if head.sequence is not None:
        return f"entry {head.sequence} of cluster {head.cluster} with the hash {head.hash} is gone"
    return f"no entry has the hash {head.hash}, nor was it the last one that a pruning took"


def _pruned(gone: Pruning, pruned: Sequence[Pruning]) -> str:
    entries, decisions = totals([p for p in pruned if p.cluster == gone.cluster])
    return (
        f"its entry was pruned with all before it, {entries} entries with {decisions} decisions"
        f" before {times.to_text(gone.older_than_ms)} in all: nothing shows any more that they were"
        " as they had been written"
    )


def totals(pruned: Sequence[Pruning]) -> tuple[int, int]:
    """Entries and decisions that went with prunings of one cluster."""
    return sum(p.entries for p in pruned), sum(p.decisions for p in pruned)


def _finding(head: KeptHead, harm: TamperKind, detail: str, *, cluster: str = "") -> Finding:
    return Finding(
        cluster=head.cluster or cluster,
        harm=harm,
        detail=f"{head.source}: {detail}" if head.source else detail,
        sequence=head.sequence,
    )
