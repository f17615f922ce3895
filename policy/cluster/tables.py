"""Pods and nodes as columns (struct of arrays) with interned labels, names and terms.

Rows are stable: a pod keeps its row while it changes node or status; a removed pod leaves an
empty row behind. Interning pools only ever grow, so they are shared by all snapshots that
descend from one another. Everything else is copied where it changes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from operator import attrgetter
from typing import Any, Final, TypeAlias, TypeVar, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from policy.cluster import canonical, times
from policy.cluster.objects import Node, Pod, PodAffinityTerm, PodSpec, PodStatus
from policy.cluster.requests import PODS, RequestRules, amounts, plain_requests, pod_requests
from policy.cluster.time_columns import parse_many

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Names = NDArray[np.object_]  # of str


class Pool:
    """Values numbered in order of first use."""

    __slots__ = ("ids", "values")

    def __init__(self) -> None:
        self.ids: dict[Hashable, int] = {}
        self.values: list[Any] = []

    def __len__(self) -> int:
        return len(self.values)

    def intern(self, key: Hashable, value: Any) -> int:
        found = self.ids.get(key)
        if found is None:
            found = self.ids[key] = len(self.values)
            self.values.append(value)
        return found

    def only(self, used: Ints) -> tuple[Pool, Ints]:
        """A pool of some values alone, and by old number the new one, NOWHERE for the others.

        used: numbers of the values, ascending; value `used[i]` becomes value i.
        """
        numbers = np.full(len(self) + 1, NOWHERE, dtype=np.int64)  # the last one is that of NOWHERE
        numbers[used] = np.arange(used.size)
        kept = (numbers != NOWHERE).tolist()
        found = Pool()
        found.values = list(compress(self.values, kept))
        # Keys are in the order of their numbers.
        found.ids = dict(zip(compress(self.ids, kept), range(used.size), strict=True))
        return found, numbers


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelSet:
    """Labels of a pod with the namespace they live in: what selectors look at."""

    namespace: str
    labels: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class HostPort:
    ip: str  #: 0.0.0.0 where the pod names none
    protocol: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TermSet:
    """Affinity terms as they stand in a pod, with the pod's namespace (their default)."""

    namespace: str
    terms: tuple[PodAffinityTerm, ...]


@dataclass(slots=True)
class Pools:
    """All interning pools of a family of snapshots."""

    names: Pool = field(default_factory=Pool)  #: node names, schedulers, namespaces ...
    labels: Pool = field(default_factory=Pool)  #: LabelSet
    ports: Pool = field(default_factory=Pool)  #: tuple[HostPort, ...]
    terms: Pool = field(default_factory=Pool)  #: TermSet
    resources: Pool = field(default_factory=Pool)  #: resource names, in column order
    #: pools of columns that only rule expressions read, made when first asked for
    by_name: dict[str, Pool] = field(default_factory=dict)
    #: caches that hang on a pool, by the column they belong to
    tables: dict[PodColumn, Any] = field(default_factory=dict)
    #: answers of selectors over `labels`, by what was asked; they grow with the pool
    matches: dict[Hashable, Bools] = field(default_factory=dict)
    _with_label: dict[tuple[str, str], list[int]] = field(default_factory=dict)
    _indexed: int = 0

    def with_label(self, key: str, value: str) -> Sequence[int]:
        """Ascending ids of the label sets that hold this label."""
        sets = self.labels.values
        for i in range(self._indexed, len(sets)):
            for label in sets[i].labels.items():
                self._with_label.setdefault(label, []).append(i)
        self._indexed = len(sets)
        return self._with_label.get((key, value), ())

    def named(self, name: str) -> Pool:
        found = self.by_name.get(name)
        if found is None:
            found = self.by_name[name] = Pool()
        return found

    def name(self, text: str) -> int:
        return self.names.intern(text, text)


_T = TypeVar("_T")
_KEPT: Final = 64
"""Values that are kept with a table of nodes."""

NOWHERE: Final = -1
_SMALL_RANGE: Final = 1024  # tables of this size cost next to nothing
_FEW_VALUES: Final = 8
_MANY: Final = 32
"""Pods of which it is worth while to look at many at once."""


Parts: TypeAlias = Callable[[Sequence[Pod]], list[Hashable]]


