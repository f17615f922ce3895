"""What the record knows of the past: the figures behind `history.*` in rule expressions.

All figures of a decision come out of one statement. Each part of it reads one stretch of an index
by cluster and time: of victims of decisions, of decisions, of batch sessions with the evictions
in them, or of observed victims. Parts for the same function with another window are parts of their
own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, TypeAlias

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    CompoundSelect,
    Connection,
    Select,
    Text,
    and_,
    bindparam,
    case,
    cast,
    func,
    literal,
    literal_column,
    null,
    or_,
    select,
    union_all,
)

from policy.cluster.objects import workload_key
from policy.preemption.columns import history_key
from policy.preemption.tally import joining
from policy.rules.expressions.variables import LOOK_BACK_SECONDS
from policy.store.model.decisions import Origin
from policy.store.outcomes import WHOLE, contradicted, step_contradicted
from policy.store.read.observed import not_replaced
from policy.store.tables import (
    CLUSTERS,
    DECISIONS,
    OBSERVATIONS,
    OBSERVED_VICTIMS,
    PODS,
    SESSION_STEPS,
    SESSIONS,
    STEP_EVICTED,
    VICTIMS,
)

Need: TypeAlias = tuple[str, int | None]
"""A `history` function and its window in seconds."""

FiguresByNeed: TypeAlias = dict[str, dict[str, int]]
"""`function/window` -> workload or namespace -> figure."""

_NONE: Final[ColumnElement[str]] = literal_column("''")


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """Just before a recorded decision: what was recorded later is left out, whatever its time."""

    decision_id: int
    base_revision: int


def figures(
    connection: Connection,
    cluster: str,
    needs: Collection[Need],
    *,
    now_ms: int,
    before: Moment | None = None,
) -> FiguresByNeed:
    """The figures of every need at `now_ms`; keys without any are left out.

    A window reaches from `now_ms` back, its far end left out. Hypothetical decisions do not count;
    evictions of batch sessions do, and what a real scheduler was observed to do, unless it is only
    possible.
    """
    if not needs:
        return {}
    ordered = tuple(sorted(needs, key=lambda need: (need[0], need[1] or 0)))
    values: dict[str, object] = {"cluster": cluster, "now": now_ms}
    if before is not None:
        values |= {"decision_id": before.decision_id, "base_revision": before.base_revision}
    found: FiguresByNeed = {history_key(*need): {} for need in ordered}
    parts = [(function, found[history_key(function, window)]) for function, window in ordered]
    rows = connection.execute(_statement(ordered, past=before is not None), values).all()
    for need, namespace, owner, pod, figure in rows:
        function, into = parts[need]
        if function == "secondsSinceLastPreempted":
            figure = (now_ms - figure) // 1000
        join = joining(function)
        for key in _keys(namespace, owner, pod):
            known = into.get(key)
            into[key] = figure if known is None else join(known, figure)
    return found


@lru_cache(maxsize=64)
def _statement(needs: tuple[Need, ...], *, past: bool) -> CompoundSelect[Any]:
    """What asks for the figures; past: those of a moment in it.

    Kept: a service asks with every call, and to make the statement takes ten times as long as the
    database needs for it.
    """
    parts = [
        part(_Asked(number=number, window=window or LOOK_BACK_SECONDS, past=past))
        for number, (function, window) in enumerate(needs)
        for part in _PARTS[function]
    ]
    return union_all(*parts)


def _keys(namespace: str | None, owner: str | None, pod: str | None) -> tuple[str, ...]:
    """What a figure is about: a namespace, or a workload and its owner's bare name.

    The bare name stands for all namespaces together.
    """
    namespace = namespace or (pod or "").partition("/")[0]
    if owner is None:
        return (namespace,)
    if owner:
        return (f"{namespace}/{owner}", owner)
    return (workload_key(pod or "", ""),)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """One need, as a part of the statement sees it."""

    number: int
    window: int
    past: bool  #: is it asked for a moment in the past?

    @property
    def known_until(self) -> ColumnElement[int] | None:
        """Revision that a decision of the past knew; what was not carried out, later ones show."""
        return _of_moment("base_revision") if self.past else None

    def since(self, column: ColumnElement[int]) -> list[ColumnElement[bool]]:
        now = bindparam("now", type_=BigInteger)
        return [column > now - self.window * 1000, column <= now]

    def earlier(self, column: ColumnElement[int], moment: str) -> list[ColumnElement[bool]]:
        return [column < _of_moment(moment)] if self.past else []


def _of_moment(name: str) -> ColumnElement[int]:
    """The moment's value of this name."""
    return bindparam(name, type_=BigInteger)


