"""The cluster as one cycle reads it: immutable, columnar, updated by deltas.

`Snapshot.apply` gives the snapshot after some objects changed. Its objects and its digest are there
at once. Its columns follow when the first of them is read, several deltas in one step: they are
copied where they change and shared where not, and everything derived from the snapshot (orders,
sums, indexes) patches itself instead of being computed again.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property
from operator import attrgetter
from types import MappingProxyType
from typing import Any, Final, Protocol, Self, TypeVar, cast, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from policy.cluster import collector
from policy.cluster import digest as digests
from policy.cluster.objects import (
    ClusterObject,
    Namespace,
    Node,
    Pod,
    PodDisruptionBudget,
    PriorityClass,
    key_of,
    kind_of,
)
from policy.cluster.requests import CURRENT, RequestRules
from policy.cluster.rows import KeyRows, PodRows
from policy.cluster.tables import (
    NODE_NAME,
    NOMINATED_NAME,
    NOWHERE,
    STANDARD,
    Ints,
    Names,
    NodeTable,
    PodColumn,
    Pools,
    changed_parts,
    fill,
    name_array,
    node_table,
    packed,
    request_matrix,
    same_requests,
    taken,
    values_of,
    widen,
)

Rows = NDArray[np.int64]
NodeIndex = NDArray[np.int32]

_NO_OBJECTS: Final[Mapping[str, ClusterObject]] = MappingProxyType({})

_FEW: Final = 8
"""Changed pods up to which the values of a column are gone through one by one."""

_BEHIND: Final = 4096
"""Changed rows up to which columns stay behind the objects while they are not read."""

_CHANGES: Final = 30_000
"""Changed pods and nodes whose traces a snapshot may carry before it is packed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """What lies between two snapshots, for derived values that patch themselves."""

    rows: Rows  #: pods whose object changed, ascending; new rows included
    added: int  #: how many of them are new rows at the end
    old_node: NodeIndex  #: node of each row before (NOWHERE for a new row)
    new_node: NodeIndex
    nodes_changed: bool  #: any node was added, removed or changed
    other_kinds: frozenset[str]  #: kinds beside Pod and Node of which an object changed


class Derived(Protocol):
    """A value computed from a snapshot that can follow it through a delta.

    It holds the snapshot's state only, never its instant; `Snapshot.derived` says more.
    """

    def patched(self, before: Snapshot, after: Snapshot, delta: Delta) -> Self | None:
        """The value for `after`, None where it must be computed again when asked for."""


@runtime_checkable
class Carried(Derived, Protocol):
    """One that is too slow to compute to be built again on a packed snapshot.

    Kept under few keys: `packed` is where values of rule sets that came and went are dropped.
    """

    def carried(self, labels: Rows) -> Self:
        """The value for the packed snapshot, whose rows are numbered anew.

        labels: (kept label sets,) their numbers before, ascending; set `labels[i]` is set i now.
        """


D = TypeVar("D", bound=Derived)
V = TypeVar("V")


_KEPT: Final = 8
"""Values of one name that are remembered: as many priorities may take turns."""


@dataclass(frozen=True, slots=True, eq=False)
class _Remembered:
    """Values with what each was computed from, the one that was used last at the end."""

    entries: tuple[tuple[tuple[object, ...], Any], ...] = ()

    def patched(self, before: Snapshot, after: Snapshot, delta: Delta) -> _Remembered:
        # Whether one still holds is checked when it is read.
        return self

    def used(self, inputs: tuple[object, ...], build: Callable[[], Any]) -> _Remembered:
        """With the value for these inputs at the end."""
        for place in reversed(range(len(self.entries))):
            entry = self.entries[place]
            if _holds_for(entry[0], inputs):
                if place == len(self.entries) - 1:
                    return self
                return _Remembered((*self.entries[:place], *self.entries[place + 1 :], entry))
        return _Remembered((*self.entries[1 - _KEPT :], (inputs, build())))


