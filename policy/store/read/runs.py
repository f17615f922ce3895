"""When the pods of a workload ran, and what sessions and real schedulers evicted of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from operator import attrgetter
from typing import Any, Final, TypeAlias

from sqlalchemy import ColumnElement, Connection, Row, Select, and_, func, or_, select

from policy.cluster.objects import workload_key
from policy.store.kept import clusters_in_question, in_question
from policy.store.outcomes import step_contradicted
from policy.store.read.observed import not_replaced
from policy.store.state.versions import chunks
from policy.store.tables import (
    CLUSTERS,
    OBSERVATIONS,
    OBSERVED_VICTIMS,
    PODS,
    REVISIONS,
    SESSION_STEPS,
    SESSIONS,
    STEP_EVICTED,
)

VERSIONS_LOOKED_AT: Final = 2_000
"""Of each cluster, of pods whose names begin with the workload's."""

_IDS: Final = 500
_OVER: Final = frozenset({"Succeeded", "Failed"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PodRun:
    """A pod's time on its node."""

    cluster: str
    pod: str
    node: str
    priority: int
    #: where that is not known, when it was first seen on the node, as far back as states are kept
    started_ms: int
    ended_ms: int | None  #: None where it is there still
    leaving: bool  #: it is there still, and being deleted
    start_known: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """Of a workload, those that ended last or are there still first."""

    runs: tuple[PodRun, ...]
    whole: bool  #: False where there are more versions of such pods than were looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class EvictedPod:
    """A pod that was evicted by other than a decision of the engine."""

    cluster: str
    now_ms: int
    pod: str
    node: str
    priority: int
    started_ms: int | None  #: None where it had not started, or that is not known
    run_seconds: int
    preemptor: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedEviction(EvictedPod):
    """A pod that the cluster's own scheduler evicted."""

    observation: int
    confidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEviction(EvictedPod):
    """A pod that a batch session, or the cycle of a pod group, evicted."""

    session: int
    kind: str  #: of the session: `batch` or `group`
    carried_out: bool  #: False where a later state of the cluster contradicts it


OtherEviction: TypeAlias = ObservedEviction | SessionEviction


def runs_of(
    connection: Connection,
    namespace: str,
    name: str,
    *,
    cluster: str | None = None,
    also: Collection[str] = (),
) -> Runs:
    """The pod of that name, and pods whose owner has it, of whatever kind.

    A controller's pods have names that begin with its own; others of its pods that are known go
    into `also` (namespace/name). Every version of the pods is looked at, up to VERSIONS_LOOKED_AT.
    Kept simulations count only where their cluster is named. Raises NotFound.
    """
    found: list[PodRun] = []
    whole = True
    for number, here in clusters_in_question(connection, cluster).items():
        known = _named(connection, number, {f"{namespace}/{name}", *also})
        begun = _beginning(connection, number, f"{namespace}/{name}-")
        whole &= len(begun) <= VERSIONS_LOOKED_AT and len(known) < VERSIONS_LOOKED_AT
        keys = {row.key for row in known}
        versions = [*known, *(row for row in begun if row.key not in keys)]
        its = [
            row
            for row in versions
            if row.key == f"{namespace}/{name}" or row.owner.partition("/")[2] == name
        ]
        found += _runs(connection, number, here, its)
    return Runs(runs=tuple(newest_first(found)), whole=whole)


def newest_first(runs: Iterable[PodRun]) -> list[PodRun]:
    """Those that are there now, then those that ended last."""
    return sorted(
        runs,
        key=lambda run: (run.ended_ms is None, run.ended_ms or 0, run.started_ms, run.pod),
        reverse=True,
    )


_COLUMNS: Final = tuple(
    PODS.c[name]
    for name in (
        *("key", "uid", "node", "priority", "phase", "owner", "start_ms", "terminating"),
        *("valid_from", "valid_to"),
    )
)


def _named(connection: Connection, cluster: int, keys: Iterable[str]) -> list[Row[Any]]:
    c = PODS.c
    found: list[Row[Any]] = []
    for some in chunks(sorted(keys), _IDS):
        query = select(*_COLUMNS).where(c.cluster_id == cluster, c.key.in_(some))
        found += connection.execute(query.order_by(c.key, c.valid_from).limit(VERSIONS_LOOKED_AT))
    return found


def _beginning(connection: Connection, cluster: int, beginning: str) -> Sequence[Row[Any]]:
    """One more than is looked at, where there are more."""
    c = PODS.c
    # Keys that begin so lie side by side in the primary key, whose order is that of code points.
    behind = f"{beginning[:-1]}{chr(ord(beginning[-1]) + 1)}"
    query = (
        select(*_COLUMNS)
        .where(c.cluster_id == cluster, c.key >= beginning, c.key < behind)
        .order_by(c.key, c.valid_from)
        .limit(VERSIONS_LOOKED_AT + 1)
    )
    return connection.execute(query).all()


def _runs(
    connection: Connection, number: int, cluster: str, versions: Sequence[Row[Any]]
) -> Iterable[PodRun]:
    """A run for each pod (uid) that was on a node."""
    numbers = {row.valid_from for row in versions} | {row.valid_to for row in versions} - {None}
    at_ms = _instants(connection, number, numbers)
    ordered = sorted(versions, key=attrgetter("key", "valid_from"))
    for _, group in groupby(ordered, key=attrgetter("key", "uid")):
        rows = [row for row in group if row.node]
        if not rows:
            continue
        first, last = rows[0], rows[-1]
        start_ms = next((row.start_ms for row in rows if row.start_ms is not None), None)
        over = next((row for row in rows if row.phase in _OVER), None)
        ended = last.valid_to if over is None else over.valid_from
        started_ms = at_ms[first.valid_from] if start_ms is None else start_ms
        ended_ms = None if ended is None else at_ms[ended]
        yield PodRun(
            cluster=cluster,
            pod=last.key,
            node=last.node,
            priority=last.priority,
            started_ms=started_ms if ended_ms is None else min(started_ms, ended_ms),
            start_known=start_ms is not None,
            ended_ms=ended_ms,
            leaving=ended_ms is None and bool(last.terminating),
        )


def _instants(connection: Connection, cluster: int, numbers: Iterable[int]) -> Mapping[int, int]:
    """When revisions were recorded; of one that was pruned, when the oldest that is kept was."""
    r = REVISIONS.c
    own = r.cluster_id == cluster
    oldest = connection.execute(select(r.at_ms).where(own).order_by(r.number).limit(1)).scalar()
    found = dict.fromkeys(numbers, oldest or 0)
    for some in chunks(sorted(found), _IDS):
        query = select(r.number, r.at_ms).where(own, r.number.in_(some))
        found.update({row.number: row.at_ms for row in connection.execute(query)})
    return found


def workloads_of(connection: Connection, cluster: str, pods: Collection[str]) -> dict[str, str]:
    """Of each pod its workload, `namespace/Kind/name`, by its newest version; else the pod."""
    c = PODS.c
    number = select(CLUSTERS.c.id).where(CLUSTERS.c.name == cluster).scalar_subquery()
    found = {}
    for pod in sorted(pods):
        newest = (
            select(c.owner)
            .where(c.cluster_id == number, c.key == pod)
            .order_by(c.valid_from.desc())
            .limit(1)
        )
        found[pod] = workload_key(pod, connection.execute(newest).scalar() or "")
    return found


def observed_evictions(
    connection: Connection, namespace: str, name: str, *, cluster: str | None = None, limit: int
) -> list[ObservedEviction]:
    """Of the pod of that name, and of pods whose owner has it; the newest first.

    Raises NotFound.
    """
    v, pod = OBSERVED_VICTIMS.c, f"{namespace}/{name}"
    found: list[ObservedEviction] = []
    for number, known_as in clusters_in_question(connection, cluster).items():
        here = and_(v.cluster_id == number, v.namespace == namespace)
        itself = and_(v.cluster_id == number, v.victim == pod)
        found += _observed(connection, known_as, itself, limit=limit)
        for owner in _owners_named(connection, here, name):
            # A pod that is named like its owner was found by its own name.
            its = and_(here, v.owner == owner, v.victim != pod)
            found += _observed(connection, known_as, its, limit=limit)
    found.sort(key=attrgetter("now_ms", "observation"), reverse=True)
    return found[:limit]


def _observed(
    connection: Connection, cluster: str, its: ColumnElement[bool], *, limit: int
) -> list[ObservedEviction]:
    """Evictions of these victims, which are of one cluster, the newest first."""
    v, o = OBSERVED_VICTIMS.c, OBSERVATIONS.c
    query = (
        select(
            *(v.observation_id, v.now_ms, v.victim, v.node, v.start_ms, v.run_seconds),
            *(v.priority, o.preemptor, o.confidence),
        )
        .join(OBSERVATIONS, o.id == v.observation_id)
        .where(its, v.counted, not_replaced())
        .order_by(v.now_ms.desc(), v.observation_id.desc())
        .limit(limit)
    )
    return [
        ObservedEviction(
            observation=row.observation_id,
            cluster=cluster,
            now_ms=row.now_ms,
            pod=row.victim,
            node=row.node,
            priority=row.priority or 0,
            started_ms=row.start_ms,
            run_seconds=row.run_seconds,
            preemptor=row.preemptor,
            confidence=row.confidence,
        )
        for row in connection.execute(query)
    ]


def _owners_named(connection: Connection, here: Any, name: str) -> list[str]:
    """The owners of that name, one look into the index for each kind."""
    v = OBSERVED_VICTIMS.c
    first = select(func.min(v.owner)).where(here)
    found, behind = [], " "  # those without an owner
    while owner := connection.execute(first.where(v.owner >= behind)).scalar_one():
        kind = owner.partition("/")[0]
        found.append(f"{kind}/{name}")
        behind = f"{kind}0"  # what follows the slash
    return found


def session_evictions(
    connection: Connection, namespace: str, name: str, *, cluster: str | None = None, limit: int
) -> list[SessionEviction]:
    """Of the pod of that name, and of pods whose owner had it then; the newest first.

    Kept simulations count only where their cluster is named. Raises NotFound.
    """
    within = SESSION_STEPS.c.task.startswith(f"{namespace}/", autoescape=True)
    # What is alike in the database may differ in case, or by a slash in a name.
    its = (
        row
        for row in connection.execute(_steps(connection, cluster, within))
        if row.task == f"{namespace}/{name}"
        or (row.task.startswith(f"{namespace}/") and (row.owner or "").partition("/")[2] == name)
    )
    return [_of_session(row) for row in islice(its, limit)]


def _steps(connection: Connection, cluster: str | None, its: ColumnElement[bool]) -> Select[Any]:
    """Steps that evicted pods, each pod as it was when the session began; the newest first."""
    s, t, p = SESSIONS.c, SESSION_STEPS.c, PODS.c
    then = and_(
        p.cluster_id == s.cluster_id,
        p.key == t.task,
        p.valid_from <= s.base_revision,
        or_(p.valid_to.is_(None), p.valid_to > s.base_revision),
    )
    return (
        select(
            *(s.id, s.kind, CLUSTERS.c.name.label("cluster"), s.now_ms),
            *(t.task, t.node, t.for_task, p.owner, p.priority, p.start_ms),
            step_contradicted(t.session_id, t.position).label("contradicted"),
        )
        .select_from(SESSIONS)
        .join(SESSION_STEPS, t.session_id == s.id)
        .join(CLUSTERS, CLUSTERS.c.id == s.cluster_id)
        # An outer join, as in the figures of the past: see there.
        .outerjoin(PODS, then)
        .where(its, STEP_EVICTED, *in_question(connection, cluster, s.cluster_id))
        .order_by(s.now_ms.desc(), s.id.desc(), t.position)
    )


def _of_session(row: Row[Any]) -> SessionEviction:
    return SessionEviction(
        session=row.id,
        kind=row.kind,
        cluster=row.cluster,
        now_ms=row.now_ms,
        pod=row.task,
        node=row.node,
        priority=row.priority or 0,
        started_ms=row.start_ms,
        run_seconds=0 if row.start_ms is None else max(0, row.now_ms - row.start_ms) // 1000,
        preemptor=row.for_task,
        carried_out=not row.contradicted,
    )


def evictions_on(
    connection: Connection, node: str, *, cluster: str | None = None, limit: int
) -> list[OtherEviction]:
    """What real schedulers and sessions evicted from the node, the newest first.

    Kept simulations count only where their cluster is named. Raises NotFound.
    """
    v, t = OBSERVED_VICTIMS.c, SESSION_STEPS.c
    found: list[OtherEviction] = []
    for number, known_as in clusters_in_question(connection, cluster).items():
        its = and_(v.cluster_id == number, v.node == node)
        found += _observed(connection, known_as, its, limit=limit)
    steps = _steps(connection, cluster, t.node == node).limit(limit)
    found += [_of_session(row) for row in connection.execute(steps)]
    return sorted(found, key=attrgetter("now_ms"), reverse=True)[:limit]
