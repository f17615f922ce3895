"""The variables of rule expressions, as columns of a snapshot: computed when asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from policy.cluster import times
from policy.cluster.budgets import BudgetIndex
from policy.cluster.digest import HistoryFigures
from policy.cluster.objects import Pod, key_of, workload_key
from policy.cluster.requests import CPU, CURRENT, MEMORY, pod_requests
from policy.cluster.snapshot import Rows, Snapshot
from policy.cluster.tables import (
    LABELS,
    PREEMPTED,
    PRIORITY,
    START,
    TERMINATING,
    Column,
    Pool,
    Pools,
)
from policy.filters.base import Incoming
from policy.rules.expressions import (
    BoolColumn,
    IntColumn,
    InternedColumn,
    RowByRow,
    Scalar,
    TimestampColumn,
    ValueTable,
)
from policy.rules.expressions import Column as Values

Provider = Callable[[], Values]


class Lazy(RowByRow):
    """Variables by name, each computed at its first use."""

    def __init__(
        self,
        providers: Mapping[str, Provider],
        at_rows: Mapping[str, Callable[[Rows], Values]] = MappingProxyType({}),
    ) -> None:
        """at_rows: how to compute some of them for a few rows, without computing all."""
        self._providers = providers
        self._at_rows = at_rows
        self._found: dict[str, Values] = {}

    def __getitem__(self, name: str) -> Values:
        found = self._found.get(name)
        if found is None:
            found = self._found[name] = self._providers[name]()
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._providers)

    def __len__(self) -> int:
        return len(self._providers)

    def at(self, name: str, rows: NDArray[np.intp]) -> Values | None:
        """A variable at a few rows, where that is less work than all of them; None otherwise."""
        of = None if name in self._found else self._at_rows.get(name)
        return None if of is None else of(rows)

    def also(self, providers: Mapping[str, Provider]) -> Lazy:
        """These variables and others; what is computed already is kept."""
        merged = Lazy({**self._providers, **providers}, self._at_rows)
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
    "qosClass": lambda p: p.status.qos_class,
}
_MAPS: Final[Mapping[str, Callable[[Pod], Mapping[str, Any]]]] = {
    "labels": lambda p: p.metadata.labels or {},
    "annotations": lambda p: p.metadata.annotations or {},
    "requests": lambda p: pod_requests(p, on_node=True),
}


def _text_column(field: str) -> Column:
    of = _TEXTS[field]

    def code(pod: Pod, pools: Pools) -> int:
        text = of(pod)
        return pools.named(field).intern(text, text)

    return Column(f"text:{field}", np.int64, code)


def _map_column(field: str) -> Column:
    of = _MAPS[field]

    def code(pod: Pod, pools: Pools) -> int:
        found = of(pod)
        return pools.named(field).intern(tuple(sorted(found.items())), dict(found))

    return Column(f"map:{field}", np.int64, code)


_CREATED: Final = Column(
    "created",
    np.int64,
    lambda p, _: times.parse_optional(p.metadata.creation_timestamp),
    gone=times.MISSING,
)
_TEXT_COLUMNS: Final = {field: _text_column(field) for field in _TEXTS}
_MAP_COLUMNS: Final = {field: _map_column(field) for field in _MAPS}


def _codes(snapshot: Snapshot, column: Column) -> NDArray[np.intp]:
    """Codes of an interned column; a removed pod has any: no rule is asked about it."""
    codes = snapshot.column(column)
    return snapshot.remembered(
        f"codes of {column.name}", (codes,), lambda: np.maximum(codes, 0).astype(np.intp)
    )


def _interned(snapshot: Snapshot, column: Column, pool: Pool) -> Values:
    table = snapshot.pools.tables.get(column)
    if table is None:
        table = snapshot.pools.tables[column] = ValueTable(pool.values)
    return InternedColumn(_codes(snapshot, column), table if len(table) else [""])


# --- variables that are the same for all rows --------------------------------------------------


def preemptor_variables(incoming: Incoming) -> dict[str, Provider]:
    """preemptor.*, cluster.nodeCount and now."""
    snapshot, pod = incoming.snapshot, incoming.pod
    created = times.parse_optional(pod.metadata.creation_timestamp)
    created = snapshot.now_ms if created == times.MISSING else created
    requests = incoming.requests(CURRENT)
    values: dict[str, Callable[[], Any]] = {
        "preemptor.key": lambda: incoming.key,
        "preemptor.priority": lambda: incoming.priority,
        "preemptor.labels": lambda: incoming.labels,
        "preemptor.annotations": lambda: pod.metadata.annotations or {},
        "preemptor.priorityClassAnnotations": lambda: class_annotations(
            snapshot, pod.spec.priority_class_name
        ),
        "preemptor.cpuMilli": lambda: requests.get(CPU, 0),
        "preemptor.memoryBytes": lambda: requests.get(MEMORY, 0),
        "preemptor.requests": lambda: requests,
        "preemptor.createdAt": lambda: created,
        "preemptor.nominatedNode": lambda: pod.status.nominated_node_name,
        "preemptor.waitingSeconds": lambda: max(0, (snapshot.now_ms - created) // 1000),
        "cluster.nodeCount": lambda: len(snapshot.nodes),
        "now": lambda: snapshot.now_ms,
    }
    for field in (
        "name",
        "namespace",
        "uid",
        "preemptionPolicy",
        "priorityClassName",
        "owner",
        "workload",
        "schedulerName",
    ):
        values[f"preemptor.{field}"] = partial(_TEXTS[field], pod)
    return {name: scalar(of) for name, of in values.items()}


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
    if rows is not None:
        start = start[rows]
    return np.where(start == times.MISSING, snapshot.now_ms, start)


def run_seconds(snapshot: Snapshot, rows: Rows | None = None) -> NDArray[np.int64]:
    """Seconds since the pods (all of them) started, 0 before that."""
    return np.maximum(0, (snapshot.now_ms - starts_or_now(snapshot, rows)) // 1000)


def victim_variables(snapshot: Snapshot) -> dict[str, Provider]:
    """victim.* and node.* (the node that the pod is on), one row per pod of the snapshot."""
    names = snapshot.pools
    column = snapshot.column

    def requested(resource: str) -> Values:
        position = names.resources.ids.get(resource)
        matrix = snapshot.requests()
        if position is None:
            return IntColumn(np.zeros(len(snapshot.pods), dtype=np.int64))
        return IntColumn(np.ascontiguousarray(matrix[:, position]))

    def pdb_matches() -> Values:
        labels = np.maximum(column(LABELS), 0).astype(np.int64)
        return IntColumn(BudgetIndex.of(snapshot).counts(labels) if len(names.labels) else labels)

    def created() -> Values:
        found = column(_CREATED)
        return TimestampColumn(np.where(found == times.MISSING, snapshot.now_ms, found))

    def label_sets() -> Values:
        labels = [s.labels for s in names.labels.values]
        return InternedColumn(_codes(snapshot, LABELS), labels or [{}])

    def namespaces() -> Values:
        known = snapshot.namespace_labels
        labels = [known.get(s.namespace, {}) for s in names.labels.values]
        return InternedColumn(_codes(snapshot, LABELS), labels or [{}])

    def class_notes() -> Values:
        codes = _codes(snapshot, _TEXT_COLUMNS["priorityClassName"])
        found = [class_annotations(snapshot, n) for n in names.named("priorityClassName").values]
        return InternedColumn(codes, found or [{}])

    providers: dict[str, Provider] = {
        "victim.key": lambda: InternedColumn(np.arange(len(snapshot.keys)), snapshot.keys.tolist()),
        "victim.priority": lambda: IntColumn(column(PRIORITY)),
        "victim.labels": label_sets,
        "victim.namespaceLabels": namespaces,
        "victim.priorityClassAnnotations": class_notes,
        "victim.cpuMilli": lambda: requested(CPU),
        "victim.memoryBytes": lambda: requested(MEMORY),
        "victim.createdAt": created,
        "victim.startTime": lambda: TimestampColumn(starts_or_now(snapshot)),
        "victim.started": lambda: BoolColumn(column(START) != times.MISSING),
        "victim.runtimeSeconds": lambda: IntColumn(run_seconds(snapshot)),
        "victim.terminating": lambda: BoolColumn(column(TERMINATING)),
        "victim.terminatingByPreemption": lambda: BoolColumn(
            column(TERMINATING) & column(PREEMPTED)
        ),
        "victim.pdbMatches": pdb_matches,
    }
    own = {**_TEXT_COLUMNS, **{f: c for f, c in _MAP_COLUMNS.items() if f != "labels"}}
    for field, interned in own.items():
        providers[f"victim.{field}"] = partial(_interned, snapshot, interned, names.named(field))
    providers |= node_variables(
        snapshot, cache(lambda: np.maximum(snapshot.node, 0).astype(np.intp))
    )
    return providers


def pod_variables(incoming: Incoming) -> Lazy:
    """What rules about victims read: victim.*, node.*, preemptor.*, cluster.nodeCount and now."""
    snapshot = incoming.snapshot
    return Lazy(
        {**victim_variables(snapshot), **preemptor_variables(incoming)},
        {
            "victim.startTime": lambda rows: TimestampColumn(starts_or_now(snapshot, rows)),
            "victim.runtimeSeconds": lambda rows: IntColumn(run_seconds(snapshot, rows)),
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


def _backed(*columns: Column) -> Callable[[Snapshot], list[object]]:
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


def node_variables(
    snapshot: Snapshot, nodes: Callable[[], NDArray[np.intp]]
) -> dict[str, Provider]:
    """node.*, row i about node nodes()[i]."""
    table = snapshot.nodes

    def amount(resource: str) -> Values:
        position = snapshot.pools.resources.ids.get(resource)
        if position is None or not len(table):
            return IntColumn(np.zeros(nodes().size, dtype=np.int64))
        return IntColumn(snapshot.allocatable[nodes(), position])

    def labels() -> Values:
        return InternedColumn(nodes(), [n.metadata.labels or {} for n in table.nodes] or [{}])

    def cordoned() -> Values:
        flags = np.array([n.spec.unschedulable for n in table.nodes] or [False], dtype=np.bool_)
        return BoolColumn(flags[nodes()])

    def pod_counts() -> Values:
        from policy.cluster.occupancy import Occupancy

        counts = Occupancy.of(snapshot).pods
        at = nodes()
        return IntColumn(counts[at] if counts.size else np.zeros(at.size, dtype=np.int64))

    return {
        "node.name": lambda: InternedColumn(nodes(), table.names or ("",)),
        "node.labels": labels,
        "node.unschedulable": cordoned,
        "node.cpuMilli": lambda: amount(CPU),
        "node.memoryBytes": lambda: amount(MEMORY),
        "node.podCount": pod_counts,
    }