@dataclass(frozen=True, slots=True, eq=False)
class PodColumn:
    """How one per-pod column is computed; equal columns are the same object."""

    name: str
    dtype: type
    of: Callable[[Pod, Pools], int | str]
    #: value in the row of a removed pod
    gone: int = NOWHERE
    #: of each pod all that the value depends on, as keys; ids serve, as the pods live meanwhile
    parts: Parts | None = None
    #: the values of many pods, where that is faster than one by one
    many: Callable[[Sequence[Pod]], Ints] | None = None
    #: what of a pod it reads, of `changed_parts`; None where that is not known
    reads: frozenset[str] | None = None


def host_ports(pod: Pod, *, sidecars: bool = True) -> tuple[HostPort, ...]:
    """Host ports of app containers and, where `sidecars` count, restartable init containers."""
    restartable = (c for c in pod.spec.init_containers or () if c.restart_policy == "Always")
    return tuple(
        HostPort(ip=p.host_ip or "0.0.0.0", protocol=p.protocol or "TCP", port=p.host_port)
        for c in (*(pod.spec.containers or ()), *(restartable if sidecars else ()))
        for p in c.ports or ()
        if p.host_port > 0
    )


def _terms_id(pod: Pod, pools: Pools, terms: Sequence[PodAffinityTerm] | None, purpose: str) -> int:
    if not terms:
        return NOWHERE
    namespace = pod.metadata.namespace or "default"
    key = (purpose, namespace, msgspec.json.encode(terms))
    return pools.terms.intern(key, TermSet(namespace=namespace, terms=tuple(terms)))


def _anti_affinity(pod: Pod, pools: Pools) -> int:
    affinity = pod.spec.affinity
    if affinity is None or affinity.pod_anti_affinity is None:
        return NOWHERE
    return _terms_id(pod, pools, affinity.pod_anti_affinity.required, "anti")


def _ports_id(pod: Pod, pools: Pools) -> int:
    ports = host_ports(pod)
    return pools.ports.intern(ports, ports) if ports else NOWHERE


def _label_id(pod: Pod, pools: Pools) -> int:
    namespace = pod.metadata.namespace or "default"
    labels = pod.metadata.labels or {}
    # Bytes remember their hash; nested tuples compute it again when pools are packed.
    key = canonical.encode((namespace, labels))
    return pools.labels.intern(key, LabelSet(namespace=namespace, labels=labels))


_FINISHED: Final = frozenset({"Succeeded", "Failed"})


def terminated(pod: Pod) -> bool:
    """Succeeded and Failed pods occupy nothing."""
    return pod.status.phase in _FINISHED


def preempted(pod: Pod) -> bool:
    """Does the first DisruptionTarget condition say that a scheduler preempted the pod?"""
    for condition in pod.status.conditions or ():
        if condition.type == "DisruptionTarget":
            return condition.status == "True" and condition.reason == "PreemptionByScheduler"
    return False


def _nominated(pod: Pod, pools: Pools) -> int:
    waiting = pod.status.nominated_node_name and not pod.spec.node_name and not terminated(pod)
    return pools.name(pod.status.nominated_node_name) if waiting else NOWHERE


def _node_name(pod: Pod, pools: Pools) -> int:
    occupies = pod.spec.node_name and not terminated(pod)
    return pools.name(pod.spec.node_name) if occupies else NOWHERE


_SPEC: Final = frozenset({"spec"})
_PLACE: Final = frozenset({"place", "phase"})

