"""What a filter is: static verdicts per node, and a load per node that eviction can lower.

A filter is built for one incoming pod. Whatever eviction can change about its answer is a *load*:
`width` integers per node, to which every pod on the node adds its *demand*. Taking pods away and
putting them back is then addition and subtraction of columns for all nodes at once, the same for
resources, host ports, affinity and spread.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal, Protocol, TypeAlias, runtime_checkable

import msgspec
import numpy as np
from numpy.typing import NDArray

from policy.cluster.objects import Pod
from policy.cluster.requests import RequestRules, Requests, pod_requests
from policy.cluster.selectors import Selector
from policy.cluster.snapshot import Snapshot
from policy.cluster.tables import LABELS, Bools, Coded, Ints, LabelSet, Pools
from policy.filters.messages import NEWEST, Messages
from policy.lazy import once

Nodes = NDArray[np.int64]
Codes = NDArray[np.int8]

SUCCESS: Final = 0
UNSCHEDULABLE: Final = 1
UNRESOLVABLE: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """Status of some nodes: codes (n,), and for each the index of its reasons in `texts`."""

    codes: Codes
    reasons: NDArray[np.int32]
    texts: tuple[tuple[str, ...], ...]

    @staticmethod
    def single(codes: Codes, text: str | tuple[str, ...]) -> Verdicts:
        """Verdicts of a filter that knows one reason."""
        texts = (text,) if isinstance(text, str) else text
        return Verdicts(codes=codes, reasons=(codes != SUCCESS).astype(np.int32), texts=((), texts))


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class InFlight:
    """What the cycle of a pod group changes about the view of one of its members.

    Source: the scheduling queue gives out nothing but the key of a pod that is being scheduled,
    and the lists of nodes with affinity are made before the cycle (kube-scheduler 1.36).
    """

    #: (rows,) pending pods of the cycle: of one that is nominated filters see neither requests
    #: nor labels
    pods: NDArray[np.int64]
    #: (nodes,) nodes that held a pod with required anti-affinity before the cycle; None: those
    #: that hold one now
    with_anti_affinity: Bools | None
    #: (nodes,) nodes that held a pod with any affinity between pods; None as above
    with_affinity: Bools | None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class NodeUse:
    """What the pods of nodes use of one resource, as resource scorers count it."""

    requested: Ints  #: (nodes,)
    assumed: Ints  #: (nodes,) beyond that, for containers that name no request


@dataclass(frozen=True, eq=False, kw_only=True)
class Incoming:
    """The pod that is being placed, as filters read it."""

    snapshot: Snapshot
    pod: Pod
    key: str
    row: int
    messages: Messages = NEWEST  #: whose texts the filters give
    ignored: frozenset[str] = frozenset()  #: resources that extenders look after alone
    in_flight: InFlight | None = None  #: where the pod is placed within a group's cycle
    #: use of nodes by resource, where it is not that of the snapshot
    node_use: Mapping[str, NodeUse] | None = None
    _requests: dict[RequestRules, Requests] = field(default_factory=dict)

    @once
    def namespace(self) -> str:
        return self.pod.metadata.namespace or "default"

    @once
    def labels(self) -> dict[str, str]:
        return self.pod.metadata.labels or {}

    @once
    def priority(self) -> int:
        return self.pod.spec.priority or 0

    @once
    def label_set(self) -> LabelSet:
        return LabelSet(namespace=self.namespace, labels=self.labels)

    def requests(self, rules: RequestRules) -> Requests:
        """What the pod asks for, as the scheduler counts a pod that it is placing."""
        found = self._requests.get(rules)
        if found is None:
            asked = pod_requests(self.pod, on_node=False, rules=rules)
            found = {name: n for name, n in asked.items() if name not in self.ignored}
            self._requests[rules] = found
        return found


@runtime_checkable
class CountsPods(Protocol):
    """A filter of which one column of the load is the number of pods."""

    @property
    def pod_column(self) -> int: ...


class Filter(Protocol):
    """One filter, built for one incoming pod."""

    @property
    def width(self) -> int:
        """Number of load columns; 0 where eviction changes nothing about the answer."""

    @property
    def local(self) -> bool:
        """Is the answer for a node a matter of that node, its pods and the pod's spec alone?

        More load then never helps, and the reasons of some nodes stand in one order, whichever
        other nodes are judged with them.
        """

    def base(self) -> Ints:
        """Load with every pod in place; shape (nodes, width)."""

    def demand(self, rows: Ints, nodes: Nodes) -> Ints:
        """What pod rows[i] adds to the load of nodes[i]; shape (rows, width)."""

    def without(self, load: Ints, removed: Ints) -> Ints:
        """The load after pods that demanded `removed` in sum were taken away."""

    def passes(self, load: Ints, nodes: Nodes) -> Bools:
        """Does the pod pass on nodes[i] under load[i]? Shape (n,)."""

    def ceiling(self, nodes: Nodes) -> Ints | None:
        """Loads up to which the pod passes on each node; shape (n, width).

        None where passing is no matter of staying at or below fixed loads.
        """

    def judge(self, load: Ints, nodes: Nodes) -> Verdicts:
        """`passes` with codes and reasons."""


class PlainFilter(ABC):
    """A filter that judges one node in plain numbers, far sooner than in columns."""

    @abstractmethod
    def load(self, node: int) -> list[int]:
        """`base` of one node."""

    @abstractmethod
    def demand_of(self, row: int) -> list[int]:
        """`demand` of one pod."""

    @abstractmethod
    def status(self, load: Sequence[int], node: int) -> tuple[int, tuple[str, ...]]:
        """`judge` of one node under its load: code and reasons."""


class StaticFilter(PlainFilter):
    """A filter whose answer no eviction changes: verdicts for all nodes, computed once."""

    width = 0
    local = True

    def __init__(self, verdicts: Verdicts) -> None:
        self._verdicts = verdicts
        self._ok = verdicts.codes == SUCCESS

    def base(self) -> Ints:
        return np.zeros((self._ok.size, 0), dtype=np.int64)

    def demand(self, rows: Ints, nodes: Nodes) -> Ints:
        return np.zeros((rows.size, 0), dtype=np.int64)

    def without(self, load: Ints, removed: Ints) -> Ints:
        return load

    def passes(self, load: Ints, nodes: Nodes) -> Bools:
        return np.asarray(self._ok[nodes])

    def ceiling(self, nodes: Nodes) -> Ints | None:
        # Nodes that fail here never pass, which no load expresses.
        return np.zeros((nodes.size, 0), dtype=np.int64) if self._ok[nodes].all() else None

    def judge(self, load: Ints, nodes: Nodes) -> Verdicts:
        return Verdicts(
            codes=self._verdicts.codes[nodes],
            reasons=self._verdicts.reasons[nodes],
            texts=self._verdicts.texts,
        )

    def load(self, node: int) -> list[int]:
        return []

    def demand_of(self, row: int) -> list[int]:
        return []

    def status(self, load: Sequence[int], node: int) -> tuple[int, tuple[str, ...]]:
        found = self._verdicts
        return found.codes.item(node), found.texts[found.reasons.item(node)]


def unresolvable(coded: Coded, reasons: Sequence[tuple[str, ...]]) -> StaticFilter | None:
    """A filter that fails nodes by a value of theirs, for good; None where every node passes.

    reasons: parallel to `coded.values`, empty for a value that passes.
    """
    if not any(reasons):
        return None
    texts = tuple(dict.fromkeys([(), *reasons]))
    places = np.array([texts.index(found) for found in reasons], dtype=np.int32)
    index = places[coded.codes]
    codes = np.where(index > 0, UNRESOLVABLE, SUCCESS).astype(np.int8)
    return StaticFilter(Verdicts(codes=codes, reasons=index, texts=texts))


class LinearFilter:
    """Base of filters whose load is a plain sum of demands."""

    local = False

    def without(self, load: Ints, removed: Ints) -> Ints:
        return load - removed

    def ceiling(self, nodes: Nodes) -> Ints | None:
        return None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TopologyObstacle:
    """What in the topology of a node makes a filter fail it."""

    kind: Literal["affinity", "anti-affinity", "existing-anti-affinity", "spread"]
    topology_key: str
    pods: Ints  #: rows that count there; none where it is a pod that is missing
    others_min: int = 0  #: spread: matching pods in the domain that has the fewest of the others
    max_skew: int = 0  #: spread: of the constraint


class TopologyFilter(LinearFilter, ABC):
    """A filter that can name the pods because of which it fails a node."""

    @abstractmethod
    def obstacles(self, node: int, staying: Bools) -> list[TopologyObstacle]:
        """Why the pod fails on the node with only the pods `staying` there; shape (pods,)."""


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class TopologyCount:
    """What a topology filter counts in each domain of one topology.

    The load of a node is the count of its domain; where pods come and go on many nodes, counts
    follow them that loads of single nodes do not.
    """

    domain: Ints  #: (nodes,) NOWHERE for a node that is in none
    domains: int
    #: what each pod counts, (pods,), and on which nodes, (nodes,), None for all; they add up
    parts: tuple[tuple[Ints | Bools, Bools | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Narrowing:
    """What a filter says before nodes are looked at one by one (PreFilter).

    `rejected`: reasons for which the pod fits on no node at all. `error`: the cycle fails.
    `names`: only these nodes are filtered; `outside` tells what becomes of the others. `by`: the
    filter that says so, filled in where filters are gone through.
    """

    rejected: tuple[str, ...] = ()
    error: str = ""
    names: frozenset[str] | None = None
    outside: str = ""  #: `unresolvable`, `skipped` or `dry-run`; see node-affinity
    by: str = ""


Value: TypeAlias = str | int | bool | tuple[Mapping[str, Any], ...]
"""A parameter's value: a word, a number, a truth value, or a list of mappings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter of a filter as rule files may set it."""

    doc: str
    default: Value
    choices: tuple[str, ...] | None = None
    #: of a list: the keys of each entry with their types, all of which must be given
    entry: type[msgspec.Struct] | None = None
    #: what a rule set means that was stored before the parameter existed; without it such a rule
    #: set is refused, so every parameter that is added after a release names one
    before: Value | None = None

    @property
    def type(self) -> type:
        return list if self.entry is not None else type(self.default)


