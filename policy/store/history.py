"""What the record knows of the past: the figures behind `history.*` in rule expressions.

All figures of a decision come out of one statement. Each part of it reads one stretch of an index
by cluster and time; parts for the same function with another window are parts of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final, TypeAlias

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Connection,
    Select,
    Text,
    bindparam,
    case,
    cast,
    func,
    literal,
    literal_column,
    null,
    select,
    union_all,
)

from policy.preemption.columns import history_key
from policy.rules.expressions.variables import LOOK_BACK_SECONDS
from policy.store.tables import CLUSTERS, DECISIONS, VICTIMS

Need: TypeAlias = tuple[str, int | None]
"""A `history` function and its window in seconds."""

Figures: TypeAlias = dict[str, dict[str, int]]
"""`function/window` -> workload or namespace -> figure."""

_NONE: Final[ColumnElement[str]] = literal_column("''")


def figures(
    connection: Connection, cluster: str, needs: Collection[Need], *, now_ms: int
) -> Figures:
    """The figures of every need at `now_ms`; keys without any are left out.

    A window reaches from `now_ms` back, its far end left out. Hypothetical decisions do not count.
    """
    if not needs:
        return {}
    ordered = sorted(needs, key=lambda need: (need[0], need[1] or 0))
    statement = union_all(
        *(_PARTS[function](number, window) for number, (function, window) in enumerate(ordered))
    )
    found: Figures = {history_key(*need): {} for need in ordered}
    for row in connection.execute(statement, {"cluster": cluster, "now": now_ms}):
        function, window = ordered[row.need]
        into = found[history_key(function, window)]
        if function == "secondsSinceLastPreempted":
            _add(into, row, (now_ms - row.figure) // 1000, min)
        else:
            _add(into, row, row.figure, int.__add__)
    return found


def _add(into: dict[str, int], row: Any, figure: int, join: Callable[[int, int], int]) -> None:
    """Under the workload; and under the owner's bare name, for all namespaces together."""
    if row.pod is None:
        into[row.namespace] = figure
    elif row.owner:
        into[f"{row.namespace}/{row.owner}"] = figure
        known = into.get(row.owner)
        into[row.owner] = figure if known is None else join(known, figure)
    else:
        into[f"{row.namespace}/Pod/{row.pod.partition('/')[2]}"] = figure


def _since(column: ColumnElement[int], window: int) -> list[ColumnElement[bool]]:
    now = bindparam("now", type_=BigInteger)
    return [column > now - window * 1000, column <= now]


def _cluster() -> Any:
    return select(CLUSTERS.c.id).where(CLUSTERS.c.name == bindparam("cluster")).scalar_subquery()


def _evictions(window: int) -> list[ColumnElement[bool]]:
    v = VICTIMS.c
    return [v.cluster_id == _cluster(), *_since(v.now_ms, window), v.evicted]


def _by_workload(number: int, figure: ColumnElement[int], window: int) -> Select[Any]:
    v = VICTIMS.c
    pod = case((v.owner == "", v.pod), else_=_NONE)
    return (
        select(
            literal(number, BigInteger).label("need"),
            v.namespace,
            v.owner,
            pod.label("pod"),
            figure.label("figure"),
        )
        .where(*_evictions(window))
        .group_by(v.namespace, v.owner, pod)
    )


def _by_namespace(
    number: int, namespace: ColumnElement[str], conditions: list[ColumnElement[bool]]
) -> Select[Any]:
    columns: list[Any] = [
        literal(number, BigInteger).label("need"),
        namespace.label("namespace"),
        _NONE.label("owner"),
        cast(null(), Text).label("pod"),
        func.count().label("figure"),
    ]
    return select(*columns).where(*conditions).group_by(namespace)


def _preempted(number: int, window: int | None) -> Select[Any]:
    return _by_workload(number, func.count(), window or 0)


def _last(number: int, _: int | None) -> Select[Any]:
    return _by_workload(number, func.max(VICTIMS.c.now_ms), LOOK_BACK_SECONDS)


def _lost(number: int, window: int | None) -> Select[Any]:
    return _by_namespace(number, VICTIMS.c.namespace, _evictions(window or 0))


def _caused(number: int, window: int | None) -> Select[Any]:
    d = DECISIONS.c
    return _by_namespace(
        number,
        d.preemptor_namespace,
        [
            d.cluster_id == _cluster(),
            *_since(d.now_ms, window or 0),
            d.outcome == "preempt",
            ~d.hypothetical,
        ],
    )


_PARTS: Final[dict[str, Callable[[int, int | None], Select[Any]]]] = {
    "preemptedCount": _preempted,
    "secondsSinceLastPreempted": _last,
    "namespacePreemptedCount": _lost,
    "namespacePreemptions": _caused,
}
