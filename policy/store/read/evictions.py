"""Evictions that took place, with who caused them.

Of decisions, of batch sessions, and of a real scheduler that was observed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import groupby
from operator import attrgetter
from typing import Any, Final, TypeAlias

from sqlalchemy import ColumnElement, Connection, Row, and_, func, or_, select

from policy.cluster.objects import ClusterObject, workload_key
from policy.observing.model import Confidence
from policy.store.outcomes import contradicted, step_contradicted
from policy.store.read.observed import not_replaced
from policy.store.state.loading import cluster_id, decode
from policy.store.tables import (
    DECISIONS,
    OBSERVATIONS,
    OBSERVED_VICTIMS,
    PODS,
    SESSION_STEPS,
    SESSIONS,
    STEP_EVICTED,
    VERSIONS,
    VICTIMS,
)

_BATCH: Final = 1000

EvictionOrder: TypeAlias = tuple[int, int, int]
"""Names a preemption, and sorts the preemptions of a cluster as they were decided.

The revision that it was decided on; the decision, the session or the observation; and within a
session the place of the first pod that was evicted for the same claimant, -1 for an observation.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """Which decisions a report is about: of one cluster, by the time that they were made for."""

    cluster: str
    since_ms: int | None = None
    until_ms: int | None = None
    origin: str | None = None  #: `decided`, `observed`, `extender` or `simulated`; None for all

    def decisions_of(self) -> list[ColumnElement[bool]]:
        """The condition on decisions; those that were observed are none."""
        return [] if self.origin is None else [DECISIONS.c.origin == self.origin]

    def takes(self, origin: str) -> bool:
        return self.origin in (None, origin)

    def conditions(
        self, connection: Connection, cluster: ColumnElement[int], now: ColumnElement[int]
    ) -> list[ColumnElement[bool]]:
        """Raises NotFound for an unknown cluster."""
        found = [cluster == cluster_id(connection, self.cluster)]
        if self.since_ms is not None:
            found.append(now >= self.since_ms)
        if self.until_ms is not None:
            found.append(now < self.until_ms)
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """A pod that left for another one."""

    order: EvictionOrder  #: the same for all that one preemption evicted
    now_ms: int
    preemptor: str
    preemptor_workload: str  #: `namespace/Kind/name` of its owner then, or of the pod itself
    preemptor_namespace: str
    preemptor_priority: int | None  #: None where the record does not have the pod as it was then
    pod: str
    namespace: str
    owner: str
    workload: str
    priority: int | None  #: likewise
    run_seconds: int
    cpu_milli: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PastPreemption:
    """A preemption with the objects that rules about victims look at, as they were then."""

    order: EvictionOrder
    now_ms: int
    preemptor: str
    victims: Mapping[str, bool]
    """Evicted pods; True where that broke a budget. Sessions ask no budgets: False in them."""
    victim_count: int  #: of the decision, those that were leaving already included
    objects: Sequence[ClusterObject]


def evictions(connection: Connection, wanted: Range) -> list[Eviction]:
    """Everything that was evicted, in the order in which it was decided."""
    found = [
        *_of_decisions(connection, wanted),
        *(_of_sessions(connection, wanted) if wanted.takes("decided") else ()),
        *(_observed(connection, wanted) if wanted.takes("observed") else ()),
    ]
    return sorted(found, key=attrgetter("order"))


def past_preemptions(connection: Connection, wanted: Range) -> Iterator[PastPreemption]:
    """The preemptions with their objects, oldest first; pruned objects are left out."""
    shared = _Shared(connection, wanted)
    return merge(
        _past_decisions(connection, wanted, shared),
        _past_sessions(connection, wanted, shared) if wanted.takes("decided") else iter(()),
        _past_observed(connection, wanted, shared) if wanted.takes("observed") else iter(()),
        key=attrgetter("order"),
    )


# Versions are looked up by outer joins throughout: SQLite leaves what is right of one there, so
# that it reads one version of each pod that is named, and not all of them.


def _true_at(
    table: Any, cluster: ColumnElement[int], key: ColumnElement[str], at: ColumnElement[int]
) -> ColumnElement[bool]:
    """The version of an object that was true at a revision."""
    c = table.c
    return and_(
        c.cluster_id == cluster,
        c.key == key,
        c.valid_from <= at,
        or_(c.valid_to.is_(None), c.valid_to > at),
    )


class _Shared:
    """Namespaces and priority classes, with the revisions between which they were so."""

    def __init__(self, connection: Connection, wanted: Range) -> None:
        self._versions: list[tuple[int, int | None, ClusterObject]] = []
        for kind in ("Namespace", "PriorityClass"):
            c = VERSIONS[kind].c
            query = select(c.valid_from, c.valid_to, c.manifest).where(
                c.cluster_id == cluster_id(connection, wanted.cluster)
            )
            self._versions += [
                (row.valid_from, row.valid_to, decode(kind, row.manifest))
                for row in connection.execute(query)
            ]

    def at(self, revision: int) -> Iterator[ClusterObject]:
        for begun, ended, obj in self._versions:
            if begun <= revision and (ended is None or ended > revision):
                yield obj