NODE_NAME: Final = PodColumn(
    "node_name",
    np.int32,
    _node_name,
    parts=lambda pods: ["" if p.status.phase in _FINISHED else p.spec.node_name for p in pods],
    reads=_PLACE,
)
NOMINATED_NAME: Final = PodColumn(
    "nominated_name", np.int32, _nominated, reads=_PLACE | {"nomination"}
)
PRIORITY: Final = PodColumn(
    "priority", np.int64, lambda p, _: p.spec.priority or 0, gone=0, reads=_SPEC
)
START: Final = PodColumn(
    "start",
    np.int64,
    lambda p, _: times.parse_optional(p.status.start_time),
    gone=times.MISSING,
    many=lambda pods: parse_many([p.status.start_time for p in pods]),
    reads=frozenset({"start"}),
)
TERMINATING: Final = PodColumn(
    "terminating",
    np.bool_,
    lambda p, _: bool(p.metadata.deletion_timestamp),
    gone=0,
    reads=frozenset({"deletion"}),
)
PREEMPTED: Final = PodColumn(
    "preempted",
    np.bool_,
    lambda p, _: preempted(p),
    gone=0,
    parts=lambda pods: [id(p.status.conditions) for p in pods],
    reads=frozenset({"conditions"}),
)
LABELS: Final = PodColumn(
    "labels",
    np.int32,
    _label_id,
    parts=lambda pods: [(p.metadata.namespace, id(p.metadata.labels)) for p in pods],
    reads=frozenset({"labels"}),
)
ANTI_AFFINITY: Final = PodColumn(
    "anti_affinity",
    np.int32,
    _anti_affinity,
    parts=lambda pods: [
        (p.metadata.namespace, id(p.spec.affinity)) if p.spec.affinity else None for p in pods
    ],
    reads=_SPEC | {"labels"},
)
HOST_PORTS: Final = PodColumn(
    "host_ports",
    np.int32,
    _ports_id,
    parts=lambda pods: [(id(p.spec.containers), id(p.spec.init_containers)) for p in pods],
    reads=_SPEC,
)
SCHEDULER: Final = PodColumn(
    "scheduler",
    np.int32,
    lambda p, pools: pools.name(p.spec.scheduler_name or "default-scheduler"),
    parts=lambda pods: [p.spec.scheduler_name for p in pods],
    reads=_SPEC,
)
STANDARD: Final = (
    NODE_NAME,
    NOMINATED_NAME,
    PRIORITY,
    START,
    TERMINATING,
    PREEMPTED,
    LABELS,
    ANTI_AFFINITY,
    HOST_PORTS,
    SCHEDULER,
)


_INTERNED: Final[Mapping[str, tuple[PodColumn, ...]]] = {
    "names": (NODE_NAME, NOMINATED_NAME, SCHEDULER),
    "labels": (LABELS,),
    "terms": (ANTI_AFFINITY,),
    "ports": (HOST_PORTS,),
}
"""The standard columns of interned values, by pool."""


def packed(
    columns: Mapping[PodColumn, NDArray[Any]], rows: Ints, pools: Pools
) -> tuple[dict[PodColumn, NDArray[Any]], Pools, dict[str, Ints]]:
    """The standard columns of some rows, pools of what these hold, and by pool the old numbers.

    Value `old[i]` of a pool is value i of the new one. Resources stay, as requests and allocatable
    count them in their order. What other columns have interned is left behind: they are computed
    again when they are read.
    """
    kept = {column: columns[column][rows] for column in STANDARD}
    some = Pools(resources=pools.resources)
    old: dict[str, Ints] = {}
    for name, interned in _INTERNED.items():
        pool: Pool = getattr(pools, name)
        used = np.zeros(len(pool) + 1, dtype=np.bool_)  # the last one is that of NOWHERE
        for column in interned:
            used[kept[column]] = True
        old[name] = np.flatnonzero(used[:-1])
        found, numbers = pool.only(old[name])
        setattr(some, name, found)
        for column in interned:
            kept[column] = numbers[kept[column]].astype(column.dtype)
    return kept, some, old


def fill(column: PodColumn, pods: Sequence[Pod | None], pools: Pools) -> NDArray[Any]:
    """The column for the given pods; shape (pods,)."""
    living = cast("Sequence[Pod]", pods) if len(pods) >= _MANY and all(pods) else None
    if living is not None and column.many is not None:
        return column.many(living)
    if living is None or column.parts is None:
        return np.array(values_of(column, pods, pools), dtype=column.dtype)
    of = column.of
    parts = column.parts(living)
    firsts = dict(zip(parts, living, strict=True))  # one pod for each part
    values = {part: of(pod, pools) for part, pod in firsts.items()}
    return np.array([values[part] for part in parts], dtype=column.dtype)


def values_of(column: PodColumn, pods: Sequence[Pod | None], pools: Pools) -> list[int | str]:
    """The column for the given pods, one after the other."""
    of, gone = column.of, column.gone
    return [gone if pod is None else of(pod, pools) for pod in pods]


