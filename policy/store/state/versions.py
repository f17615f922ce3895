"""A new revision of a cluster: old versions end, new ones begin, nominations follow."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, NamedTuple, TypeVar, cast

from sqlalchemy import (
    Connection,
    FromClause,
    Insert,
    Select,
    Table,
    TextClause,
    Update,
    bindparam,
    column,
    insert,
    select,
    text,
    update,
)

from policy.cluster import digest
from policy.cluster.objects import ClusterObject, Pod, encode
from policy.store import bulk, rows
from policy.store.errors import StoreError
from policy.store.model import Cause, NominationEnd
from policy.store.state.columns import Columns, columns_of
from policy.store.tables import (
    CLUSTERS,
    NOMINATION_ENDS,
    NOMINATIONS,
    REVISIONS,
    VERSIONS,
    covered,
)
from policy.store.tables.base import LEDGER_FORMAT

T = TypeVar("T")

CHUNK: Final = 500
"""Keys per IN list."""


@dataclass(frozen=True, slots=True)
class Head:
    """A cluster and its newest revision; number 0 and the genesis digest before the first."""

    cluster_id: int
    name: str
    number: int
    digest: str
    at_ms: int | None  #: of the newest revision; None before the first


class Put(NamedTuple):
    """A new version of an object, ready to be written."""

    kind: str
    key: str
    digest: str
    manifest: bytes
    obj: ClusterObject

    def columns(self) -> Columns:
        """Raises StoreError for an object whose quantities or times are none."""
        return columns_of(self.kind, self.key, self.obj)


class Live(NamedTuple):
    """What is known of the version that is true now."""

    valid_from: int
    digest: str
    uid: str = ""
    nominated: str = ""  #: node that a waiting pod is nominated to


@dataclass(slots=True)
class Written:
    """A revision that was written, with the lines that its ledger entry covers."""

    number: int
    digest: str
    lines: list[bytes] = field(repr=False)


def chunks(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


@cache
def inserting(table: Table) -> Insert:
    """The statement that inserts rows into a table."""
    return insert(table)


def put(kind: str, key: str, obj: ClusterObject) -> Put:
    """The object as a version; its columns are made where it is written."""
    manifest = encode(obj)
    return Put(kind, key, digest.encoded_digest(manifest), manifest, obj)


def _waiting_nomination(node: str, phase: str, nominated: str) -> str:
    """The nomination that the scheduler counts: of a pod that is neither placed nor finished."""
    return "" if node or phase in _FINISHED else nominated


def _nomination_of(pod: Pod) -> str:
    status = pod.status
    return _waiting_nomination(pod.spec.node_name, status.phase, status.nominated_node_name)


_FINISHED: Final = frozenset({"Succeeded", "Failed"})


# --- reading the head ----------------------------------------------------------------------------

# Statements of the hot path are built once: building one takes longer than running it.
_CLUSTER: Final = select(CLUSTERS.c.id).where(CLUSTERS.c.name == bindparam("cluster"))
_LOCKED_CLUSTER: Final = _CLUSTER.with_for_update()
_NEWEST_REVISION: Final = (
    select(REVISIONS.c.number, REVISIONS.c.digest, REVISIONS.c.at_ms)
    .where(REVISIONS.c.cluster_id == bindparam("cluster_id"))
    .order_by(REVISIONS.c.number.desc())
    .limit(1)
)


def find_head(connection: Connection, name: str, *, lock: bool = False) -> Head | None:
    """The cluster's head, None where there is no such cluster.

    lock: keep every other writer of this cluster out until the transaction ends (SQLite's writers
    are alone in any case).
    """
    query = _LOCKED_CLUSTER if lock else _CLUSTER
    cluster_id = connection.execute(query, {"cluster": name}).scalar()
    if cluster_id is None:
        return None
    newest = connection.execute(_NEWEST_REVISION, {"cluster_id": cluster_id}).first()
    return Head(
        cluster_id=cluster_id,
        name=name,
        number=newest.number if newest else 0,
        digest=newest.digest if newest else digest.GENESIS,
        at_ms=newest.at_ms if newest else None,
    )


def lock_head(connection: Connection, name: str) -> Head:
    """The locked head of a cluster that is made where it does not exist yet."""
    head = find_head(connection, name, lock=True)
    if head is None:
        if not name:
            raise StoreError("a cluster needs a name")
        if connection.dialect.name == "postgresql":
            from sqlalchemy.dialects.postgresql import insert as insert_or_skip

            connection.execute(insert_or_skip(CLUSTERS).on_conflict_do_nothing(), {"name": name})
        else:
            connection.execute(insert(CLUSTERS), {"name": name})
        head = find_head(connection, name, lock=True)
        assert head is not None
    return head


@cache
def _live_query(kind: str, *, named: bool, sqlite: bool) -> Select[Any]:
    table = VERSIONS[kind]
    source: FromClause | TextClause = table
    if named and sqlite:
        # It cannot tell the index by key from the one by `valid_to`, which leads through everything
        # that is true now.
        source = text(f"{table.name} INDEXED BY uq_{table.name}_live")
    names = ["key", "valid_from", "digest"]
    if kind == "Pod":
        names += ["uid", "node", "phase", "nominated_node"]
    c = {column_.name: column(column_.name, column_.type) for column_ in table.c}
    query = (
        select(*(c[name] for name in names))
        .select_from(source)
        .where(c["cluster_id"] == bindparam("cluster_id"), c["valid_to"].is_(None))
    )
    return query.where(c["key"].in_(bindparam("keys", expanding=True))) if named else query


def live_versions(
    connection: Connection, head: Head, kind: str, keys: Collection[str] | None = None
) -> dict[str, Live]:
    """Versions that are true now, by key: of the given keys, or all of the kind."""
    sqlite = connection.dialect.name == "sqlite"
    query = _live_query(kind, named=keys is not None, sqlite=sqlite)
    of_cluster = {"cluster_id": head.cluster_id}
    if keys is None:
        results = [connection.execute(query, of_cluster)]
    else:
        results = [
            connection.execute(query, {**of_cluster, "keys": list(part)})
            for part in chunks(list(keys), CHUNK)
        ]
    found = (row for result in results for row in result.all())
    if kind != "Pod":
        return {key: Live(valid_from, of) for key, valid_from, of in found}
    return {
        key: Live(valid_from, of, uid, _waiting_nomination(node, phase, nominated))
        for key, valid_from, of, uid, node, phase, nominated in found
    }


# --- writing -------------------------------------------------------------------------------------


def write_revision(
    connection: Connection,
    head: Head,
    puts: Sequence[Put],
    deletes: Iterable[tuple[str, str]],
    *,
    live: Mapping[str, Mapping[str, Live]] | None = None,
    at_ms: int,
    source: str,
    cause: Cause,
    decision_id: int | None = None,
    taken_away: Collection[str] = (),
) -> Written:
    """Write the revision after `head`: (kind, key) pairs are unique over puts and deletes.

    live: versions that are true now, where the caller has them; looked up otherwise.
    taken_away: pods whose nomination another pod's preemption clears.
    """
    number = head.number + 1
    gone = list(deletes)
    state = digest.chain_state(
        head.digest, [*((p.kind, p.key, p.digest) for p in puts), *((k, n, None) for k, n in gone)]
    )
    revision = {
        "cluster_id": head.cluster_id,
        "number": number,
        "at_ms": at_ms,
        "source": source,
        "cause": str(cause),
        "put_count": len(puts),
        "deleted_count": len(gone),
        "previous": head.digest,
        "digest": state,
    }
    connection.execute(inserting(REVISIONS), revision)
    lines = [rows.line(REVISIONS, revision)]
    by_kind: dict[str, tuple[list[Put], list[str]]] = {}
    for one in puts:
        by_kind.setdefault(one.kind, ([], []))[0].append(one)
    for kind, key in gone:
        by_kind.setdefault(kind, ([], []))[1].append(key)
    for kind, (new, removed) in by_kind.items():
        known = live.get(kind) if live is not None else None
        if known is None:
            known = live_versions(connection, head, kind, [*(p.key for p in new), *removed])
        lacking = [key for key in removed if key not in known]
        if lacking:
            raise StoreError(
                f"{kind} `{lacking[0]}` cannot be removed from cluster `{head.name}`: "
                "it does not exist there"
            )
        lines += _write_kind(connection, head, number, VERSIONS[kind], new, removed, known)
        if kind == "Pod":
            lines += _follow_nominations(
                connection,
                head,
                new,
                removed,
                known,
                number=number,
                at_ms=at_ms,
                decision_id=decision_id,
                taken_away=taken_away,
            )
    return Written(number=number, digest=state, lines=lines)


@cache
def _ending(table: Table) -> Update:
    c = table.c
    return (
        update(table)
        .where(
            c.cluster_id == bindparam("b_cluster"),
            c.key == bindparam("b_key"),
            c.valid_from == bindparam("b_from"),
        )
        .values(valid_to=bindparam("b_to"))
    )


def _write_kind(
    connection: Connection,
    head: Head,
    number: int,
    table: Table,
    new: Sequence[Put],
    removed: Sequence[str],
    known: Mapping[str, Live],
) -> list[bytes]:
    ending = [(key, known[key]) for key in (*(p.key for p in new), *removed) if key in known]
    if ending:
        connection.execute(
            _ending(table),
            [
                {
                    "b_cluster": head.cluster_id,
                    "b_key": key,
                    "b_from": version.valid_from,
                    "b_to": number,
                }
                for key, version in ending
            ],
        )
    lines = [
        rows.closed_line(table.name, key=key, valid_from=version.valid_from, valid_to=number)
        for key, version in ending
    ]
    names = covered(table, LEDGER_FORMAT)
    typed = names[_BEFORE:_BEHIND]

    def versions() -> Iterator[bulk.Row]:
        for one in new:
            columns = one.columns()
            values = (head.cluster_id, one.key, number, *[columns[n] for n in typed], one.digest)
            lines.append(rows.line_of(table, values))
            yield (*values, one.manifest.decode())

    bulk.insert_rows(connection, table, (*names, "manifest"), versions(), count=len(new))
    return lines


_BEFORE: Final = 3
"""Columns of a version before those of its kind: cluster, key, first revision."""
_BEHIND: Final = -1
"""And behind them, as far as the ledger covers it: the digest."""


def _end_cause(
    key: str, after: Pod | None, was: Live, taken_away: Collection[str]
) -> NominationEnd:
    if after is None or after.metadata.uid != was.uid or after.status.phase in _FINISHED:
        return NominationEnd.POD_GONE
    if after.spec.node_name:
        same = after.spec.node_name == was.nominated
        return NominationEnd.BOUND if same else NominationEnd.BOUND_ELSEWHERE
    if after.status.nominated_node_name:
        return NominationEnd.SUPERSEDED
    return NominationEnd.TAKEN_AWAY if key in taken_away else NominationEnd.CLEARED


def _follow_nominations(
    connection: Connection,
    head: Head,
    new: Sequence[Put],
    removed: Sequence[str],
    before: Mapping[str, Live],
    *,
    number: int,
    at_ms: int,
    decision_id: int | None,
    taken_away: Collection[str],
) -> list[bytes]:
    """Rows for the nominations that the changed pods begin or end."""
    ended: dict[str, NominationEnd] = {}
    made: list[dict[str, Any]] = []
    after: dict[str, Pod | None] = {one.key: cast("Pod", one.obj) for one in new}
    after |= dict.fromkeys(removed)
    for key, pod in after.items():
        was = before.get(key)
        now = _nomination_of(pod) if pod is not None else ""
        if was is not None and was.nominated:
            same_pod = pod is not None and pod.metadata.uid == was.uid
            if same_pod and was.nominated == now:
                continue
            ended[key] = _end_cause(key, pod, was, taken_away)
        if now and pod is not None:
            made.append(
                {
                    "cluster_id": head.cluster_id,
                    "made_revision": number,
                    "pod": key,
                    "uid": pod.metadata.uid,
                    "priority": pod.spec.priority or 0,
                    "node": now,
                    "made_decision": decision_id,
                    "made_ms": at_ms,
                }
            )
    ends = [
        {
            "cluster_id": head.cluster_id,
            "made_revision": begun,
            "pod": key,
            "ended_revision": number,
            "ended_decision": decision_id,
            "cause": ended[key].value,
            "ended_ms": at_ms,
        }
        for key, begun in _standing(connection, head, list(ended)).items()
    ]
    if ends:
        connection.execute(inserting(NOMINATION_ENDS), ends)
    if made:
        connection.execute(inserting(NOMINATIONS), made)
    return [
        *(rows.line(NOMINATION_ENDS, row) for row in ends),
        *(rows.line(NOMINATIONS, row) for row in made),
    ]


def _standing(connection: Connection, head: Head, pods: Sequence[str]) -> dict[str, int]:
    """Revision in which the standing nomination of each pod was made."""
    return {
        row.pod: row.made_revision
        for part in chunks(pods, CHUNK)
        for row in connection.execute(
            _standing_query(), {"cluster_id": head.cluster_id, "pods": list(part)}
        )
    }


@cache
def _standing_query() -> Select[Any]:
    n, e = NOMINATIONS.c, NOMINATION_ENDS.c
    ended = select(1).where(
        e.cluster_id == n.cluster_id, e.made_revision == n.made_revision, e.pod == n.pod
    )
    return select(n.pod, n.made_revision).where(
        n.cluster_id == bindparam("cluster_id"),
        n.pod.in_(bindparam("pods", expanding=True)),
        ~ended.exists(),
    )


def puts_and_deletes(
    changes: Iterable[digest.Change],
) -> tuple[list[Put], list[tuple[str, str]]]:
    """Changes ready to be written; of several changes of one object the last one counts."""
    last = {(kind, key): obj for kind, key, obj in changes}
    unknown = next((kind for kind, _ in last if kind not in VERSIONS), None)
    if unknown is not None:
        raise StoreError(f"objects of kind `{unknown}` are not kept")
    puts = [put(kind, key, obj) for (kind, key), obj in last.items() if obj is not None]
    return puts, [at for at, obj in last.items() if obj is None]