# --- decisions -----------------------------------------------------------------------------------


def _of_decisions(connection: Connection, wanted: Range) -> Iterator[Eviction]:
    v, d, p = VICTIMS.c, DECISIONS.c, PODS.c
    query = (
        select(
            d.id,
            d.base_revision,
            v.now_ms,
            d.preemptor,
            p.owner.label("preemptor_owner"),
            v.preemptor_namespace,
            d.preemptor_priority,
            v.pod,
            v.namespace,
            v.owner,
            v.priority,
            v.run_seconds,
            v.cpu_milli,
        )
        .join(DECISIONS, d.id == v.decision_id)
        .outerjoin(PODS, _true_at(PODS, v.cluster_id, d.preemptor, d.base_revision))
        .where(
            *wanted.conditions(connection, v.cluster_id, v.now_ms),
            *wanted.decisions_of(),
            v.evicted,
            ~contradicted(v.decision_id, v.position),
        )
        .order_by(v.decision_id, v.position)
    )
    for row in connection.execute(query).mappings():
        values = dict(row)
        order = (values.pop("base_revision"), values.pop("id"), 0)
        yield _eviction(order, values)


def _eviction(order: EvictionOrder, values: dict[str, Any]) -> Eviction:
    owner = values.pop("preemptor_owner") or ""
    return Eviction(
        order=order,
        preemptor_workload=workload_key(values["preemptor"], owner),
        workload=workload_key(values["pod"], values["owner"]),
        **values,
    )


def _past_decisions(
    connection: Connection, wanted: Range, shared: _Shared
) -> Iterator[PastPreemption]:
    v, d, p = VICTIMS.c, DECISIONS.c, PODS.c
    conditions = wanted.conditions(connection, d.cluster_id, d.now_ms) + wanted.decisions_of()
    query = (
        select(
            d.id,
            d.now_ms,
            d.preemptor,
            d.base_revision,
            d.victim_count,
            v.pod,
            v.pdb_violating,
            p.manifest,
        )
        .join(VICTIMS, v.decision_id == d.id)
        .outerjoin(PODS, _true_at(PODS, d.cluster_id, v.pod, d.base_revision))
        .where(*conditions, v.evicted, ~contradicted(v.decision_id, v.position))
        .order_by(d.base_revision, d.id, v.position)
        .execution_options(yield_per=_BATCH)
    )
    preemptors = _preemptors(connection, conditions)
    found = (row for row in connection.execute(query) if row.manifest is not None)
    for _, group in groupby(found, key=attrgetter("id")):
        rows = list(group)
        first = rows[0]
        asking = preemptors.get(first.id)
        if asking is None:
            continue
        yield PastPreemption(
            order=(first.base_revision, first.id, 0),
            now_ms=first.now_ms,
            preemptor=first.preemptor,
            victims={row.pod: row.pdb_violating for row in rows},
            victim_count=first.victim_count,
            objects=_objects(asking, (r.manifest for r in rows), shared.at(first.base_revision)),
        )


def _preemptors(connection: Connection, conditions: list[ColumnElement[bool]]) -> dict[int, str]:
    d, p = DECISIONS.c, PODS.c
    query = (
        select(d.id, p.manifest)
        .outerjoin(PODS, _true_at(PODS, d.cluster_id, d.preemptor, d.base_revision))
        .where(*conditions, d.outcome == "preempt", ~d.hypothetical)
    )
    return {row.id: row.manifest for row in connection.execute(query) if row.manifest is not None}


def _objects(
    preemptor: str, victims: Iterable[str], shared: Iterable[ClusterObject]
) -> list[ClusterObject]:
    """The pods, from their manifests, and the objects that rules look at beside them."""
    return [*(decode("Pod", manifest) for manifest in (preemptor, *victims)), *shared]


# --- observed preemptions ------------------------------------------------------------------------


def _observed(connection: Connection, wanted: Range) -> Iterator[Eviction]:
    """Those that are certain or likely, each pod once."""
    v, o, p = OBSERVED_VICTIMS.c, OBSERVATIONS.c, PODS.c
    base = func.coalesce(o.base_revision, o.revision)
    query = (
        select(
            o.id,
            base.label("base_revision"),
            v.now_ms,
            o.preemptor,
            p.owner.label("preemptor_owner"),
            v.preemptor_namespace,
            o.preemptor_priority,
            v.victim.label("pod"),
            v.namespace,
            v.owner,
            v.priority,
            v.run_seconds,
            v.cpu_milli,
        )
        .join(OBSERVATIONS, o.id == v.observation_id)
        .outerjoin(PODS, _true_at(PODS, v.cluster_id, o.preemptor, base))
        .where(*wanted.conditions(connection, v.cluster_id, v.now_ms), v.counted, not_replaced())
        .order_by(v.observation_id, v.position)
    )
    for row in connection.execute(query).mappings():
        values = dict(row)
        yield _eviction((values.pop("base_revision"), values.pop("id"), -1), values)