def changed_parts(before: Iterable[Pod | None], after: Iterable[Pod | None]) -> frozenset[str]:
    """What of some pods is another, in the words of `Column.reads`.

    Whatever is the same object is the same; what is another object may still be equal. `place` is
    the spec's node, `spec` is all else of it; `labels` stands for the namespace, too.
    """
    parts: set[str] = set()
    for one, other in zip(before, after, strict=True):
        if one is None or other is None:
            return _EVERY
        if one.spec is not other.spec:
            parts.add("place")
            # Pods that get their node are the most of them, and all else of the spec stays.
            if _REST_OF_SPEC(one.spec) != _REST_OF_SPEC(other.spec):
                parts.add("spec")
        was, now = one.metadata, other.metadata
        if was is not now:
            if was.labels is not now.labels or was.namespace != now.namespace:
                parts.add("labels")
            if was.deletion_timestamp != now.deletion_timestamp:
                parts.add("deletion")
        status, later = one.status, other.status
        if status is not later:
            if status.phase != later.phase:
                parts.add("phase")
            if status.start_time != later.start_time:
                parts.add("start")
            if status.conditions is not later.conditions:
                parts.add("conditions")
            if status.nominated_node_name != later.nominated_node_name:
                parts.add("nomination")
            if _sizes(status) != _sizes(later):
                parts.add("sizes")
    return frozenset(parts)


_EVERY: Final = frozenset(
    {"spec", "place", "labels", "deletion", "phase", "start", "conditions", "nomination", "sizes"}
)
_REST_OF_SPEC: Final = attrgetter(
    *(field.name for field in msgspec.structs.fields(PodSpec) if field.name != "node_name")
)


def _sizes(status: PodStatus) -> tuple[object, ...] | None:
    """What a status says about the pod's size; None where it says nothing."""
    told = (
        status.resources,
        status.allocated_resources,
        status.container_statuses,
        status.init_container_statuses,
        status.resize,
    )
    return (*told, status.conditions) if any(told) else None


def same_requests(one: Pod | None, other: Pod | None) -> bool:
    """Do the pods ask for the same on a node, as far as their containers are the same objects?"""
    if one is None or other is None:
        return one is other
    return (
        one.spec.containers is other.spec.containers
        and plain_requests(one)
        and plain_requests(other)
    )


def request_matrix(pods: Sequence[Pod | None], pools: Pools, *, rules: RequestRules) -> Ints:
    """Requests of the pods as they count on a node; shape (pods, resources) int64.

    Columns follow `pools.resources`, which grows with resources met for the first time.
    """
    distinct: list[dict[str, int]] = [{}]  # the first is that of a removed pod
    known: dict[int, int] = {}  # by the identity of the containers, where nothing else counts
    codes = np.zeros(len(pods), dtype=np.intp)
    for i, pod in enumerate(pods):
        if pod is None:
            continue
        plain = plain_requests(pod)
        code = known.get(id(pod.spec.containers)) if plain else None
        if code is None:
            code = len(distinct)
            distinct.append(pod_requests(pod, on_node=True, rules=rules))
            if plain:
                known[id(pod.spec.containers)] = code
        codes[i] = code
    for row in distinct:
        for name in row:
            pools.resources.intern(name, name)
    ids = pools.resources.ids
    # One resource after the other in memory: they are read one at a time.
    matrix = np.zeros((len(pools.resources), len(distinct)), dtype=np.int64)
    for code, row in enumerate(distinct):
        for name, value in row.items():
            matrix[ids[name], code] = value
    return matrix.take(codes, axis=1).T


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Coded:
    """A per-node value with few distinct ones: node i has `values[codes[i]]`."""

    codes: Ints
    values: tuple[Any, ...]

    def where(self, accepts: Callable[[Any], bool]) -> Bools:
        """Which nodes have a value that is accepted; shape (nodes,)."""
        if not self.values:
            return np.zeros(0, dtype=np.bool_)
        return np.array([accepts(v) for v in self.values], dtype=np.bool_)[self.codes]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeTable:
    """Nodes in name order; row i of every column is node i."""

    nodes: tuple[Node, ...]
    names: tuple[str, ...]
    name_array: Names  #: the same, to look up many at once
    index: dict[str, int]
    allocatable: Ints  #: (nodes, resources), columns as in `Pools.resources`
    allowed_pods: Ints  #: (nodes,)
    _memo: dict[Hashable, Any] = field(default_factory=dict, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.nodes)

    def coded(self, key: Hashable, of: Callable[[Node], Hashable]) -> Coded:
        """Distinct values of something of each node, remembered under `key`."""
        found = self._memo.get(key)
        if found is None:
            ids: dict[Hashable, int] = {}
            codes = np.array([ids.setdefault(of(n), len(ids)) for n in self.nodes], dtype=np.int64)
            found = self._memo[key] = Coded(codes=codes, values=tuple(ids))
        return cast("Coded", found)

    def kept(self, key: Hashable, build: Callable[[], _T]) -> _T:
        """What `build` makes of these nodes and the key alone; the first few keys are kept."""
        found = self._memo.get(key)
        if found is None:
            found = build()
            if len(self._memo) < _KEPT:
                self._memo[key] = found
        return cast("_T", found)

    @property
    def every(self) -> Ints:
        """Index of every node: where all are asked about, who sees this array copies no column."""
        found = self._memo.get("every")
        if found is None:
            found = self._memo["every"] = np.arange(len(self.nodes))
        return cast("Ints", found)

    def encoded_names(self) -> canonical.Fragment:
        """Canonical text of all names: every decision over all nodes holds it."""
        found = self._memo.get("encoded-names")
        if found is None:
            found = self._memo["encoded-names"] = canonical.fragment(self.names)
        return cast("canonical.Fragment", found)

    def label(self, key: str) -> Coded:
        """Values of one node label; None stands for nodes without it."""
        return self.coded(("label", key), lambda n: (n.metadata.labels or {}).get(key))

    def domains(self, key: str) -> tuple[Ints, int]:
        """Topology domain of each node (NOWHERE without the label), and how many there are."""
        coded = self.label(key)
        if None not in coded.values:
            return coded.codes, len(coded.values)
        none = coded.values.index(None)
        codes = coded.codes - (coded.codes > none)
        return np.where(coded.codes == none, NOWHERE, codes), len(coded.values) - 1