_Part: TypeAlias = Callable[[_Asked], Select[Any]]


def _cluster() -> Any:
    return select(CLUSTERS.c.id).where(CLUSTERS.c.name == bindparam("cluster")).scalar_subquery()


def _row(
    asked: _Asked,
    *,
    namespace: ColumnElement[str] | None = None,
    owner: ColumnElement[str] | None = None,
    pod: ColumnElement[str] | None = None,
    figure: ColumnElement[int],
) -> Select[Any]:
    """A part's columns; a figure about a namespace has no owner."""
    nothing = cast(null(), Text)
    columns: list[Any] = [
        literal(asked.number, BigInteger).label("need"),
        (nothing if namespace is None else namespace).label("namespace"),
        (nothing if owner is None else owner).label("owner"),
        (nothing if pod is None else pod).label("pod"),
        figure.label("figure"),
    ]
    return select(*columns)


# --- decisions -----------------------------------------------------------------------------------


def _victims(asked: _Asked) -> list[ColumnElement[bool]]:
    v = VICTIMS.c
    times = asked.since(v.now_ms)
    return [
        v.cluster_id == _cluster(),
        *times,
        *asked.earlier(v.decision_id, "decision_id"),
        v.evicted,
        ~contradicted(v.decision_id, v.position, until=asked.known_until),
    ]


def _workloads(figure: Callable[[ColumnElement[int]], ColumnElement[int]]) -> _Part:
    v = VICTIMS.c

    def part(asked: _Asked) -> Select[Any]:
        pod = case((v.owner == "", v.pod), else_=_NONE)
        query = _row(asked, namespace=v.namespace, owner=v.owner, pod=pod, figure=figure(v.now_ms))
        return query.where(*_victims(asked)).group_by(v.namespace, v.owner, pod)

    return part


def _lost(asked: _Asked) -> Select[Any]:
    namespace = VICTIMS.c.namespace
    query = _row(asked, namespace=namespace, figure=func.count())
    return query.where(*_victims(asked)).group_by(namespace)


def _caused(asked: _Asked) -> Select[Any]:
    """Found by their victims: other decisions are many times as many, and may have none."""
    v, d = VICTIMS.c, DECISIONS.c
    return (
        _row(asked, namespace=d.preemptor_namespace, figure=func.count(d.id.distinct()))
        .select_from(VICTIMS)
        .join(DECISIONS, d.id == v.decision_id)
        .where(
            v.cluster_id == _cluster(),
            *asked.since(v.now_ms),
            *asked.earlier(v.decision_id, "decision_id"),
            d.outcome == "preempt",
            ~d.hypothetical,
            # A scheduler that was answered otherwise, as in shadow mode, did something else.
            or_(d.origin != Origin.EXTENDER, d.revision.is_not(None)),
            ~contradicted(d.id, WHOLE, until=asked.known_until),
        )
        .group_by(d.preemptor_namespace)
    )


# --- batch sessions ------------------------------------------------------------------------------


def _evicting(asked: _Asked) -> Select[Any]:
    """Steps of sessions that evicted a pod, with the session."""
    s, t = SESSIONS.c, SESSION_STEPS.c
    return (
        select(t.task, t.for_task, t.session_id, s.now_ms)
        .select_from(SESSIONS)
        .join(SESSION_STEPS, t.session_id == s.id)
        .where(
            s.cluster_id == _cluster(),
            *asked.since(s.now_ms),
            *asked.earlier(s.base_revision, "base_revision"),
            STEP_EVICTED,
            ~step_contradicted(t.session_id, t.position, until=asked.known_until),
        )
    )


