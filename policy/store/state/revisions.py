"""New revisions: old versions end, new ones begin, nominations follow."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeAlias, cast

from sqlalchemy import Connection, Table

from policy.cluster import canonical, digest
from policy.cluster.objects import ClusterObject, Pod
from policy.store import bulk, rows
from policy.store.errors import Conflict, InvalidValue
from policy.store.model.state import Cause, NominationEnd
from policy.store.state.columns import POD_COLUMNS, PodValues, columns_of
from policy.store.state.versions import (
    FINISHED,
    Head,
    Live,
    chunks,
    live_versions,
    nomination_of,
)
from policy.store.tables import NOMINATION_ENDS, NOMINATIONS, REVISIONS, VERSIONS, covered
from policy.store.tables.base import LEDGER_FORMAT


class Put(NamedTuple):
    """A new version of an object, ready to be written."""

    kind: str
    key: str
    digest: str
    manifest: bytes
    obj: ClusterObject


@dataclass(slots=True)
class WrittenRevision:
    """A revision that was made, with the lines that its ledger entry covers."""

    number: int
    digest: str
    lines: list[bytes] = field(repr=False)


def puts_of(objects: Sequence[tuple[str, str, ClusterObject]]) -> list[Put]:
    """Objects, each with kind and key, as versions; their columns are made where they are written.

    Raises like `canonical.encode`.
    """
    manifests = canonical.encode_each(obj for _, _, obj in objects)
    return [
        Put(kind, key, digest.encoded_digest(manifest), manifest, obj)
        for (kind, key, obj), manifest in zip(objects, manifests, strict=True)
    ]


def puts_and_deletes(
    changes: Iterable[digest.Change],
) -> tuple[list[Put], list[tuple[str, str]]]:
    """Changes ready to be written; of several changes of one object the last one counts."""
    last = {(kind, key): obj for kind, key, obj in changes}
    unknown = next((kind for kind, _ in last if kind not in VERSIONS), None)
    if unknown is not None:
        raise InvalidValue(f"objects of kind `{unknown}` are not kept")
    puts = [(kind, key, obj) for (kind, key), obj in last.items() if obj is not None]
    return puts_of(puts), [at for at, obj in last.items() if obj is None]


def write_revision(
    connection: Connection,
    head: Head,
    puts: Sequence[Put],
    deletes: Sequence[tuple[str, str]],
    *,
    live: Mapping[str, Mapping[str, Live]] | None = None,
    at_ms: int,
    source: str,
    cause: Cause,
) -> WrittenRevision:
    """Write the revision after `head`: (kind, key) pairs are unique over puts and deletes.

    live: versions that are true now, where the caller has them; looked up otherwise. Raises
    StoreError for an object that cannot be removed.
    """
    revision = SingleRevision(connection, head, at_ms=at_ms)
    for kind, (new, removed) in _by_kind(puts, deletes).items():
        known = (live or {}).get(kind)
        if known is None:
            known = live_versions(connection, head, kind, [*(one.key for one in new), *removed])
        revision.add(kind, new, removed, known)
    return revision.conclude(source=source, cause=cause)


def _by_kind(
    puts: Iterable[Put], deletes: Iterable[tuple[str, str]]
) -> dict[str, tuple[list[Put], list[str]]]:
    found: dict[str, tuple[list[Put], list[str]]] = {}
    for one in puts:
        found.setdefault(one.kind, ([], []))[0].append(one)
    for kind, key in deletes:
        found.setdefault(kind, ([], []))[1].append(key)
    return found


class SingleRevision:
    """The revision after a head, where no other one is made before it is written.

    It takes its objects kind by kind. Where none of a kind is there yet, as in a first import,
    each row is made while the one before it is written: nothing of it is held, and all of it is
    still in a processor's caches. `Revisions` is for several revisions that are written together.
    """

    def __init__(self, connection: Connection, head: Head, *, at_ms: int) -> None:
        """head: locked."""
        self.number: Final = head.number + 1
        self._connection = connection
        self._head = head
        self._moves = _Moves(at_ms=at_ms, decision_id=None, taken_away=())
        self._pending = bulk.PendingRows()
        self._nominations = _Nominations(connection, head.cluster_id, self._pending)
        self._changed: list[tuple[str, str, str | None]] = []
        self._deletes = 0
        self._lines: list[bytes] = []

    @property
    def changes(self) -> bool:
        """Whether there is anything in it so far."""
        return bool(self._changed)

    def add(
        self, kind: str, puts: Sequence[Put], removed: Sequence[str], live: Mapping[str, Live]
    ) -> None:
        """New versions of objects of a kind, and the end of those that were true.

        Each kind is added once, and each key of it comes once. live: versions that are true now, at
        least of these keys. Raises StoreError for an object that cannot be removed, or whose
        quantities or times are none.
        """
        _require(self._head, kind, removed, live)
        table = VERSIONS[kind]
        if kind == "Pod":
            self._lines += self._nominations.follow(puts, removed, live, self.number, self._moves)
        if live:
            keys = [*(one.key for one in puts), *removed]
            ended = [(key, live[key].valid_from, self.number) for key in keys if key in live]
            self._lines += rows.closed_lines(table.name, ended)
            # First they end: one version of an object is true at a time.
            _end(self._connection, self._head.cluster_id, table, ended)
        self._changed += [(kind, key, None) for key in removed]
        self._deletes += len(removed)
        ordered = sorted(puts, key=_KEY)
        self._insert(kind, self._begun(kind, chunks(ordered, _AT_ONCE)), count=len(ordered))

    def add_first(self, kind: str, puts: Iterable[Sequence[Put]], *, count: int) -> None:
        """Versions of `count` objects of a kind of which none is true now, in the order of keys.

        puts: some at a time, which are asked for while they are written. Raises StoreError for an
        object whose quantities or times are none.
        """
        self._insert(kind, self._begun(kind, self._nominated(kind, puts)), count=count)

    def _nominated(self, kind: str, puts: Iterable[Sequence[Put]]) -> Iterator[Sequence[Put]]:
        for some in puts:
            if kind == "Pod":
                follow = self._nominations.follow
                self._lines += follow(some, (), {}, self.number, self._moves)
            yield some

    def _begun(self, kind: str, puts: Iterable[Sequence[Put]]) -> Iterator[bulk.Row]:
        """The rows of new versions."""
        table, versions = VERSIONS[kind], _Versions(self._head.cluster_id, kind)
        for some in puts:
            begun = versions.begun(some, self.number)
            self._lines += rows.lines_of(table, begun)
            self._changed += [(kind, one.key, one.digest) for one in some]
            for values, one in zip(begun, some, strict=True):
                yield (*values, one.manifest.decode())

    def _insert(self, kind: str, made: Iterable[bulk.Row], *, count: int) -> None:
        """Rows in the order of their keys: an index takes them sooner, and so they are read."""
        table = VERSIONS[kind]
        names = (*covered(table, LEDGER_FORMAT), "manifest")
        with bulk.indexed_afterwards(self._connection, table, count=count):
            bulk.insert_rows(self._connection, table, names, made, count=count)
        bulk.keep_statistics(self._connection, table, added=count)

    def conclude(self, *, source: str, cause: Cause) -> WrittenRevision:
        """Write it."""
        state = digest.chain_state(self._head.digest, self._changed)
        puts, deletes = len(self._changed) - self._deletes, self._deletes
        revision = (
            *(self._head.cluster_id, self.number, self._moves.at_ms, source, str(cause)),
            *(puts, deletes, self._head.digest, state),
        )
        self._pending.add(REVISIONS, [revision])
        self._pending.write(self._connection)
        self._lines.append(rows.line_of(REVISIONS, revision))
        return WrittenRevision(number=self.number, digest=state, lines=self._lines)


_KEY: Final = attrgetter("key")

_NewVersion: TypeAlias = list[Any]
"""A version that is to be inserted: values that the ledger covers, `valid_to`, and manifest."""

_VALID_TO: Final = 1

_AT_ONCE: Final = 100
"""Versions that are made together: more of them leave a processor's caches."""