Parameters = Mapping[str, Any]
"""Every parameter of the filter, defaults filled in."""


def _no_narrowing(incoming: Incoming, parameters: Parameters) -> Narrowing | None:
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterInfo:
    """A filter as the registry knows it."""

    name: str  #: as rule files write it
    plugin: str  #: kube-scheduler's name, for messages and conformance
    doc: str  #: what it checks, and what eviction can and cannot resolve
    #: None where the filter has nothing to say about this pod on any node
    build: Callable[[Incoming, Parameters], Filter | None]
    narrow: Callable[[Incoming, Parameters], Narrowing | None] = _no_narrowing
    parameters: Mapping[str, Parameter] = field(default_factory=dict)

    def defaults(self) -> dict[str, Value]:
        return {name: p.default for name, p in self.parameters.items()}


def label_matches(
    snapshot: Snapshot,
    key: tuple[Any, ...],
    match: Callable[[LabelSet], bool],
    *,
    within: Selector,
) -> Bools:
    """`match` of every label set that the snapshot's pods carry, remembered under `key`.

    within: selects at least what matches; label sets that it rules out by a label that they would
    need are not asked. Returns (label sets,) bool; index it with the LABELS column. A key must
    always mean the same `match`.
    """
    memo = snapshot.pools.matches
    sets: Sequence[LabelSet] = snapshot.pools.labels.values
    known = memo.get(key)
    done = 0 if known is None else known.size
    if known is None or done < len(sets):
        new = np.zeros(len(sets) - done, dtype=np.bool_)
        for i in _possible(snapshot.pools, within, done):
            new[i - done] = match(sets[i])
        known = memo[key] = new if known is None else np.concatenate([known, new])
    return known


def _possible(pools: Pools, selector: Selector, first: int) -> Iterable[int]:
    """Ids from `first` on of label sets that have a label which the selector demands."""
    for requirement in selector.requirements:
        if requirement.operator == "In":
            ids = [pools.with_label(requirement.key, value) for value in requirement.values]
            return (i for found in ids for i in found[bisect_left(found, first) :])
    return range(first, len(pools.labels))


def pods_matching(snapshot: Snapshot, matches: Bools) -> Bools:
    """Which pods carry a label set that matches; shape (pods,)."""
    if not matches.size:
        return np.zeros(len(snapshot.pods), dtype=np.bool_)
    labels = snapshot.column(LABELS)
    # A removed pod's label id is NOWHERE (-1): it must match nothing.
    return np.asarray(matches[labels] & (labels >= 0))