def node_table(nodes: Iterable[Node], pools: Pools) -> NodeTable:
    ordered = tuple(sorted(nodes, key=lambda n: n.metadata.name))
    lists = [amounts(n.status.allocatable) for n in ordered]
    for resources in lists:
        for name in resources:
            if name != PODS:
                pools.resources.intern(name, name)
    ids = pools.resources.ids
    allocatable = np.zeros((len(ordered), len(pools.resources)), dtype=np.int64)
    for i, resources in enumerate(lists):
        for name, value in resources.items():
            if name != PODS:
                allocatable[i, ids[name]] = value
    names = tuple(n.metadata.name for n in ordered)
    return NodeTable(
        nodes=ordered,
        names=names,
        name_array=name_array(names),
        index={name: i for i, name in enumerate(names)},
        allocatable=allocatable,
        allowed_pods=np.array([r.get(PODS, 0) for r in lists], dtype=np.int64),
    )


def name_array(names: Iterable[str]) -> Names:
    """The names as an array of text objects, from which many are looked up at once."""
    return np.array(list(names), dtype=np.object_)


def distinct(values: Ints, *, below: int) -> tuple[Ints, Ints]:
    """The values that occur, ascending, and for each element the position of its value.

    values: (n,) from 0 to below `below`; what `numpy.unique` gives, without a sort where the range
    is small.
    """
    if values.size <= _FEW_VALUES:
        # Plain numbers are gone through sooner than arrays are made.
        plain = values.tolist()
        found = sorted(set(plain))
        index = np.array([found.index(value) for value in plain], dtype=np.int64)
        return np.array(found, dtype=np.int64), index
    if below > 2 * values.size + _SMALL_RANGE:
        return np.unique(values, return_inverse=True)
    place = np.bincount(values, minlength=below) > 0
    return place.nonzero()[0], (place.cumsum() - 1).take(values)


def taken(matrix: Ints, rows: Ints) -> Ints:
    """Rows of a matrix that lies column by column in memory, and so does the result."""
    return matrix.T.take(rows, axis=1).T


def positions(starts: NDArray[np.int64], counts: NDArray[np.int64]) -> NDArray[np.int64]:
    """So many numbers from each start on, one after the other; both: (n,)."""
    shift = starts - (counts.cumsum() - counts)
    return np.asarray(np.arange(int(counts.sum())) + shift.repeat(counts))


def widen(matrix: Ints, width: int) -> Ints:
    """The matrix with columns of zeros added up to the width."""
    missing = width - matrix.shape[1]
    return matrix if missing <= 0 else np.pad(matrix, ((0, 0), (0, missing)))