@dataclass(slots=True)
class _OfKind:
    """What changes about the objects of one kind."""

    live: dict[str, Live] = field(default_factory=dict)  #: true now, as far as it was looked up
    known: set[str] = field(default_factory=set)  #: keys that were looked up
    made: list[_NewVersion] = field(default_factory=list)
    newest: dict[str, _NewVersion] = field(default_factory=dict)  #: of `made`, what has not ended
    ended: list[tuple[str, int, int]] = field(default_factory=list)  #: key, from, to


class Revisions:
    """Revisions of one cluster, made one after the other and written together.

    Later ones build on earlier ones that no row tells of yet: a version that begins and ends
    within the transaction is inserted as it ended.
    """

    def __init__(self, connection: Connection, head: Head, pending: bulk.PendingRows) -> None:
        """head: locked."""
        self.head = head
        self._connection = connection
        self._pending = pending
        self._kinds: dict[str, _OfKind] = {}
        self._nominations = _Nominations(connection, head.cluster_id, pending)

    def look_up(self, objects: Iterable[tuple[str, str]]) -> None:
        """Read what is true now of objects (kind, key) that are going to change, all at once."""
        keys: dict[str, dict[str, None]] = {}
        for kind, key in objects:
            of_kind = self._kinds.get(kind)
            if of_kind is None:
                of_kind = self._kinds[kind] = _OfKind()
            if key not in of_kind.known:
                keys.setdefault(kind, {})[key] = None
        for kind, wanted in keys.items():
            of_kind = self._kinds[kind]
            of_kind.live |= live_versions(self._connection, self.head, kind, wanted)
            of_kind.known |= wanted.keys()

    def add(
        self,
        puts: Sequence[Put],
        deletes: Sequence[tuple[str, str]],
        *,
        at_ms: int,
        source: str,
        cause: Cause,
        decision_id: int | None = None,
        taken_away: Collection[str] = (),
    ) -> WrittenRevision:
        """The revision after `head`, which is the head then.

        puts, deletes: (kind, key) pairs are unique over both. taken_away: pods whose nomination
        another pod's preemption clears. Raises StoreError for an object that cannot be removed.
        """
        self.look_up([*((p.kind, p.key) for p in puts), *deletes])
        number = self.head.number + 1
        changed = [
            *((p.kind, p.key, p.digest) for p in puts),
            *((kind, key, None) for kind, key in deletes),
        ]
        state = digest.chain_state(self.head.digest, changed)
        revision = (
            self.head.cluster_id,
            number,
            at_ms,
            source,
            str(cause),
            len(puts),
            len(deletes),
            self.head.digest,
            state,
        )
        self._pending.add(REVISIONS, [revision])
        lines = [rows.line_of(REVISIONS, revision)]
        moves = _Moves(at_ms=at_ms, decision_id=decision_id, taken_away=taken_away)
        for kind, (new, removed) in _by_kind(puts, deletes).items():
            live = self._kinds[kind].live
            _require(self.head, kind, removed, live)
            if kind == "Pod":
                lines += self._nominations.follow(new, removed, live, number, moves)
            lines += self._change(kind, new, removed, number)
        self.head = Head(
            cluster_id=self.head.cluster_id,
            name=self.head.name,
            number=number,
            digest=state,
            at_ms=at_ms,
        )
        return WrittenRevision(number=number, digest=state, lines=lines)

    def _change(
        self, kind: str, new: Sequence[Put], removed: Sequence[str], number: int
    ) -> list[bytes]:
        """End the old versions and begin the new ones; the lines of both."""
        of_kind, table = self._kinds[kind], VERSIONS[kind]
        live = of_kind.live
        ended: list[tuple[str, int, int]] = []
        for key in (*(p.key for p in new), *removed) if live else ():
            old = live.pop(key, None)
            if old is None:
                continue
            end = (key, old.valid_from, number)
            begun_here = of_kind.newest.pop(key, None)
            if begun_here is None:
                of_kind.ended.append(end)
            else:
                begun_here[_VALID_TO] = number
            ended.append(end)
        begun = _Versions(self.head.cluster_id, kind).begun(new, number)
        made = [[values, None, one.manifest] for one, values in zip(new, begun, strict=True)]
        of_kind.newest |= {one.key: version for one, version in zip(new, made, strict=True)}
        live.update((one.key, _live(number, one)) for one in new)
        of_kind.made += made
        return [*rows.closed_lines(table.name, ended), *rows.lines_of(table, begun)]

    # --- writing ---------------------------------------------------------------------------------

    def write(self) -> None:
        """Write the versions. What else belongs to the revisions is among the pending rows."""
        for kind, of_kind in self._kinds.items():
            table, made = VERSIONS[kind], of_kind.made
            # First they end: one version of an object is true at a time.
            _end(self._connection, self.head.cluster_id, table, of_kind.ended)
            names = (*covered(table, LEDGER_FORMAT), "valid_to", "manifest")
            new = ((*covering, to, manifest.decode()) for covering, to, manifest in made)
            bulk.insert_rows(self._connection, table, names, new, count=len(made))
            of_kind.made, of_kind.ended, of_kind.newest = [], [], {}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moves:
    """What nominations that begin or end in a revision have in common."""

    at_ms: int
    decision_id: int | None
    taken_away: Collection[str]


