"""The variables of rule expressions, as columns of a snapshot: computed when asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from itertools import chain
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from policy.cluster import times
from policy.cluster.budgets import BudgetIndex
from policy.cluster.digest import HistoryFigures
from policy.cluster.leaving import leaving_since_ms
from policy.cluster.objects import Pod, key_of, workload_key
from policy.cluster.occupancy import Occupancy
from policy.cluster.requests import CPU, CURRENT, MEMORY, pod_limits, pod_requests, qos_class
from policy.cluster.snapshot import Rows, Snapshot
from policy.cluster.tables import (
    LABELS,
    PREEMPTED,
    PRIORITY,
    START,
    TERMINATING,
    PodColumn,
    Pool,
    Pools,
)
from policy.filters.base import Incoming
from policy.filters.pipeline import ConfiguredFilter
from policy.filters.registry import FILTERS
from policy.preemption.elsewhere import fits_elsewhere
from policy.rules.expressions import (
    BoolColumn,
    IntColumn,
    InternedColumn,
    NoFigures,
    RowByRow,
    Scalar,
    TimestampColumn,
    ValueTable,
)
from policy.rules.expressions import Column as Values
from policy.rules.expressions.variables import EMPTY_NODE, NEVER
from policy.rules.ruleset import RuleSet

Provider = Callable[[], Values]


ColumnSource: TypeAlias = tuple[Mapping[str, Callable[[Any], Values]], Any]
"""How variables are computed, by name, and what from. The functions are made once: a decision that
reads five of a hundred variables would spend more on making the others ready than on computing.
"""


class Lazy(RowByRow):
    """Variables by name, each computed at its first use."""

    def __init__(
        self,
        *sources: ColumnSource,
        at_rows: tuple[Mapping[str, Callable[[Any, Rows], Values]], Any] = ({}, None),
        providers: Mapping[str, Provider] = MappingProxyType({}),
    ) -> None:
        """at_rows: how to compute some of them for a few rows, without computing all.

        providers: further variables, which are there instead of those of the sources.
        """
        self._sources = sources
        self._at_rows = at_rows
        self._providers = providers
        self._found: dict[str, Values] = {}

    def __getitem__(self, name: str) -> Values:
        found = self._found.get(name)
        if found is None:
            found = self._found[name] = self._computed(name)
        return found

    def _computed(self, name: str) -> Values:
        provider = self._providers.get(name)
        if provider is not None:
            return provider()
        for functions, subject in self._sources:
            of = functions.get(name)
            if of is not None:
                return of(subject)
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(chain(self._providers, *(names for names, _ in self._sources))))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def at(self, name: str, rows: NDArray[np.intp]) -> Values | None:
        """A variable at a few rows, where that is less work than all of them; None otherwise."""
        functions, subject = self._at_rows
        of = None if name in self._found else functions.get(name)
        return None if of is None else of(subject, rows)

    def with_source(self, source: ColumnSource) -> Lazy:
        """These variables and those of another source; what is computed already is kept."""
        merged = Lazy(*self._sources, source, at_rows=self._at_rows, providers=self._providers)
        merged._found.update(self._found)
        return merged

    def also(self, providers: Mapping[str, Provider]) -> Lazy:
        """These variables and others; what is computed already is kept."""
        more = {**self._providers, **providers}
        merged = Lazy(*self._sources, at_rows=self._at_rows, providers=more)
        merged._found.update(self._found)
        return merged


@dataclass(frozen=True, slots=True)
class FrozenHistory:
    """History figures as the snapshot carries them, by `function/window`; no others are known."""

    figures_by_need: HistoryFigures

    def figures(self, function: str, window_seconds: int | None) -> Mapping[str, int] | None:
        return self.figures_by_need.get(history_key(function, window_seconds))


def history_key(function: str, window_seconds: int | None) -> str:
    """Key of one need in `Snapshot.history`."""
    return function if window_seconds is None else f"{function}/{window_seconds}"


# --- facts about one pod -----------------------------------------------------------------------


def owner_of(pod: Pod) -> str:
    """`Kind/name` of the controlling owner, "" without one."""
    for reference in pod.metadata.owner_references or ():
        if reference.controller:
            return f"{reference.kind}/{reference.name}"
    return ""


def workload_of(pod: Pod) -> str:
    """`namespace/Kind/name` of the controlling owner; of the pod itself without one."""
    return workload_key(key_of(pod), owner_of(pod))


_TEXTS: Final[Mapping[str, Callable[[Pod], str]]] = {
    "name": lambda p: p.metadata.name,
    "namespace": lambda p: p.metadata.namespace or "default",
    "uid": lambda p: p.metadata.uid,
    "preemptionPolicy": lambda p: p.spec.preemption_policy or "PreemptLowerPriority",
    "priorityClassName": lambda p: p.spec.priority_class_name,
    "owner": owner_of,
    "workload": workload_of,
    "schedulerName": lambda p: p.spec.scheduler_name or "default-scheduler",
    "node": lambda p: p.spec.node_name,
    "phase": lambda p: p.status.phase,
    "qosClass": qos_class,
}
_MAPS: Final[Mapping[str, Callable[[Pod], Mapping[str, Any]]]] = {
    "labels": lambda p: p.metadata.labels or {},
    "annotations": lambda p: p.metadata.annotations or {},
    "requests": lambda p: pod_requests(p, on_node=True),
    "limits": pod_limits,
}


def _text_column(field: str) -> PodColumn:
    of = _TEXTS[field]

    def code(pod: Pod, pools: Pools) -> int:
        text = of(pod)
        return pools.named(field).intern(text, text)

    return PodColumn(f"text:{field}", np.int64, code)


def _map_column(field: str) -> PodColumn:
    of = _MAPS[field]

    def code(pod: Pod, pools: Pools) -> int:
        found = of(pod)
        return pools.named(field).intern(tuple(sorted(found.items())), dict(found))

    return PodColumn(f"map:{field}", np.int64, code)


_CREATED: Final = PodColumn(
    "created",
    np.int64,
    lambda p, _: times.parse_optional(p.metadata.creation_timestamp),
    gone=times.MISSING,
)
_LEAVING_SINCE: Final = PodColumn(
    "leaving-since", np.int64, lambda p, _: leaving_since_ms(p), gone=times.MISSING
)
_TEXT_COLUMNS: Final = {field: _text_column(field) for field in _TEXTS}
_MAP_COLUMNS: Final = {field: _map_column(field) for field in _MAPS}


def _codes(snapshot: Snapshot, column: PodColumn) -> NDArray[np.intp]:
    """Codes of an interned column; a removed pod has any: no rule is asked about it."""
    codes = snapshot.column(column)
    return snapshot.remembered(
        f"codes of {column.name}", (codes,), lambda: np.maximum(codes, 0).astype(np.intp)
    )


def _interned(snapshot: Snapshot, column: PodColumn, pool: Pool) -> Values:
    table = snapshot.pools.tables.get(column)
    if table is None:
        table = snapshot.pools.tables[column] = ValueTable(pool.values)
    return InternedColumn(_codes(snapshot, column), table if len(table) else [""])


# --- variables that are the same for all rows --------------------------------------------------


def preemptor_variables(incoming: Incoming) -> ColumnSource:
    """preemptor.*, cluster.nodeCount and now."""
    return _PREEMPTOR, incoming


def _created(incoming: Incoming) -> int:
    created = times.parse_optional(incoming.pod.metadata.creation_timestamp)
    return incoming.snapshot.now_ms if created == times.MISSING else created


def _text_of(field: str, incoming: Incoming) -> str:
    return _TEXTS[field](incoming.pod)


def _scalar_of(of: Callable[[Incoming], Any], incoming: Incoming) -> Values:
    return Scalar(of(incoming))


_OF_PREEMPTOR: Final[Mapping[str, Callable[[Incoming], Any]]] = {
    "preemptor.key": lambda i: i.key,
    "preemptor.priority": lambda i: i.priority,
    "preemptor.labels": lambda i: i.labels,
    "preemptor.annotations": lambda i: i.pod.metadata.annotations or {},
    "preemptor.priorityClassAnnotations": lambda i: class_annotations(
        i.snapshot, i.pod.spec.priority_class_name
    ),
    "preemptor.cpuMilli": lambda i: i.requests(CURRENT).get(CPU, 0),
    "preemptor.memoryBytes": lambda i: i.requests(CURRENT).get(MEMORY, 0),
    "preemptor.requests": lambda i: i.requests(CURRENT),
    "preemptor.createdAt": _created,
    "preemptor.nominatedNode": lambda i: i.pod.status.nominated_node_name,
    "preemptor.waitingSeconds": lambda i: max(0, (i.snapshot.now_ms - _created(i)) // 1000),
    "cluster.nodeCount": lambda i: len(i.snapshot.nodes),
    "now": lambda i: i.snapshot.now_ms,
    **{
        f"preemptor.{field}": partial(_text_of, field)
        for field in (
            "name",
            "namespace",
            "uid",
            "preemptionPolicy",
            "priorityClassName",
            "owner",
            "workload",
            "schedulerName",
        )
    },
}
_PREEMPTOR: Final[Mapping[str, Callable[[Incoming], Values]]] = {
    name: partial(_scalar_of, of) for name, of in _OF_PREEMPTOR.items()
}


def scalar(of: Callable[[], Any]) -> Provider:
    """A variable that is the same for all rows."""
    return lambda: Scalar(of())


def class_annotations(snapshot: Snapshot, name: str) -> Mapping[str, str]:
    found = snapshot.priority_classes.get(name)
    return {} if found is None else found.metadata.annotations or {}


# --- variables with one row per pod ------------------------------------------------------------


def starts_or_now(snapshot: Snapshot, rows: Rows | None = None) -> NDArray[np.int64]:
    """Start of the pods (of all of them); one that has not started counts as starting now."""
    start = snapshot.column(START)
    start = start.copy() if rows is None else start.take(rows)
    start[start == times.MISSING] = snapshot.now_ms
    return start


def run_seconds(snapshot: Snapshot, rows: Rows | None = None) -> NDArray[np.int64]:
    """Seconds since the pods (all of them) started, 0 before that."""
    ran = starts_or_now(snapshot, rows)
    # In place: of a hundred thousand pods, arrays in between take longer than the numbers.
    np.subtract(snapshot.now_ms, ran, out=ran)
    np.maximum(ran, 0, out=ran)
    ran //= 1000
    return ran


def leaving_seconds(snapshot: Snapshot) -> NDArray[np.int64]:
    """Seconds since each pod was asked to go, 0 for one that is not leaving."""
    since = snapshot.column(_LEAVING_SINCE)
    seconds = (snapshot.now_ms - np.where(since == times.MISSING, snapshot.now_ms, since)) // 1000
    return np.asarray(np.maximum(0, seconds))


def victim_variables(snapshot: Snapshot) -> tuple[ColumnSource, ColumnSource]:
    """victim.* and node.* (the node that the pod is on), one row per pod of the snapshot."""
    nodes = cache(lambda: np.maximum(snapshot.node, 0).astype(np.intp))
    return (_VICTIM, snapshot), node_variables(snapshot, nodes)


def _requested(snapshot: Snapshot, resource: str) -> Values:
    position = snapshot.pools.resources.ids.get(resource)
    if position is None:
        return IntColumn(np.zeros(len(snapshot.pods), dtype=np.int64))
    return IntColumn(np.ascontiguousarray(snapshot.requests()[:, position]))


def _pdb_matches(snapshot: Snapshot) -> Values:
    labels = np.maximum(snapshot.column(LABELS), 0).astype(np.int64)
    some = len(snapshot.pools.labels)
    return IntColumn(BudgetIndex.of(snapshot).counts(labels) if some else labels)


def _budget_last_evicted(snapshot: Snapshot) -> Values:
    """By the workloads of the pods that each budget selects, as history counts evictions."""
    figures = (snapshot.history or {}).get(history_key("secondsSinceLastPreempted", None))
    if figures is None:
        return NoFigures()
    found = np.full(len(snapshot.pods), NEVER, dtype=np.int64)
    labels = snapshot.column(LABELS)
    there = np.flatnonzero(labels >= 0)
    if not figures or not there.size:
        return IntColumn(found)
    index = BudgetIndex.of(snapshot)
    place, budget = index.pairs(labels[there])
    rows = there[place]
    codes = snapshot.column(_TEXT_COLUMNS["workload"])[rows]
    workloads, used = np.unique(codes, return_inverse=True)
    names = snapshot.pools.named("workload").values
    seconds = np.array([figures.get(names[w], NEVER) for w in workloads.tolist()], dtype=np.int64)
    of_budget = np.full(len(index.budgets), NEVER, dtype=np.int64)
    np.minimum.at(of_budget, budget, seconds[used])
    np.minimum.at(found, rows, of_budget[budget])
    return IntColumn(found)


def _created_at(snapshot: Snapshot) -> Values:
    found = snapshot.column(_CREATED)
    return TimestampColumn(np.where(found == times.MISSING, snapshot.now_ms, found))


def _label_sets(snapshot: Snapshot) -> Values:
    labels = [s.labels for s in snapshot.pools.labels.values]
    return InternedColumn(_codes(snapshot, LABELS), labels or [{}])


def _namespace_labels(snapshot: Snapshot) -> Values:
    known = snapshot.namespace_labels
    labels = [known.get(s.namespace, {}) for s in snapshot.pools.labels.values]
    return InternedColumn(_codes(snapshot, LABELS), labels or [{}])


def _class_notes(snapshot: Snapshot) -> Values:
    codes = _codes(snapshot, _TEXT_COLUMNS["priorityClassName"])
    names = snapshot.pools.named("priorityClassName").values
    return InternedColumn(codes, [class_annotations(snapshot, n) for n in names] or [{}])


def _interned_of(field: str, column: PodColumn, snapshot: Snapshot) -> Values:
    return _interned(snapshot, column, snapshot.pools.named(field))


_VICTIM: Final[Mapping[str, Callable[[Snapshot], Values]]] = {
    "victim.key": lambda s: InternedColumn(np.arange(len(s.keys)), s.keys.tolist()),
    "victim.priority": lambda s: IntColumn(s.column(PRIORITY)),
    "victim.labels": _label_sets,
    "victim.namespaceLabels": _namespace_labels,
    "victim.priorityClassAnnotations": _class_notes,
    "victim.cpuMilli": lambda s: _requested(s, CPU),
    "victim.memoryBytes": lambda s: _requested(s, MEMORY),
    "victim.createdAt": _created_at,
    "victim.startTime": lambda s: TimestampColumn(starts_or_now(s)),
    "victim.started": lambda s: BoolColumn(s.column(START) != times.MISSING),
    "victim.runtimeSeconds": lambda s: IntColumn(run_seconds(s)),
    "victim.terminating": lambda s: BoolColumn(s.column(TERMINATING)),
    "victim.terminatingSeconds": lambda s: IntColumn(leaving_seconds(s)),
    "victim.terminatingByPreemption": lambda s: BoolColumn(
        s.column(TERMINATING) & s.column(PREEMPTED)
    ),
    "victim.pdbMatches": _pdb_matches,
    "victim.budgetLastEvictedSeconds": _budget_last_evicted,
    **{
        f"victim.{field}": partial(_interned_of, field, column)
        for field, column in (
            *_TEXT_COLUMNS.items(),
            *((f, c) for f, c in _MAP_COLUMNS.items() if f != "labels"),
        )
    },
}
_VICTIM_AT_ROWS: Final[Mapping[str, Callable[[Snapshot, Rows], Values]]] = {
    "victim.startTime": lambda s, rows: TimestampColumn(starts_or_now(s, rows)),
    "victim.runtimeSeconds": lambda s, rows: IntColumn(run_seconds(s, rows)),
}


@lru_cache(maxsize=16)
def uses_of(rules: RuleSet) -> tuple[ConfiguredFilter, ...]:
    """The filters of a rule set with their parameters."""
    return tuple(
        ConfiguredFilter(info=FILTERS[u.name], parameters=u.parameters) for u in rules.filters
    )


def pod_variables(incoming: Incoming, uses: Sequence[ConfiguredFilter]) -> Lazy:
    """What rules about victims read: victim.*, node.*, preemptor.*, cluster.nodeCount and now.

    uses: the filters by which a victim fits elsewhere.
    """
    snapshot = incoming.snapshot
    return Lazy(
        *victim_variables(snapshot),
        preemptor_variables(incoming),
        at_rows=(_VICTIM_AT_ROWS, snapshot),
        providers={
            "victim.fitsElsewhere": lambda: BoolColumn(fits_elsewhere(snapshot, uses)),
        },
    )


def lasting_inputs(
    snapshot: Snapshot, variables: Mapping[str, Values], names: Iterable[str]
) -> tuple[object, ...] | None:
    """Everything that the named variables are computed from; None where the instant is part of it.

    Equal inputs mean equal columns (`Snapshot.remembered`).
    """
    inputs: list[object] = []
    for name in names:
        group, _, field = name.partition(".")
        if group == "preemptor":
            value = variables[name]
            assert isinstance(value, Scalar)
            inputs.append(value.value)
        elif group == "victim" and field in _LASTING:
            inputs += _LASTING[field](snapshot)
        else:
            return None
    return tuple(inputs)


def lasting_columns(name: str) -> Callable[[Snapshot], list[object]] | None:
    """The columns that a variable of victims is made of; None where it is not only of columns."""
    group, _, field = name.partition(".")
    return _LASTING.get(field) if group == "victim" else None


def _backed(*columns: PodColumn) -> Callable[[Snapshot], list[object]]:
    return lambda snapshot: [snapshot.column(column) for column in columns]


_LASTING: Final[Mapping[str, Callable[[Snapshot], list[object]]]] = {
    **{field: _backed(column) for field, column in _TEXT_COLUMNS.items()},
    "annotations": _backed(_MAP_COLUMNS["annotations"]),
    "priority": _backed(PRIORITY),
    "labels": _backed(LABELS),
    "namespaceLabels": lambda s: [s.column(LABELS), s.of_kind("Namespace")],
    "started": _backed(START),
    "terminating": _backed(TERMINATING),
    "terminatingByPreemption": _backed(TERMINATING, PREEMPTED),
    "cpuMilli": lambda s: [s.requests()],
    "memoryBytes": lambda s: [s.requests()],
}


# --- variables with one row per node -----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _NodeRows:
    """Row i is about node nodes()[i]."""

    snapshot: Snapshot
    nodes: Callable[[], NDArray[np.intp]]


def node_variables(snapshot: Snapshot, nodes: Callable[[], NDArray[np.intp]]) -> ColumnSource:
    """node.*, row i about node nodes()[i]."""
    return _NODE, _NodeRows(snapshot, nodes)


def _amount(rows: _NodeRows, resource: str) -> Values:
    snapshot, nodes = rows.snapshot, rows.nodes()
    position = snapshot.pools.resources.ids.get(resource)
    if position is None or not len(snapshot.nodes):
        return IntColumn(np.zeros(nodes.size, dtype=np.int64))
    return IntColumn(snapshot.allocatable[nodes, position])


def _node_labels(rows: _NodeRows) -> Values:
    labels = [n.metadata.labels or {} for n in rows.snapshot.nodes.nodes]
    return InternedColumn(rows.nodes(), labels or [{}])


def _cordoned(rows: _NodeRows) -> Values:
    nodes = rows.snapshot.nodes.nodes
    flags = np.array([n.spec.unschedulable for n in nodes] or [False], dtype=np.bool_)
    return BoolColumn(flags[rows.nodes()])


def _pod_counts(rows: _NodeRows) -> Values:
    counts = Occupancy.of(rows.snapshot).pods
    at = rows.nodes()
    return IntColumn(counts[at] if counts.size else np.zeros(at.size, dtype=np.int64))


def _lowest_priorities(rows: _NodeRows) -> Values:
    snapshot = rows.snapshot
    lowest = np.full(len(snapshot.nodes) + 1, EMPTY_NODE, dtype=np.int64)
    here = np.flatnonzero(snapshot.node >= 0)
    np.minimum.at(lowest, snapshot.node[here], snapshot.column(PRIORITY)[here])
    return IntColumn(lowest[rows.nodes()])


_NODE: Final[Mapping[str, Callable[[_NodeRows], Values]]] = {
    "node.name": lambda r: InternedColumn(r.nodes(), r.snapshot.nodes.names or ("",)),
    "node.labels": _node_labels,
    "node.unschedulable": _cordoned,
    "node.cpuMilli": lambda r: _amount(r, CPU),
    "node.memoryBytes": lambda r: _amount(r, MEMORY),
    "node.podCount": _pod_counts,
    "node.lowestPriority": _lowest_priorities,
}
