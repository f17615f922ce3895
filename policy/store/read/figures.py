"""Figures of a stretch of time, out of the totals: what the overview and the bars of a list show.

Whole days are added up from the totals, and beside them the rows of the parts of days at both ends.
What a saved query says is said by it here, too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, bindparam, func, select, text

from policy.cluster import times
from policy.decision.model import Outcome
from policy.store.kept import in_question, kept_simulations
from policy.store.outcomes import WHOLE, OutcomeKind
from policy.store.read.observed import not_replaced
from policy.store.read.queries import rule_set_ids
from policy.store.read.saved_queries import DEFAULTS, saved_query
from policy.store.state.loading import cluster_id
from policy.store.state.versions import chunks
from policy.store.tables import (
    CLUSTERS,
    DECISION_OUTCOMES,
    DECISION_TOTALS,
    DECISIONS,
    HOUR_TOTALS,
    OBSERVATIONS,
    REVISIONS,
)

DAY_MS: Final = 86_400_000
HOUR_MS: Final = 3_600_000
_IDS: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class HourCount:
    """What one hour of a cluster saw; hours without a preemption have none."""

    cluster: str
    begin_ms: int
    preemptions: int  #: by decisions, in batch sessions, and by real schedulers
    victims: int
    pdb_violations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadCount:
    """Evictions of one workload."""

    cluster: str
    namespace: str
    owner: str  #: `Kind/name`; "" for pods of none
    evictions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Evicted:
    """Who lost pods, most first."""

    namespaces: tuple[tuple[str, int], ...]  #: with their evictions
    workloads: tuple[WorkloadCount, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NominatedPod:
    """A pod that is nominated to a node and has not come there yet."""

    cluster: str
    pod: str
    priority: int
    node: str
    since_ms: int
    decision_id: int | None  #: that nominated it; None where none of this record did


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokenBudget:
    """A victim that violates a disruption budget, whether it was leaving already or not."""

    cluster: str
    decision_id: int
    at_ms: int
    victim: str
    preemptor: str
    budget: str | None  #: None where the candidate's violations were not kept


@dataclass(frozen=True, slots=True, kw_only=True)
class StateAge:
    """The newest state of a cluster."""

    cluster: str
    revision: int
    at_ms: int


def preemptions_by_hour(
    connection: Connection,
    cluster: str | None = None,
    *,
    since_ms: int,
    until_ms: int,
    origins: Collection[str] | None = None,
    simulated: bool | None = None,
) -> list[HourCount]:
    """Hours with preemptions that begin in the time, the oldest first.

    origins: None for all. simulated: False for none of kept simulations, unless the cluster is
    named.
    """
    h = HOUR_TOTALS.c
    query = (
        select(
            CLUSTERS.c.name,
            h.hour,
            func.sum(h.preemptions),
            func.sum(h.victims),
            func.sum(h.pdb_violations),
        )
        .join(CLUSTERS, CLUSTERS.c.id == h.cluster_id)
        .where(h.hour >= _first(since_ms, HOUR_MS), h.hour < _first(until_ms, HOUR_MS))
        .group_by(CLUSTERS.c.name, h.hour)
        .order_by(h.hour, CLUSTERS.c.name)
    )
    if cluster is not None:
        query = query.where(h.cluster_id == cluster_id(connection, cluster))
    if origins is not None:
        query = query.where(h.origin.in_(sorted(origins)))
    if simulated is False:
        query = query.where(*in_question(connection, cluster, h.cluster_id))
    return [
        HourCount(
            cluster=name,
            begin_ms=hour * HOUR_MS,
            preemptions=int(preemptions),
            victims=int(victims),
            pdb_violations=int(broken),
        )
        for name, hour, preemptions, victims, broken in connection.execute(query)
    ]


def decisions_by_day(
    connection: Connection,
    cluster: str | None = None,
    *,
    since_ms: int,
    until_ms: int,
    rule_set: str | None = None,
    outcome: str | None = None,
    origin: str | None = None,
    simulated: bool | None = None,
) -> dict[int, int]:
    """Decisions of the whole days (UTC) that begin in the time, by their first millisecond.

    Of preemptions those that took place: not what was contradicted later, nor calls of schedulers
    that were answered otherwise. simulated: as of `preemptions_by_hour`.
    """
    d = DECISION_TOTALS.c
    given: list[ColumnElement[bool]] = []
    if cluster is not None:
        given.append(d.cluster_id == cluster_id(connection, cluster))
    if rule_set is not None:
        given.append(d.rule_set_id.in_(rule_set_ids(connection, rule_set)))
    if outcome is not None:
        given.append(d.outcome == outcome)
    if outcome == Outcome.PREEMPT:
        given.append(d.preempted)
    if origin is not None:
        given.append(d.origin == origin)
    if simulated is False:
        given += in_question(connection, cluster, d.cluster_id)
    query = (
        select(d.day, func.sum(d.decisions))
        .where(d.day >= max(0, _first(since_ms, DAY_MS)), d.day < _first(until_ms, DAY_MS), *given)
        .group_by(d.day)
        .order_by(d.day)
    )
    return {day * DAY_MS: int(count) for day, count in connection.execute(query)}


def days_with_decisions(
    connection: Connection, cluster: str | None = None, *, simulated: bool | None = None
) -> tuple[int, int] | None:
    """First milliseconds of the first and of the last day (UTC) with decisions; None without.

    simulated: as of `preemptions_by_hour`.
    """
    d, c = DECISION_TOTALS.c, CLUSTERS.c
    ends = [
        select(end(d.day)).where(d.cluster_id == c.id, d.day >= 0).correlate(CLUSTERS)
        for end in (func.min, func.max)
    ]
    query = select(*(one.scalar_subquery() for one in ends)).select_from(CLUSTERS)
    if cluster is not None:
        query = query.where(c.id == cluster_id(connection, cluster))
    if simulated is False:
        query = query.where(*in_question(connection, cluster, c.id))
    found = [row for row in connection.execute(query) if row[0] is not None]
    if not found:
        return None
    return min(row[0] for row in found) * DAY_MS, max(row[1] for row in found) * DAY_MS


def _first(at_ms: int, length_ms: int) -> int:
    """Number of the first hour or day that begins at an instant or later."""
    return -(-at_ms // length_ms)


_EVICTED: Final = """
WITH parts AS MATERIALIZED ( -- of days, at both ends
    SELECT victim_namespace, victim_owner, cluster
    FROM v_victims
    WHERE evicted AND (:cluster = '' OR cluster = :cluster) AND {of_parts}
          AND now_ms >= :since AND now_ms < :first_ms AND now_ms < :until
    UNION ALL
    SELECT victim_namespace, victim_owner, cluster
    FROM v_victims
    WHERE evicted AND (:cluster = '' OR cluster = :cluster) AND {of_parts}
          AND now_ms >= :behind_ms AND now_ms >= :first_ms
          AND now_ms < :until
),
counted AS (
    SELECT t.workload_id, t.evictions
    FROM clusters c
    CROSS JOIN eviction_totals t
    WHERE t.cluster_id = c.id AND (:cluster = '' OR c.name = :cluster)
          AND t.day >= :first_day AND t.day < :behind_day AND {of_whole}
    UNION ALL
    SELECT n.id, 1
    FROM parts p
    JOIN clusters c ON c.name = p.cluster
    JOIN evicted_workloads n ON n.cluster_id = c.id AND n.namespace = p.victim_namespace
                                AND n.owner = p.victim_owner
),
lost AS MATERIALIZED (
    SELECT c.name AS cluster, n.namespace, n.owner, s.evictions
    FROM (
        SELECT workload_id, CAST(sum(evictions) AS BIGINT) AS evictions
        FROM counted
        GROUP BY workload_id
    ) s
    JOIN evicted_workloads n ON n.id = s.workload_id
    JOIN clusters c ON c.id = n.cluster_id
)
SELECT * FROM (
    SELECT '' AS cluster, namespace, '' AS owner, CAST(sum(evictions) AS BIGINT) AS evictions,
           0 AS by_workload
    FROM lost GROUP BY namespace ORDER BY evictions DESC, namespace LIMIT :limit
) spaces
UNION ALL
SELECT * FROM (
    SELECT cluster, namespace, owner, evictions, 1 AS by_workload
    FROM lost WHERE owner <> '' ORDER BY evictions DESC, cluster, namespace, owner LIMIT :limit
) workloads
"""


_OF_NAMESPACES: Final = (
    "t.workload_id IN (SELECT n.id FROM evicted_workloads n WHERE n.namespace IN :namespaces)"
)
_EVICTS: Final = """
SELECT EXISTS (SELECT 1 FROM v_victims WHERE evicted AND now_ms >= :since AND now_ms < :until)
"""


def evicted_within(
    connection: Connection,
    cluster: str | None = None,
    *,
    since_ms: int,
    until_ms: int,
    namespaces: Collection[str] | None = None,
    limit: int,
) -> Evicted:
    """Evictions that took place, by namespace and by workload, so many of each at most.

    Those of kept simulations only where the cluster is named. namespaces: only pods of these; None
    for all. Pods without a workload count in their namespace.
    """
    of_parts, of_whole = ["1 = 1"], ["1 = 1"]
    values: dict[str, Any] = {}
    if namespaces is not None:
        of_parts.append("victim_namespace IN :namespaces")
        of_whole.append(_OF_NAMESPACES)
        values["namespaces"] = sorted(namespaces)
    kept = frozenset() if cluster is not None else kept_simulations(connection)
    if kept:
        of_parts.append("cluster NOT IN :kept")
        of_whole.append("c.name NOT IN :kept")
        values["kept"] = sorted(kept)
    statement = text(
        _EVICTED.format(of_parts=" AND ".join(of_parts), of_whole=" AND ".join(of_whole))
    ).bindparams(*(bindparam(name, expanding=True) for name in values))
    first_day, behind_day = _first(since_ms, DAY_MS), until_ms // DAY_MS
    # Where nothing was evicted later on the last day, its totals are those up to `until_ms`.
    rest = {"since": until_ms, "until": (behind_day + 1) * DAY_MS}
    if not connection.execute(text(_EVICTS), rest).scalar_one():
        behind_day += 1
    values |= {
        "cluster": cluster or "",
        "since": since_ms,
        "until": until_ms,
        "first_day": first_day,
        "first_ms": first_day * DAY_MS,
        "behind_day": behind_day,
        "behind_ms": behind_day * DAY_MS,
        "limit": limit,
    }
    if cluster is not None:
        cluster_id(connection, cluster)  # an unknown one is an error
    rows = list(connection.execute(statement, values))
    of_spaces = [(row.namespace, row.evictions) for row in rows if not row.by_workload]
    of_workloads = [
        WorkloadCount(
            cluster=row.cluster, namespace=row.namespace, owner=row.owner, evictions=row.evictions
        )
        for row in rows
        if row.by_workload
    ]
    return Evicted(
        namespaces=tuple(sorted(of_spaces, key=lambda one: (-one[1], one[0]))),
        workloads=tuple(
            sorted(of_workloads, key=lambda w: (-w.evictions, w.cluster, w.namespace, w.owner))
        ),
    )


def outcomes_within(
    connection: Connection, cluster: str | None = None, *, since_ms: int, until_ms: int
) -> list[tuple[str, int]]:
    """How decisions ended, the most frequent first; as lists of them say and find it.

    What a later state contradicts is `not-carried-out`, whatever was decided.
    """
    found: Counter[str] = Counter()
    rows = _saved(connection, "outcomes", cluster, since=since_ms, until=until_ms, limit=2**31)
    for row in rows:
        found[row["outcome"]] += row["decisions"]
    d, x = DECISIONS.c, DECISION_OUTCOMES.c
    query = (
        select(d.outcome, func.count())
        # From the few of these to their decisions: a join may be made from all decisions.
        .where(d.id.in_(select(x.decision_id).where(x.position == WHOLE)))
        .where(d.now_ms >= since_ms, d.now_ms < until_ms, ~d.hypothetical)
        .where(*in_question(connection, cluster, d.cluster_id))
        .group_by(d.outcome)
    )
    for outcome, count in connection.execute(query):
        found[outcome] -= count
        found[OutcomeKind.NOT_CARRIED_OUT.value] += count
    counts = [(outcome, count) for outcome, count in found.items() if count]
    return sorted(counts, key=lambda one: (-one[1], one[0]))


def nominated_pods(
    connection: Connection, cluster: str | None = None, *, limit: int
) -> list[NominatedPod]:
    """Pods that wait on a node for their victims to leave, the longest wait first."""
    return [
        NominatedPod(
            cluster=row["cluster"],
            pod=row["pod"],
            priority=row["priority"],
            node=row["node"],
            since_ms=times.parse(row["made_at"]),
            decision_id=row["made_decision"],
        )
        for row in _saved(connection, "standing-nominations", cluster, limit=limit)
    ]


def broken_budgets(
    connection: Connection, cluster: str | None = None, *, since_ms: int, until_ms: int, limit: int
) -> list[BrokenBudget]:
    """Victims that violate a budget, the newest first; one that violates two is there twice."""
    within = {"since": since_ms, "until": until_ms, "limit": limit}
    rows = _saved(connection, "pdb-violations", cluster, **within)
    clusters = _clusters_of(connection, {row["decision_id"] for row in rows})
    return [
        BrokenBudget(
            cluster=clusters[row["decision_id"]],
            decision_id=row["decision_id"],
            at_ms=times.parse(row["decided_at"]),
            victim=row["victim"],
            preemptor=row["preemptor"],
            budget=row["budget"],
        )
        for row in rows
    ]


def _clusters_of(connection: Connection, decisions: Collection[int]) -> dict[int, str]:
    """The cluster of each decision."""
    d, found = DECISIONS.c, dict[int, str]()
    query = select(d.id, CLUSTERS.c.name).join(CLUSTERS, CLUSTERS.c.id == d.cluster_id)
    for some in chunks(sorted(decisions), _IDS):
        rows = connection.execute(query.where(d.id.in_(some)))
        found |= {row.id: row.name for row in rows}
    return found


def _saved(
    connection: Connection, name: str, cluster: str | None, **given: Any
) -> list[Mapping[str, Any]]:
    """What a saved query says."""
    if cluster is not None:
        cluster_id(connection, cluster)  # an unknown one is an error
        given["cluster"] = cluster
    query = saved_query(name)
    values = {**{name: DEFAULTS[name] for name in query.parameters}, **given}
    return [dict(row) for row in connection.execute(text(query.sql), values).mappings()]


def newest_verdicts(connection: Connection, *, newest: int) -> dict[str, dict[str, int]]:
    """By cluster and verdict, its newest observed preemptions, so many of each at most."""
    o = OBSERVATIONS.c
    found: dict[str, dict[str, int]] = {}
    for number, name in connection.execute(select(CLUSTERS.c.id, CLUSTERS.c.name)):
        last = (
            select(o.verdict)
            .where(o.cluster_id == number, not_replaced())
            # Of one instant as lists of them have it: the one that was recorded last.
            .order_by(o.now_ms.desc(), o.id.desc())
            .limit(newest)
            .subquery()
        )
        query = select(last.c.verdict, func.count()).group_by(last.c.verdict)
        counts = {str(verdict): int(count) for verdict, count in connection.execute(query)}
        if counts:
            found[name] = dict(sorted(counts.items(), key=lambda one: (-one[1], one[0])))
    return found


def state_ages(connection: Connection) -> list[StateAge]:
    """The newest revision of every cluster that has one, by name."""
    r, c = REVISIONS.c, CLUSTERS.c
    newest = (
        select(func.max(r.number)).where(r.cluster_id == c.id).correlate(CLUSTERS).scalar_subquery()
    )
    query = (
        select(c.name, r.number, r.at_ms)
        .join(REVISIONS, (r.cluster_id == c.id) & (r.number == newest))
        .order_by(c.name)
    )
    return [
        StateAge(cluster=name, revision=number, at_ms=at_ms)
        for name, number, at_ms in connection.execute(query)
    ]