def _owned(asked: _Asked) -> Select[Any]:
    """The same, with the owner that each pod had when its session began."""
    s, t, p = SESSIONS.c, SESSION_STEPS.c, PODS.c
    pods = and_(
        p.cluster_id == s.cluster_id,
        p.key == t.task,
        p.valid_from <= s.base_revision,
        or_(p.valid_to.is_(None), p.valid_to > s.base_revision),
    )
    # An outer join, since SQLite does not move what is right of it to the left: it looks up the pod
    # of each eviction, and does not read every version of every pod.
    owner = func.coalesce(p.owner, "").label("owner")
    return _evicting(asked).add_columns(owner).outerjoin(PODS, pods)


def _batch_workloads(figure: Callable[[ColumnElement[int]], ColumnElement[int]]) -> _Part:
    def part(asked: _Asked) -> Select[Any]:
        e = _owned(asked).subquery().c
        query = _row(asked, owner=e.owner, pod=e.task, figure=figure(e.now_ms))
        return query.group_by(e.owner, e.task)

    return part


def _batch_lost(asked: _Asked) -> Select[Any]:
    e = _evicting(asked).subquery().c
    return _row(asked, pod=e.task, figure=func.count()).group_by(e.task)


def _batch_caused(asked: _Asked) -> Select[Any]:
    """A pod that a session evicted others for has preempted once in it, however many they were."""
    e = _evicting(asked).subquery().c
    sessions = func.count(e.session_id.distinct())
    return _row(asked, pod=e.for_task, figure=sessions).group_by(e.for_task)


# --- observed preemptions ------------------------------------------------------------------------


def _observed(asked: _Asked) -> list[ColumnElement[bool]]:
    v, o = OBSERVED_VICTIMS.c, OBSERVATIONS.c
    return [
        v.cluster_id == _cluster(),
        *asked.since(v.now_ms),
        v.counted,
        o.id == v.observation_id,
        # An observation changes no revision: what was recorded at one was there for the next.
        *([o.revision <= _of_moment("base_revision")] if asked.past else []),
        not_replaced(),
    ]


def _observed_workloads(figure: Callable[[ColumnElement[int]], ColumnElement[int]]) -> _Part:
    v = OBSERVED_VICTIMS.c

    def part(asked: _Asked) -> Select[Any]:
        pod = case((v.owner == "", v.victim), else_=_NONE)
        query = _row(asked, namespace=v.namespace, owner=v.owner, pod=pod, figure=figure(v.now_ms))
        return query.where(*_observed(asked)).group_by(v.namespace, v.owner, pod)

    return part


def _observed_lost(asked: _Asked) -> Select[Any]:
    namespace = OBSERVED_VICTIMS.c.namespace
    query = _row(asked, namespace=namespace, figure=func.count())
    return query.where(*_observed(asked)).group_by(namespace)


def _observed_caused(asked: _Asked) -> Select[Any]:
    v = OBSERVED_VICTIMS.c
    preemptions = func.count(v.observation_id.distinct())
    return (
        _row(asked, namespace=v.preemptor_namespace, figure=preemptions)
        .where(*_observed(asked))
        .group_by(v.preemptor_namespace)
    )


def _number(_: ColumnElement[int]) -> ColumnElement[int]:
    return func.count()


_PARTS: Final[dict[str, tuple[_Part, ...]]] = {
    "preemptedCount": (
        _workloads(_number),
        _batch_workloads(_number),
        _observed_workloads(_number),
    ),
    "secondsSinceLastPreempted": (
        _workloads(func.max),
        _batch_workloads(func.max),
        _observed_workloads(func.max),
    ),
    "namespacePreemptedCount": (_lost, _batch_lost, _observed_lost),
    "namespacePreemptions": (_caused, _batch_caused, _observed_caused),
}