class _Nominations:
    """Nominations of one cluster that begin and end in revisions of one transaction."""

    def __init__(self, connection: Connection, cluster_id: int, pending: bulk.PendingRows) -> None:
        self._connection = connection
        self._cluster_id = cluster_id
        self._pending = pending
        self._nominated: dict[str, int] = {}  # revision of nominations that were made here

    def follow(
        self,
        new: Sequence[Put],
        removed: Sequence[str],
        before: Mapping[str, Live],
        number: int,
        moves: _Moves,
    ) -> Iterator[bytes]:
        """Rows for the nominations that the changed pods begin or end, and their lines.

        before: versions that were true, at least of these pods.
        """
        ended: dict[str, NominationEnd] = {}
        made: list[bulk.Row] = []
        pods = ((one.key, cast("Pod", one.obj)) for one in new)
        after: dict[str, Pod | None] = {
            key: pod for key, pod in pods if pod.status.nominated_node_name or key in before
        }
        after |= dict.fromkeys(removed)
        for key, pod in after.items():
            was = before.get(key)
            now = nomination_of(pod) if pod is not None else ""
            if was is not None and was.nominated:
                same_pod = pod is not None and pod.metadata.uid == was.uid
                if same_pod and was.nominated == now:
                    continue
                ended[key] = _end_cause(key, pod, was, moves.taken_away)
            if now and pod is not None:
                uid, priority = pod.metadata.uid, pod.spec.priority or 0
                made.append((number, key, uid, priority, now, moves.decision_id, moves.at_ms))
        ends = [
            (begun, key, number, moves.decision_id, ended[key].value, moves.at_ms)
            for key, begun in self._standing(list(ended))
        ]
        self._nominated |= {key: number for _, key, *_ in made}
        for table, found in ((NOMINATION_ENDS, ends), (NOMINATIONS, made)):
            if not found:
                continue
            complete = [(self._cluster_id, *values) for values in found]
            self._pending.add(table, complete)
            yield from rows.lines_of(table, complete)

    def _standing(self, pods: Sequence[str]) -> Iterator[tuple[str, int]]:
        """Revision in which the standing nomination of each pod was made."""
        here = {key: self._nominated.pop(key) for key in pods if key in self._nominated}
        yield from here.items()
        elsewhere = [key for key in pods if key not in here]
        if elsewhere:
            of_pods, wanted = bulk.among(self._connection, elsewhere)
            query = _STANDING.format(of_pods=of_pods)
            yield from bulk.fetch(self._connection, query, (self._cluster_id, wanted))