@dataclass(frozen=True, slots=True, eq=False)
class OnNodes:
    """A column where only the pods on nodes count: an input of `Snapshot.remembered`, as `node` is.

    A pod that comes and waits then changes no input.
    """

    values: NDArray[Any]  #: (pods,) or (pods, ...)
    node: NodeIndex  #: (pods,)

    def equals(self, other: OnNodes) -> bool:
        """Are both the same where `node`, which is that of both, names one?"""
        if self.values is other.values:
            return True
        if self.values.shape != other.values.shape:
            return False
        others = (self.values != other.values).nonzero()[0]
        return not np.count_nonzero(self.node[others] != NOWHERE)


def _labels(namespaces: Mapping[str, ClusterObject]) -> dict[str, Mapping[str, str]]:
    found = (n for n in namespaces.values() if isinstance(n, Namespace))
    return {n.metadata.name: n.metadata.labels or {} for n in found}


def _holds_for(known: tuple[object, ...], inputs: tuple[object, ...]) -> bool:
    return len(inputs) == len(known) and all(map(_same, inputs, known))


def _same(one: object, other: object) -> bool:
    if one is other:
        return True
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return np.array_equal(one, other)
    if isinstance(one, OnNodes) and isinstance(other, OnNodes):
        return one.equals(other)
    return isinstance(one, Hashable) and isinstance(other, Hashable) and one == other


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Table:
    """A snapshot's rows as columns, and what was derived from them."""

    node: NodeIndex  #: (pods,)
    nominated: NodeIndex  #: (pods,)
    rank: Ints  #: (pods,)
    in_order: Rows  #: (pods,) rows in snapshot order: what `rank` is the inverse of
    columns: dict[PodColumn, NDArray[Any]]
    requests: dict[RequestRules, Ints]
    derived: dict[Hashable, Derived]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Behind:
    """Columns that have not followed yet."""

    before: Snapshot  #: whose columns are there
    rows: Mapping[int, None]  #: that changed since, beside those that are new
    other_kinds: frozenset[str]  #: as in `Delta`


class _Columns:
    """The table of one state, made when it is first read; snapshots of that state share it."""

    __slots__ = ("_behind", "_table")

    def __init__(self, table: _Table | None, behind: _Behind | None = None) -> None:
        """One of the two is None."""
        self._table = table
        self._behind = behind

    def behind(self) -> _Behind | None:
        """What is still to follow; None where the columns are there."""
        return self._behind

    def of(self, snapshot: Snapshot) -> _Table:
        """The table of the snapshot, which is of this state."""
        behind = self._behind  # read first: it is dropped when the table is there
        if self._table is not None:
            return self._table
        assert behind is not None
        delta, table = _followed(behind, snapshot)
        self._table = table
        for key, derived in list(behind.before._table.derived.items()):
            patched = derived.patched(behind.before, snapshot, delta)
            if patched is not None:
                table.derived[key] = patched
        self._behind = None
        return table


