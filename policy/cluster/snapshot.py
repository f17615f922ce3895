"""The cluster as one cycle reads it: immutable, columnar, updated by deltas.

`Snapshot.apply` gives the snapshot after some objects changed; it copies the columns that change
and shares the rest, and lets everything derived from the snapshot (orders, sums, indexes) patch
itself instead of being computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol, Self, TypeVar, cast, overload

import numpy as np
from numpy.typing import NDArray

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
from policy.cluster.tables import (
    NODE_NAME,
    NOMINATED_NAME,
    NOWHERE,
    STANDARD,
    Column,
    Ints,
    Names,
    NodeTable,
    Pools,
    fill,
    name_array,
    node_table,
    request_matrix,
    widen,
)

Rows = NDArray[np.int64]
NodeIndex = NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """What `apply` changed, for derived values that patch themselves."""

    rows: Rows  #: pods whose object changed, ascending; new rows included
    added: int  #: how many of them are new rows at the end
    old_node: NodeIndex  #: node of each row before (NOWHERE for a new row)
    new_node: NodeIndex
    nodes_changed: bool  #: any node was added, removed or changed
    other_kinds: frozenset[str]  #: kinds beside Pod and Node of which an object changed


class _Changed(Sequence["Pod | None"]):
    """Pods of which a few differ from a list that is shared: most deltas touch a handful of many.

    Copying the list would touch every pod, because each copy counts as a reference to it.
    """

    __slots__ = ("_base", "_changes")
    _LIMIT = 2048  #: changes after which a list of its own is cheaper

    def __init__(self, base: list[Pod | None], changes: dict[int, Pod | None]) -> None:
        self._base = base
        self._changes = changes

    @classmethod
    def of(cls, pods: Sequence[Pod | None], changes: dict[int, Pod | None]) -> Sequence[Pod | None]:
        if isinstance(pods, _Changed):
            changes = {**pods._changes, **changes}
            pods = pods._base
        changed = cls(cast("list[Pod | None]", pods), changes)
        return changed if len(changes) <= cls._LIMIT else list(changed)

    def __len__(self) -> int:
        return len(self._base)

    @overload
    def __getitem__(self, row: int) -> Pod | None: ...
    @overload
    def __getitem__(self, row: slice) -> Sequence[Pod | None]: ...
    def __getitem__(self, row: int | slice) -> Pod | None | Sequence[Pod | None]:
        if isinstance(row, slice):
            return list(self)[row]
        place = row if row >= 0 else row + len(self._base)
        return self._changes[place] if place in self._changes else self._base[place]

    def __iter__(self) -> Iterator[Pod | None]:
        changes = self._changes
        return (changes.get(i, pod) for i, pod in enumerate(self._base))


class Derived(Protocol):
    """A value computed from a snapshot that can follow it through a delta."""

    def patched(self, before: Snapshot, after: Snapshot, delta: Delta) -> Self | None:
        """The value for `after`, None where it must be computed again when asked for."""


D = TypeVar("D", bound=Derived)
V = TypeVar("V")


@dataclass(frozen=True, slots=True, eq=False)
class _Remembered:
    """A value with what it was computed from."""

    inputs: tuple[object, ...]
    value: Any

    def patched(self, before: Snapshot, after: Snapshot, delta: Delta) -> _Remembered:
        # Whether it still holds is seen when it is asked for.
        return self

    def holds_for(self, inputs: tuple[object, ...]) -> bool:
        return len(inputs) == len(self.inputs) and all(map(_same, inputs, self.inputs))


def _same(one: object, other: object) -> bool:
    if one is other:
        return True
    if isinstance(one, np.ndarray) and isinstance(other, np.ndarray):
        return np.array_equal(one, other)
    return isinstance(one, Hashable) and isinstance(other, Hashable) and one == other


@dataclass(frozen=True, eq=False, kw_only=True)
class Snapshot:
    """Immutable cluster state with the instant (`now_ms`) at which it is looked at.

    Rows have no order that means anything, and pods keep them through deltas; `rank` is their
    place in snapshot order (namespace, name).
    """

    pods: Sequence[Pod | None]
    keys: Names  #: namespace/name per row
    pools: Pools
    nodes: NodeTable
    others: Mapping[str, Mapping[str, ClusterObject]]  #: kind -> key -> object
    now_ms: int
    state_digest: str
    history: digests.HistoryFigures | None
    node: NodeIndex  #: (pods,) index of the node a pod occupies, NOWHERE without one
    nominated: NodeIndex  #: (pods,) index of the node a waiting pod is nominated to
    rank: Ints  #: (pods,)
    _columns: dict[Column, NDArray[Any]]
    _requests: dict[RequestRules, Ints]
    _derived: dict[Hashable, Derived]
    _rows: dict[str, int]
    _new_rows: dict[str, int]

    # --- building ------------------------------------------------------------------------------

    @classmethod
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
        pods: dict[tuple[str, str], Pod] = {}
        others: dict[str, dict[str, ClusterObject]] = {}
        for obj in objects:
            if isinstance(obj, Pod):
                pods[obj.metadata.namespace or "default", obj.metadata.name] = obj
            elif isinstance(obj, Node):
                nodes[obj.metadata.name] = obj
            else:
                others.setdefault(kind_of(obj), {})[key_of(obj)] = obj
        place = {name: i for i, name in enumerate(sorted(pods))}
        # Node by node in memory: what is asked of a node's pods then lies side by side.
        order = sorted(place, key=lambda name: pods[name].spec.node_name)
        rows = [pods[name] for name in order]
        keys = name_array(f"{namespace}/{name}" for namespace, name in order)
        pools = Pools()
        requests = request_matrix(rows, pools, rules=CURRENT)
        table = node_table(nodes.values(), pools)
        columns: dict[Column, NDArray[Any]] = {c: fill(c, rows, pools) for c in STANDARD}
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
            pods=rows,
            keys=keys,
            pools=pools,
            nodes=table,
            others=others,
            now_ms=now_ms,
            state_digest=state_digest,
            history=history,
            node=_locate(columns[NODE_NAME], pools, table),
            nominated=_locate(columns[NOMINATED_NAME], pools, table),
            rank=np.array([place[name] for name in order], dtype=np.int64),
            _columns=columns,
            _requests={CURRENT: requests},
            _derived={},
            _rows={key: i for i, key in enumerate(keys.tolist())},
            _new_rows={},
        )

    # --- reading -------------------------------------------------------------------------------

    @cached_property
    def digest(self) -> str:
        """Digest of all that a decision reads: state, now and history figures."""
        return digests.snapshot_digest(self.state_digest, now_ms=self.now_ms, history=self.history)

    def row(self, key: str) -> int | None:
        """Row of the pod `namespace/name`, None where the cluster has none."""
        found = self._new_rows.get(key)
        if found is None:
            found = self._rows.get(key)
        return None if found is None or self.pods[found] is None else found

    def pod(self, key: str) -> Pod | None:
        row = self.row(key)
        return None if row is None else self.pods[row]

    def in_order(self, among: NDArray[np.bool_] | None = None) -> Iterator[tuple[int, str, Pod]]:
        """Row, key and object of every pod, or of some, by namespace and name.

        among: (pods,) bool.
        """
        rows = np.arange(len(self.pods)) if among is None else np.flatnonzero(among)
        for row in rows[np.argsort(self.rank[rows], kind="stable")].tolist():
            pod = self.pods[row]
            if pod is not None:
                yield row, self.keys[row], pod

    def column(self, column: Column) -> NDArray[Any]:
        """Values of all pods; shape (pods,). Computed at the first use, then kept up to date."""
        found = self._columns.get(column)
        if found is None:
            found = self._columns[column] = fill(column, self.pods, self.pools)
        return found

    def requests(self, rules: RequestRules = CURRENT) -> Ints:
        """Requests of pods as they count on a node; shape (pods, resources) int64."""
        found = self._requests.get(rules)
        if found is None or found.shape[1] < len(self.pools.resources):
            if found is None:
                found = request_matrix(self.pods, self.pools, rules=rules)
            found = self._requests[rules] = widen(found, len(self.pools.resources))
        return found

    @property
    def allocatable(self) -> Ints:
        """(nodes, resources) int64."""
        return widen(self.nodes.allocatable, len(self.pools.resources))

    def derived(self, key: Hashable, build: Callable[[Snapshot], D]) -> D:
        """A value computed once per snapshot and carried through deltas."""
        found = self._derived.get(key)
        if found is None:
            found = self._derived[key] = build(self)
        return cast("D", found)

    def remembered(self, name: str, inputs: tuple[object, ...], build: Callable[[], V]) -> V:
        """What `build` made of equal inputs the last time, on this snapshot or one before it.

        inputs: everything that `build` reads; arrays are compared by content, other objects as
        they compare themselves. Nobody may change the value.
        """
        found = self._derived.get(name)
        if not isinstance(found, _Remembered) or not found.holds_for(inputs):
            found = self._derived[name] = _Remembered(inputs, build())
        return cast("V", found.value)

    def kept(self) -> Iterable[Derived]:
        """The derived values that this snapshot holds."""
        return self._derived.values()

    def of_kind(self, kind: str) -> Mapping[str, ClusterObject]:
        return self.others.get(kind, {})

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

    @cached_property
    def namespace_labels(self) -> Mapping[str, Mapping[str, str]]:
        """Labels of every namespace that the cluster names."""
        found = self.of_kind("Namespace").values()
        return {n.metadata.name: n.metadata.labels or {} for n in found if isinstance(n, Namespace)}

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
        return self._with(now_ms=now_ms, history=history, _derived=dict(self._derived))

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
            return self._with(state_digest=state_digest, _derived=dict(self._derived))
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
        others = {kind: dict(of_kind) for kind, of_kind in self.others.items()}
        other_kinds = set()
        for (kind, key), obj in last.items():
            if kind not in {"Pod", "Node"}:
                other_kinds.add(kind)
                of_kind = others.setdefault(kind, {})
                if obj is None:
                    of_kind.pop(key, None)
                else:
                    of_kind[key] = obj
        nodes = self.nodes
        if changed_nodes:
            merged: dict[str, Node | None] = {n.metadata.name: n for n in nodes.nodes}
            merged.update(changed_nodes)
            nodes = node_table((n for n in merged.values() if n is not None), self.pools)
        return self._with_pods(
            changed_pods,
            nodes=nodes,
            others=others if other_kinds else self.others,
            other_kinds=frozenset(other_kinds),
            state_digest=state_digest,
        )

    def _with_pods(
        self,
        changed: Mapping[str, Pod | None],
        *,
        nodes: NodeTable,
        others: Mapping[str, Mapping[str, ClusterObject]],
        other_kinds: frozenset[str],
        state_digest: str,
    ) -> Snapshot:
        size = len(self.pods)
        pods: Sequence[Pod | None] = self.pods
        keys, new_rows, rank = self.keys, self._new_rows, self.rank
        rows: list[int] = []
        values: list[Pod | None] = []
        added: list[str] = []
        for key, pod in changed.items():
            row = self._new_rows.get(key, self._rows.get(key))
            if row is not None and row < size and self.keys[row] == key:
                rows.append(row)
                values.append(pod)
            elif pod is not None:
                added.append(key)
        if rows and not added:
            pods = _Changed.of(self.pods, dict(zip(rows, values, strict=True)))
        if added:
            pods = list(self.pods)
            for row, value in zip(rows, values, strict=True):
                pods[row] = value
            new_rows = dict(self._new_rows)
            for key in added:
                new_rows[key] = len(pods)
                rows.append(len(pods))
                values.append(changed[key])
                pods.append(changed[key])
            keys = np.concatenate([self.keys, name_array(added)])
            parts = [tuple(key.split("/", 1)) for key in keys.tolist()]
            order = sorted(range(len(parts)), key=parts.__getitem__)
            rank = np.empty(len(parts), dtype=np.int64)
            rank[order] = np.arange(len(parts), dtype=np.int64)
        by_row = np.argsort(np.array(rows, dtype=np.int64), kind="stable")
        row_ids = np.array(rows, dtype=np.int64)[by_row]
        row_pods = [values[i] for i in by_row]

        columns = {
            column: _replaced(array, row_ids, fill(column, row_pods, self.pools), len(added))
            for column, array in self._columns.items()
        }
        requests = {}
        for rules, matrix in self._requests.items():
            new = request_matrix(row_pods, self.pools, rules=rules)
            width = len(self.pools.resources)
            requests[rules] = _replaced(
                widen(matrix, width), row_ids, widen(new, width), len(added)
            )
        if nodes is self.nodes:
            places = [
                np.array([_place(i, self.pools, nodes) for i in columns[c][row_ids]], np.int32)
                for c in (NODE_NAME, NOMINATED_NAME)
            ]
            node = _replaced(self.node, row_ids, places[0], len(added))
            nominated = _replaced(self.nominated, row_ids, places[1], len(added))
        else:
            node = _locate(columns[NODE_NAME], self.pools, nodes)
            nominated = _locate(columns[NOMINATED_NAME], self.pools, nodes)
        after = self._with(
            pods=pods,
            keys=keys,
            nodes=nodes,
            others=others,
            state_digest=state_digest,
            node=node,
            nominated=nominated,
            rank=rank,
            _columns=columns,
            _requests=requests,
            _derived={},
            _new_rows=new_rows,
        )
        old_node = np.full(row_ids.size, NOWHERE, dtype=np.int32)
        known = row_ids < size
        old_node[known] = self.node[row_ids[known]]
        delta = Delta(
            rows=row_ids,
            added=len(added),
            old_node=old_node,
            new_node=node[row_ids],
            nodes_changed=nodes is not self.nodes,
            other_kinds=other_kinds,
        )
        for derived_key, derived in self._derived.items():
            patched = derived.patched(self, after, delta)
            if patched is not None:
                after._derived[derived_key] = patched
        return after

    def _with(self, **changes: Any) -> Snapshot:
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        return type(self)(**{**fields, **changes})


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
    elif not rows.size or np.array_equal(array[rows], values):
        return array
    else:
        array = array.copy(order="K")
    array[rows] = values
    return array