class _Versions:
    """What the rows of new versions of one kind hold."""

    def __init__(self, cluster_id: int, kind: str) -> None:
        self._cluster_id = cluster_id
        self._values_of = _values_of(kind)

    def begun(self, puts: Sequence[Put], number: int) -> list[bulk.Row]:
        """The columns that the ledger covers. Raises StoreError as `columns_of` does."""
        cluster_id, values_of = self._cluster_id, self._values_of
        return [
            (cluster_id, one.key, number, *values_of(one.key, one.obj), one.digest) for one in puts
        ]


def _require(head: Head, kind: str, removed: Sequence[str], live: Mapping[str, Live]) -> None:
    missing = next((key for key in removed if key not in live), None)
    if missing is not None:
        raise Conflict(
            f"{kind} `{missing}` cannot be removed from cluster `{head.name}`: "
            "it does not exist there"
        )


def _end(
    connection: Connection, cluster_id: int, table: Table, ended: Sequence[tuple[str, int, int]]
) -> None:
    if not ended:
        return
    if connection.dialect.name == "postgresql":
        statement = _ENDING_TOGETHER.format(table=table.name)
        bulk.execute(connection, statement, (*bulk.arrays_for(statement, ended), cluster_id))
    else:
        statement = _ENDING.format(table=table.name)
        some = ((to, cluster_id, key, since) for key, since, to in ended)
        bulk.execute_many(connection, statement, some)