def _past_observed(
    connection: Connection, wanted: Range, shared: _Shared
) -> Iterator[PastPreemption]:
    """Those whose pods are kept as they were just before."""
    v, o, p = OBSERVED_VICTIMS.c, OBSERVATIONS.c, PODS.c
    asking = PODS.alias("asking")
    query = (
        select(
            o.id,
            o.now_ms,
            o.preemptor,
            o.base_revision,
            o.victim_count,
            v.victim,
            v.pdb_violating,
            p.manifest,
            asking.c.manifest.label("asking"),
        )
        .join(OBSERVED_VICTIMS, v.observation_id == o.id)
        .outerjoin(PODS, _true_at(PODS, o.cluster_id, v.victim, o.base_revision))
        .outerjoin(asking, _true_at(asking, o.cluster_id, o.preemptor, o.base_revision))
        .where(
            *wanted.conditions(connection, o.cluster_id, o.now_ms),
            v.counted,
            o.confidence != Confidence.POSSIBLE,
            not_replaced(),
        )
        .order_by(o.base_revision, o.id, v.position)
        .execution_options(yield_per=_BATCH)
    )
    known = (row for row in connection.execute(query) if row.manifest and row.asking)
    for _, group in groupby(known, key=attrgetter("id")):
        rows = list(group)
        first = rows[0]
        yield PastPreemption(
            order=(first.base_revision, first.id, -1),
            now_ms=first.now_ms,
            preemptor=first.preemptor,
            victims={row.victim: bool(row.pdb_violating) for row in rows},
            victim_count=first.victim_count,
            objects=_objects(
                first.asking, (r.manifest for r in rows), shared.at(first.base_revision)
            ),
        )


# --- batch sessions ------------------------------------------------------------------------------

_VICTIM: Final = PODS.alias("victim")
_CLAIMANT: Final = PODS.alias("claimant")


def _steps(connection: Connection, wanted: Range, *columns: Any) -> Iterator[Row[Any]]:
    """The evictions of sessions with both pods, in the order in which they were decided."""
    s, t = SESSIONS.c, SESSION_STEPS.c
    query = (
        select(
            s.id,
            s.base_revision,
            s.now_ms,
            t.position,
            t.for_task.label("preemptor"),
            t.task.label("pod"),
            and_(_VICTIM.c.key.is_not(None), _CLAIMANT.c.key.is_not(None)).label("kept"),
            *columns,
        )
        .select_from(SESSIONS)
        .join(SESSION_STEPS, t.session_id == s.id)
        .outerjoin(_VICTIM, _true_at(_VICTIM, s.cluster_id, t.task, s.base_revision))
        .outerjoin(_CLAIMANT, _true_at(_CLAIMANT, s.cluster_id, t.for_task, s.base_revision))
        .where(
            *wanted.conditions(connection, s.cluster_id, s.now_ms),
            STEP_EVICTED,
            ~step_contradicted(t.session_id, t.position),
        )
        .order_by(s.base_revision, s.id, t.position)
        .execution_options(yield_per=_BATCH)
    )
    return (row for row in connection.execute(query) if row.kept)


def _of_sessions(connection: Connection, wanted: Range) -> Iterator[Eviction]:
    v, c = _VICTIM.c, _CLAIMANT.c
    rows = _steps(
        connection,
        wanted,
        c.owner.label("preemptor_owner"),
        c.namespace.label("preemptor_namespace"),
        c.priority.label("preemptor_priority"),
        v.namespace,
        v.owner,
        v.priority,
        v.start_ms,
        v.cpu_milli,
    )
    begun: dict[tuple[int, str], int] = {}
    for row in rows:
        values = dict(row._mapping)
        del values["kept"]
        session, position = values.pop("id"), values.pop("position")
        first = begun.setdefault((session, values["preemptor"]), position)
        start = values.pop("start_ms")
        now_ms = values["now_ms"]
        values["run_seconds"] = 0 if start is None else max(0, now_ms - start) // 1000
        yield _eviction((values.pop("base_revision"), session, first), values)


def _past_sessions(
    connection: Connection, wanted: Range, shared: _Shared
) -> Iterator[PastPreemption]:
    asking = _CLAIMANT.c.manifest.label("asking")
    found = _steps(connection, wanted, _VICTIM.c.manifest, asking)
    for _, group in groupby(found, key=attrgetter("id")):
        claims: dict[str, list[Row[Any]]] = {}
        for row in group:
            claims.setdefault(row.preemptor, []).append(row)
        for preemptor, rows in claims.items():
            first = rows[0]
            yield PastPreemption(
                order=(first.base_revision, first.id, first.position),
                now_ms=first.now_ms,
                preemptor=preemptor,
                victims={row.pod: False for row in rows},
                victim_count=len(rows),
                objects=_objects(
                    first.asking, (r.manifest for r in rows), shared.at(first.base_revision)
                ),
            )