@dataclass(frozen=True, eq=False, kw_only=True)
class Snapshot:
    """Immutable cluster state with the instant (`now_ms`) at which it is looked at.

    Rows have no order that means anything, and pods keep them through deltas; `rank` is their
    place in snapshot order (namespace, name).
    """

    pods: PodRows
    _pools: Pools
    nodes: NodeTable
    others: Mapping[str, Mapping[str, ClusterObject]]  #: kind -> key -> object
    now_ms: int
    state_digest: str
    history: digests.HistoryFigures | None
    _keys: KeyRows
    _columns: _Columns
    _changes: int  #: pods and nodes changed since the rows were numbered

    # --- building ------------------------------------------------------------------------------

    @classmethod
    @collector.paused()
    def from_objects(
        cls,
        objects: Iterable[ClusterObject],
        *,
        now_ms: int,
        state_digest: str | None = None,
        history: digests.HistoryFigures | None = None,
    ) -> Self:
        """A snapshot of typed, resolved objects; of two with the same key the last one counts.

        state_digest: of the stored revision the objects come from; computed from the objects
        where it is None.
        """
        nodes: dict[str, Node] = {}
        by_namespace: dict[str, dict[str, Pod]] = {}
        others: dict[str, dict[str, ClusterObject]] = {}
        for obj in objects:
            if isinstance(obj, Pod):
                meta = obj.metadata
                by_namespace.setdefault(meta.namespace or "default", {})[meta.name] = obj
            elif isinstance(obj, Node):
                nodes[obj.metadata.name] = obj
            else:
                others.setdefault(kind_of(obj), {})[key_of(obj)] = obj
        ordered = [
            (f"{namespace}/{name}", pods[name])
            for namespace, pods in sorted(by_namespace.items())
            for name in sorted(pods)
        ]
        # As they come, they were made one after the other, so that looking at all of them goes
        # through memory in its order; most are sorted as they come.
        pods = [pod for _, pod in ordered]
        pools = Pools()
        requests = request_matrix(pods, pools, rules=CURRENT)
        table = node_table(nodes.values(), pools)
        columns = {column: fill(column, pods, pools) for column in STANDARD}
        # Node by node in memory: what belongs to a node then lies side by side.
        node_names = [pod.spec.node_name for pod in pods]
        order = sorted(range(len(pods)), key=node_names.__getitem__)
        rank = np.array(order, dtype=np.int64)
        rows = [pods[i] for i in order]
        keys = name_array(ordered[i][0] for i in order)
        requests = taken(requests, rank)
        columns = {column: values[rank] for column, values in columns.items()}
        if state_digest is None:
            state_digest = digests.chain_changes(
                digests.GENESIS,
                (
                    (kind, key, obj)
                    for kind, of_kind in cast(
                        "list[tuple[str, dict[str, ClusterObject]]]",
                        [
                            ("Pod", dict(zip(keys, rows, strict=True))),
                            ("Node", nodes),
                            *others.items(),
                        ],
                    )
                    for key, obj in of_kind.items()
                ),
            )
        return cls(
            pods=PodRows.of(rows),
            _pools=pools,
            nodes=table,
            others=others,
            now_ms=now_ms,
            state_digest=state_digest,
            history=history,
            _keys=KeyRows.of(keys),
            _columns=_Columns(
                _Table(
                    node=_locate(columns[NODE_NAME], pools, table),
                    nominated=_locate(columns[NOMINATED_NAME], pools, table),
                    rank=rank,
                    in_order=np.argsort(rank),
                    columns=columns,
                    requests={CURRENT: requests},
                    derived={},
                )
            ),
            _changes=0,
        )

    # --- reading -------------------------------------------------------------------------------

    @cached_property
    def digest(self) -> str:
        """Digest of all that a decision reads: state, now and history figures."""
        return digests.snapshot_digest(self.state_digest, now_ms=self.now_ms, history=self.history)

    @cached_property
    def _table(self) -> _Table:
        return self._columns.of(self)

    @cached_property
    def pools(self) -> Pools:
        """What is interned: all that the columns hold, which therefore follow before."""
        _ = self._table
        return self._pools

    @cached_property
    def node(self) -> NodeIndex:
        """Index of the node that a pod occupies, NOWHERE without one; shape (pods,)."""
        return self._table.node

    @cached_property
    def nominated(self) -> NodeIndex:
        """Index of the node that a waiting pod is nominated to; shape (pods,)."""
        return self._table.nominated

    @cached_property
    def rank(self) -> Ints:
        """Place of each row in snapshot order; shape (pods,)."""
        return self._table.rank

    @property
    def keys(self) -> Names:
        """namespace/name per row, of removed pods too; shape (pods,).

        Rows that are free have any text.
        """
        return self._keys.keys

    def row(self, key: str) -> int | None:
        """Row of the pod `namespace/name`, None where the cluster has none."""
        found = self._keys.row(key)
        return None if found is None or self.pods[found] is None else found

    def pod(self, key: str) -> Pod | None:
        row = self._keys.row(key)
        return None if row is None else self.pods[row]

    def in_order(self, among: NDArray[np.bool_] | None = None) -> Iterator[tuple[int, str, Pod]]:
        """Row, key and object of every pod, or of some, by namespace and name.

        among: (pods,) bool.
        """
        rows = self._table.in_order
        for row in (rows if among is None else rows[among[rows]]).tolist():
            pod = self.pods[row]
            if pod is not None:
                yield row, self.keys[row], pod

    def column(self, column: PodColumn) -> NDArray[Any]:
        """Values of all pods; shape (pods,). Computed at the first use, then kept up to date."""
        columns = self._table.columns
        found = columns.get(column)
        if found is None:
            found = columns[column] = fill(column, self.pods, self.pools)
        return found

    def requests(self, rules: RequestRules = CURRENT) -> Ints:
        """Requests of pods as they count on a node; shape (pods, resources) int64."""
        requests = self._table.requests
        found = requests.get(rules)
        if found is None or found.shape[1] < len(self.pools.resources):
            if found is None:
                found = request_matrix(self.pods, self.pools, rules=rules)
            found = requests[rules] = widen(found, len(self.pools.resources))
        return found

    @property
    def allocatable(self) -> Ints:
        """(nodes, resources) int64."""
        return widen(self.nodes.allocatable, len(self.pools.resources))

    def derived(self, key: Hashable, build: Callable[[Snapshot], D]) -> D:
        """The value that is kept under `key`, built where there is none.

        The key names everything that the value depends on beside the snapshot's state: equal keys
        mean the same computation. `build` reads the state alone, neither `now_ms` nor history
        figures, because `at` shares what is kept. Each kept value is offered the delta to the next
        snapshot of which something is read (`Derived.patched`); one that returns None is built
        again when it is next wanted.
        `packed` keeps those that know how to follow it (`Carried`) and no other. Row numbers and
        interned ids in it hold until then.
        A value is never changed, or a snapshot that came before would see it; one that only grows
        with the pools (answers for further label sets) may.
        """
        kept = self._table.derived
        found = kept.get(key)
        if found is None:
            found = kept[key] = build(self)
        return cast("D", found)

    def remembered(self, name: str, inputs: tuple[object, ...], build: Callable[[], V]) -> V:
        """What `build` made of equal inputs the last time, on this snapshot or one before it.

        inputs: everything that `build` reads, the snapshot's own columns too: the value outlives
        deltas without being told of them, so whatever is not an input must not matter. Arrays are
        compared by content, other objects as they compare themselves (those made with `eq=False`
        by identity). The last few values of each name are kept: pods of different priorities take
        turns. The value is never changed, or an array that was an input.
        """
        kept = self._table.derived
        known = kept.get(name)
        found = (known if isinstance(known, _Remembered) else _Remembered()).used(inputs, build)
        kept[name] = found
        return cast("V", found.entries[-1][1])

    def kept(self) -> Iterable[Derived]:
        """The derived values that this snapshot holds."""
        return self._table.derived.values()

    def of_kind(self, kind: str) -> Mapping[str, ClusterObject]:
        return self.others.get(kind, _NO_OBJECTS)

    @cached_property
    def budgets(self) -> tuple[PodDisruptionBudget, ...]:
        """Pod disruption budgets in order of namespace and name."""
        found = self.of_kind("PodDisruptionBudget").values()
        return tuple(
            sorted(
                (b for b in found if isinstance(b, PodDisruptionBudget)),
                key=lambda b: (b.metadata.namespace or "default", b.metadata.name),
            )
        )

    @property
    def namespace_labels(self) -> Mapping[str, Mapping[str, str]]:
        """Labels of every namespace that the cluster names."""
        namespaces = self.of_kind("Namespace")
        return self.remembered("namespace-labels", (namespaces,), lambda: _labels(namespaces))

    @cached_property
    def priority_classes(self) -> Mapping[str, PriorityClass]:
        found = self.of_kind("PriorityClass").items()
        return {name: c for name, c in found if isinstance(c, PriorityClass)}

    def objects(self) -> Iterable[ClusterObject]:
        """Every object of the snapshot."""
        yield from self.nodes.nodes
        yield from (p for p in self.pods if p is not None)
        for of_kind in self.others.values():
            yield from of_kind.values()

    # --- changing ------------------------------------------------------------------------------

    def at(self, now_ms: int, *, history: digests.HistoryFigures | None = None) -> Snapshot:
        """The same state looked at at another instant (with other history figures)."""
        return self._with(now_ms=now_ms, history=history)

    def with_pods_on(self, node: NodeIndex) -> Snapshot:
        """The same pods on other nodes, nothing derived yet; node: (pods,), as `node` is."""
        return self._with(_columns=_Columns(replace(self._table, node=node, derived={})))

    def apply(
        self, changes: Iterable[digests.Change], *, state_digest: str | None = None
    ) -> Snapshot:
        """The snapshot after the changes; later changes of one object win.

        state_digest: of the stored revision that made the changes; chained from this snapshot's
        where it is None.
        """
        last = {(kind, key): obj for kind, key, obj in changes}
        if not last:
            # Changes without net effect lead to another revision, and so to another digest.
            unchanged = state_digest in {None, self.state_digest}
            if unchanged:
                return self
            return self._with(state_digest=state_digest)
        if state_digest is None:
            state_digest = digests.chain_changes(
                self.state_digest, ((kind, key, obj) for (kind, key), obj in last.items())
            )
        changed_pods = {
            key: cast("Pod | None", obj) for (kind, key), obj in last.items() if kind == "Pod"
        }
        changed_nodes = {
            key: cast("Node | None", obj) for (kind, key), obj in last.items() if kind == "Node"
        }
        changed_others: dict[str, dict[str, ClusterObject]] = {}
        for (kind, key), obj in last.items():
            if kind not in {"Pod", "Node"}:
                if kind not in changed_others:
                    changed_others[kind] = dict(self.others.get(kind, {}))
                if obj is None:
                    changed_others[kind].pop(key, None)
                else:
                    changed_others[kind][key] = obj
        nodes = self.nodes
        if changed_nodes:
            merged: dict[str, Node | None] = {n.metadata.name: n for n in nodes.nodes}
            merged.update(changed_nodes)
            nodes = node_table((n for n in merged.values() if n is not None), self._pools)
        return self._with_pods(
            changed_pods,
            nodes=nodes,
            others={**self.others, **changed_others} if changed_others else self.others,
            other_kinds=frozenset(changed_others),
            state_digest=state_digest,
            changes=len(changed_pods) + len(changed_nodes),
        )

    def _with_pods(
        self,
        changed: Mapping[str, Pod | None],
        *,
        nodes: NodeTable,
        others: Mapping[str, Mapping[str, ClusterObject]],
        other_kinds: frozenset[str],
        state_digest: str,
        changes: int,
    ) -> Snapshot:
        there: dict[int, Pod | None] = {}
        new: dict[str, Pod] = {}
        for key, pod in changed.items():
            row = self._keys.row(key)
            if row is not None:
                there[row] = pod
            elif pod is not None:
                new[key] = pod
        keys = self._keys.followed(list(new)) if new else self._keys
        there |= zip(range(self._keys.used, keys.used), new.values(), strict=True)
        # Rows that are free stay, as those of removed pods do.
        added = [there.pop(row, None) for row in range(len(self.pods), keys.keys.size)]
        behind = self._columns.behind()
        if behind is not None and len(behind.rows) > _BEHIND:
            self._columns.of(self)
            behind = None
        if behind is None:
            behind = _Behind(before=self, rows={}, other_kinds=frozenset())
        known = len(behind.before.pods)
        follows = _Behind(
            before=behind.before,
            rows={**behind.rows, **dict.fromkeys(row for row in there if row < known)},
            other_kinds=behind.other_kinds | other_kinds,
        )
        return self._with(
            pods=self.pods.followed(there, added) if changed else self.pods,
            nodes=nodes,
            others=others,
            state_digest=state_digest,
            _keys=keys,
            _columns=_Columns(None, follows),
            _changes=self._changes + changes,
        )

    def packed(self, *, tolerated: int | None = None) -> Snapshot:
        """The same state without the traces of changes; the snapshot itself while they are few.

        Rows of removed pods, interned values and answers about them are kept by `apply` for good:
        who follows a cluster for long packs after each change. Rows are then numbered anew and
        derived values are computed again but for those that are slow to compute (`Carried`);
        digests and decisions stay what they are. No object is read for it: the columns of the pods
        that are there are taken as they are.

        tolerated: changed pods and nodes that are few, where not a twentieth of the cluster's pods.
        """
        few = max(_CHANGES, len(self.pods) // 20) if tolerated is None else tolerated
        if self._changes <= few:
            return self
        table = self._table
        pods = list(self.pods)
        living = np.array([row for row, pod in enumerate(pods) if pod is not None], dtype=np.int64)
        # Node by node in memory: what belongs to a node then lies side by side.
        living = living[np.argsort(table.node[living], kind="stable")]
        numbers = np.full(len(pods), NOWHERE, dtype=np.int64)
        numbers[living] = np.arange(living.size)
        in_order = numbers[table.in_order]
        in_order = in_order[in_order != NOWHERE]
        rank = np.empty(living.size, dtype=np.int64)
        rank[in_order] = np.arange(living.size)
        columns, pools, old = packed(table.columns, living, self.pools)
        return self._with(
            pods=PodRows.of(cast("list[Pod]", [pods[row] for row in living.tolist()])),
            _pools=pools,
            _keys=KeyRows.of(self.keys[living]),
            _columns=_Columns(
                _Table(
                    node=table.node[living],
                    nominated=table.nominated[living],
                    rank=rank,
                    in_order=in_order,
                    columns=columns,
                    requests={
                        rules: taken(self.requests(rules), living)
                        for rules in list(table.requests)  # others may decide meanwhile
                    },
                    derived={
                        key: derived.carried(old["labels"])
                        for key, derived in list(table.derived.items())
                        if isinstance(derived, Carried)
                    },
                )
            ),
            _changes=0,
        )

    def made_anew(self) -> Snapshot:
        """The same state put together from its objects, without anything that was computed."""
        return self.from_objects(
            self.objects(),
            now_ms=self.now_ms,
            state_digest=self.state_digest,
            history=self.history,
        )

    def _with(self, **changes: Any) -> Snapshot:
        kind: type = type(self)
        names, read = _fields(kind)
        return type(self)(**{**dict(zip(names, read(self), strict=True)), **changes})


@cache
def _fields(kind: type) -> tuple[tuple[str, ...], Callable[[Any], tuple[Any, ...]]]:
    """Names of the fields, and what reads all of them at once."""
    names = tuple(field.name for field in fields(kind))
    return names, attrgetter(*names)


def _followed(behind: _Behind, after: Snapshot) -> tuple[Delta, _Table]:
    """What lies between the two snapshots, and the table of the later one, nothing derived yet."""
    before, pools = behind.before, after._pools
    was_table = before._table
    size, added = len(before.pods), len(after.pods) - len(before.pods)
    there = sorted(behind.rows)
    row_ids = np.array([*there, *range(size, size + added)], dtype=np.int64)
    row_pods = [after.pods[row] for row in row_ids.tolist()]
    was, now = [before.pods[row] for row in there], row_pods[: len(there)]
    parts = None if added else changed_parts(was, now)
    columns = {
        column: array
        if parts is not None and column.reads is not None and parts.isdisjoint(column.reads)
        else _column_after(column, array, row_ids, row_pods, added, pools)
        for column, array in list(was_table.columns.items())  # others may decide meanwhile
    }
    requests = was_table.requests
    if added or not all(map(same_requests, was, now)):
        requests = {
            rules: _requests_after(matrix, row_ids, row_pods, added, pools, rules=rules)
            for rules, matrix in list(requests.items())
        }
    in_order, rank = was_table.in_order, was_table.rank
    if after._keys.used != before._keys.used:
        in_order = _inserted(in_order, after._keys, known=before._keys.used)
        rank = np.empty(in_order.size, dtype=np.int64)
        rank[in_order] = np.arange(in_order.size)

    def located(index: NodeIndex, names: PodColumn) -> NodeIndex:
        array = columns[names]
        if after.nodes is not before.nodes:
            return _locate(array, pools, after.nodes)
        if array is was_table.columns[names]:
            return index
        places = [_place(i, pools, after.nodes) for i in array[row_ids].tolist()]
        if added or row_ids.size > _FEW:
            return _replaced(index, row_ids, np.array(places, dtype=np.int32), added)
        return _few_replaced(index, row_ids, places)

    node = located(was_table.node, NODE_NAME)
    table = _Table(
        node=node,
        nominated=located(was_table.nominated, NOMINATED_NAME),
        rank=rank,
        in_order=in_order,
        columns=columns,
        requests=dict(requests),
        derived={},
    )
    old_node = was_table.node[row_ids[: len(there)]]
    if added:
        old_node = np.append(old_node, np.full(added, NOWHERE, dtype=np.int32))
    delta = Delta(
        rows=row_ids,
        added=added,
        old_node=old_node,
        new_node=node[row_ids],
        nodes_changed=after.nodes is not before.nodes,
        other_kinds=behind.other_kinds,
    )
    return delta, table


def _column_after(
    column: PodColumn,
    array: NDArray[Any],
    rows: Rows,
    pods: Sequence[Pod | None],
    added: int,
    pools: Pools,
) -> NDArray[Any]:
    """The column with the pods in their rows; itself where nothing in it changes."""
    if added or rows.size > _FEW:
        return _replaced(array, rows, fill(column, pods, pools), added)
    return _few_replaced(array, rows, values_of(column, pods, pools))


def _requests_after(
    matrix: Ints,
    rows: Rows,
    pods: Sequence[Pod | None],
    added: int,
    pools: Pools,
    *,
    rules: RequestRules,
) -> Ints:
    new = request_matrix(pods, pools, rules=rules)
    width = len(pools.resources)
    return _replaced(widen(matrix, width), rows, widen(new, width), added)


def _inserted(in_order: Rows, keys: KeyRows, *, known: int) -> Rows:
    """Rows in snapshot order, those without a key last; in `in_order` are the first `known`."""

    def name(row: int) -> tuple[str, ...]:
        # As text a dash would sort before the slash, and with it namespace `a-b` before `a`.
        return tuple(keys.keys[row].split("/", 1))

    new = sorted(range(known, keys.used), key=name)
    places = [bisect_left(in_order, name(row), hi=known, key=name) for row in new]
    free = np.arange(keys.used, keys.keys.size)
    return np.concatenate([np.insert(in_order[:known], places, new), free])


def _locate(names: NDArray[Any], pools: Pools, nodes: NodeTable) -> NodeIndex:
    """Node index per pod from interned node names; NOWHERE for unknown nodes and for no node."""
    # One slot more than names: index NOWHERE (-1) reads the last one.
    lookup = np.full(len(pools.names) + 1, NOWHERE, dtype=np.int32)
    ids = pools.names.ids
    for i, name in enumerate(nodes.names):
        interned = ids.get(name)
        if interned is not None:
            lookup[interned] = i
    return cast("NodeIndex", lookup[names])


def _place(name_id: int, pools: Pools, nodes: NodeTable) -> int:
    return NOWHERE if name_id == NOWHERE else nodes.index.get(pools.names.values[name_id], NOWHERE)


def _replaced(array: NDArray[Any], rows: Rows, values: NDArray[Any], added: int) -> NDArray[Any]:
    """`array` with the given rows replaced and the last `added` of them appended.

    The array itself is returned where nothing in it changes.
    """
    if added:
        # Resource by resource in memory, as the request matrix lies.
        pad = np.zeros((*array.shape[:0:-1], added), dtype=array.dtype).T
        array = np.concatenate([array, pad])
    elif not np.count_nonzero(array[rows] != values):
        return array
    else:
        array = array.copy(order="K")
    array[rows] = values
    return array


def _few_replaced(array: NDArray[Any], rows: Rows, values: Sequence[int | str]) -> NDArray[Any]:
    """`_replaced` of a few rows, whose values are compared sooner than arrays are made of them."""
    places = rows.tolist()
    if list(map(array.item, places)) == values:
        return array
    array = array.copy(order="K")
    for row, value in zip(places, values, strict=True):
        array[row] = value
    return array