def _values_of(kind: str) -> Callable[[str, Any], tuple[Any, ...]]:
    """What gives the typed columns of objects of a kind, by key, in the order of its table.

    It raises StoreError for an object whose quantities or times are none.
    """
    names = covered(VERSIONS[kind], LEDGER_FORMAT)[_BEFORE:_BEHIND]
    if names == POD_COLUMNS:
        return PodValues().of

    def values_of(key: str, obj: ClusterObject) -> tuple[Any, ...]:
        columns = columns_of(kind, key, obj)
        return tuple([columns[name] for name in names])

    return values_of


_BEFORE: Final = 3
"""Columns of a version before those of its kind: cluster, key, first revision."""
_BEHIND: Final = -1
"""And behind them, as far as the ledger covers it: the digest."""


def _live(number: int, one: Put) -> Live:
    if not isinstance(one.obj, Pod):
        return Live(number, one.digest)
    return Live(number, one.digest, one.obj.metadata.uid, nomination_of(one.obj))


_ENDING: Final = (
    "UPDATE {table} SET valid_to = ? WHERE cluster_id = ? AND key = ? AND valid_from = ?"
)
_ENDING_TOGETHER: Final = (
    "UPDATE {table} SET valid_to = ended.valid_to"
    " FROM unnest(?::VARCHAR[], ?::BIGINT[], ?::BIGINT[]) AS ended (key, valid_from, valid_to)"
    " WHERE {table}.cluster_id = ? AND {table}.key = ended.key"
    " AND {table}.valid_from = ended.valid_from"
)

_STANDING: Final = (
    "SELECT n.pod, n.made_revision FROM nominations n WHERE n.cluster_id = ? AND n.pod {of_pods}"
    " AND NOT EXISTS (SELECT 1 FROM nomination_ends e WHERE e.cluster_id = n.cluster_id"
    " AND e.made_revision = n.made_revision AND e.pod = n.pod)"
)


def _end_cause(
    key: str, after: Pod | None, was: Live, taken_away: Collection[str]
) -> NominationEnd:
    if after is None or after.metadata.uid != was.uid or after.status.phase in FINISHED:
        return NominationEnd.POD_GONE
    if after.spec.node_name:
        same = after.spec.node_name == was.nominated
        return NominationEnd.BOUND if same else NominationEnd.BOUND_ELSEWHERE
    if after.status.nominated_node_name:
        return NominationEnd.SUPERSEDED
    return NominationEnd.TAKEN_AWAY if key in taken_away else NominationEnd.CLEARED
