"""Evictions of batch sessions stand in the views of preemptions beside those of decisions.

A session asks no disruption budget and ranks no candidates: `pdb_violations`, `pdb_violating` and
`candidate_count` are null in its rows, `decision_id` is, and `session_id` names it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from alembic import op
from sqlalchemy import text

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_EVICTIONS = "ix_session_steps_evictions"

# An empty reason says that the step took effect: it was neither refused nor taken back.
_EVICTED = "operation = 'evict' AND reason = ''"


class Words(NamedTuple):
    """What the two databases say differently.

    SQLite looks into a union of views only where the columns of its parts have one affinity:
    hence the casts.
    """

    instant: Callable[[str], str]
    boolean: str
    json: str
    no: str


def _sqlite_instant(column: str) -> str:
    return f"strftime('%Y-%m-%dT%H:%M:%fZ', {column} / 1000.0, 'unixepoch')"


def _postgres_instant(column: str) -> str:
    instant = f"to_timestamp({column} / 1000.0) AT TIME ZONE 'UTC'"
    return f'to_char({instant}, \'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"\')'


_SQLITE = Words(_sqlite_instant, "INTEGER", "TEXT", "0")
_POSTGRES = Words(_postgres_instant, "BOOLEAN", "JSON", "FALSE")


def _at_base(name: str, key: str) -> str:
    """The pod as it was when the session `s` began."""
    return (
        f"{name}.cluster_id = s.cluster_id AND {name}.key = {key}"
        f" AND {name}.valid_from <= s.base_revision"
        f" AND ({name}.valid_to IS NULL OR {name}.valid_to > s.base_revision)"
    )


# A cross join has SQLite take the steps first and look up their pods: the other way round it would
# read every version of every pod.
_STEPS = f"""
        FROM session_steps t
        JOIN sessions s ON s.id = t.session_id
        CROSS JOIN pods v
        CROSS JOIN pods p
        JOIN clusters c ON c.id = s.cluster_id
        WHERE {_EVICTED} AND {_at_base("v", "t.task")} AND {_at_base("p", "t.for_task")}
"""

_CLAIMS = f"""
        FROM (
            SELECT session_id, for_task, min(node) AS node, count(*) AS victims
            FROM session_steps
            WHERE {_EVICTED}
            GROUP BY session_id, for_task
        ) t
        JOIN sessions s ON s.id = t.session_id
        CROSS JOIN pods p
        JOIN clusters c ON c.id = s.cluster_id
        JOIN rule_sets r ON r.id = s.rule_set_id
        WHERE {_at_base("p", "t.for_task")}
"""
"""One row for each pod that others were evicted for, with `victims`."""

_RAN = (
    "CASE WHEN v.start_ms IS NULL OR v.start_ms > s.now_ms THEN 0"
    " ELSE (s.now_ms - v.start_ms) / 1000 END"
)


def v_preemptions(words: Words, *, sessions: bool) -> str:
    instant = words.instant
    decisions = f"""
        SELECT d.id AS decision_id, c.name AS cluster, d.now_ms,
               {instant("d.now_ms")} AS decided_at, d.preemptor, d.preemptor_namespace,
               d.preemptor_priority, d.node, d.victim_count, d.pdb_violations,
               d.candidate_count, d.decided_by, r.name AS rule_set, r.digest AS rule_set_digest,
               y.environment, y.actor, d.revision, d.digest
               {", CAST(NULL AS BIGINT) AS session_id" if sessions else ""}
        FROM decisions d
        JOIN clusters c ON c.id = d.cluster_id
        JOIN rule_sets r ON r.id = d.rule_set_id
        JOIN cycles y ON y.id = d.id
        WHERE d.outcome = 'preempt' AND NOT d.hypothetical
    """
    if not sessions:
        return decisions
    return f"""
        {decisions}
        UNION ALL
        SELECT CAST(NULL AS BIGINT), c.name, s.now_ms, {instant("s.now_ms")}, t.for_task,
               p.namespace, p.priority, CAST(t.node AS TEXT), CAST(t.victims AS BIGINT),
               CAST(NULL AS BIGINT), CAST(NULL AS BIGINT), CAST('' AS TEXT), r.name, r.digest,
               s.environment, s.actor, s.revision, s.digest, s.id
        {_CLAIMS}
    """


def v_victims(words: Words, *, sessions: bool) -> str:
    instant = words.instant
    more = ", CAST(NULL AS BIGINT) AS session_id, CAST('' AS TEXT) AS action"
    decisions = f"""
        SELECT v.decision_id, v.position, c.name AS cluster, v.now_ms,
               {instant("v.now_ms")} AS decided_at,
               v.pod AS victim, v.namespace AS victim_namespace, v.owner AS victim_owner,
               v.priority AS victim_priority, v.priority_class AS victim_priority_class,
               v.uid AS victim_uid, v.node, d.preemptor, d.preemptor_namespace,
               d.preemptor_priority, {instant("v.start_ms")} AS started_at, v.run_seconds,
               v.cpu_milli, v.memory_bytes, v.pdb_violating, v.already_terminating, v.evicted,
               v.filter, v.reasons
               {more if sessions else ""}
        FROM victims v
        JOIN decisions d ON d.id = v.decision_id
        JOIN clusters c ON c.id = v.cluster_id
        WHERE d.outcome = 'preempt' AND NOT d.hypothetical
    """
    if not sessions:
        return decisions
    return f"""
        {decisions}
        UNION ALL
        SELECT CAST(NULL AS BIGINT), t.position, c.name, s.now_ms, {instant("s.now_ms")},
               t.task, v.namespace, v.owner, v.priority, v.priority_class, v.uid, t.node,
               t.for_task, p.namespace, p.priority, {instant("v.start_ms")},
               CAST({_RAN} AS BIGINT), v.cpu_milli, v.memory_bytes,
               CAST(NULL AS {words.boolean}), CAST({words.no} AS {words.boolean}),
               CAST(NOT {words.no} AS {words.boolean}), CAST('' AS TEXT),
               CAST('[]' AS {words.json}), s.id, t.action
        {_STEPS}
    """


def v_who_preempts_whom(words: Words, *, sessions: bool) -> str:
    instant = words.instant
    counted = """
            SELECT cluster_id, preemptor_namespace, namespace AS victim_namespace,
                   CAST(count(*) AS BIGINT) AS evictions,
                   CAST(sum(run_seconds) AS BIGINT) AS run_seconds_lost,
                   min(now_ms) AS first_ms, max(now_ms) AS last_ms
            FROM victims
            WHERE evicted
            GROUP BY cluster_id, preemptor_namespace, namespace
    """
    if sessions:
        counted = f"""
            SELECT cluster_id, preemptor_namespace, victim_namespace,
                   CAST(sum(evictions) AS BIGINT) AS evictions,
                   CAST(sum(run_seconds_lost) AS BIGINT) AS run_seconds_lost,
                   min(first_ms) AS first_ms, max(last_ms) AS last_ms
            FROM (
                {counted}
                UNION ALL
                SELECT s.cluster_id, p.namespace, v.namespace, CAST(count(*) AS BIGINT),
                       CAST(sum({_RAN}) AS BIGINT), min(s.now_ms), max(s.now_ms)
                {_STEPS}
                GROUP BY s.cluster_id, p.namespace, v.namespace
            ) b
            GROUP BY cluster_id, preemptor_namespace, victim_namespace
        """
    return f"""
        SELECT c.name AS cluster, g.preemptor_namespace, g.victim_namespace, g.evictions,
               g.run_seconds_lost, {instant("g.first_ms")} AS first_at,
               {instant("g.last_ms")} AS last_at
        FROM ({counted}) g
        JOIN clusters c ON c.id = g.cluster_id
    """


def v_preemptions_hourly(words: Words, *, sessions: bool) -> str:
    counted = """
            SELECT cluster_id, now_ms / 3600000 AS hour, CAST(count(*) AS BIGINT) AS preemptions,
                   CAST(sum(victim_count) AS BIGINT) AS victims,
                   CAST(sum(pdb_violations) AS BIGINT) AS pdb_violations
            FROM decisions
            WHERE outcome = 'preempt' AND NOT hypothetical
            GROUP BY cluster_id, now_ms / 3600000
    """
    if sessions:
        counted = f"""
            SELECT cluster_id, hour, CAST(sum(preemptions) AS BIGINT) AS preemptions,
                   CAST(sum(victims) AS BIGINT) AS victims,
                   CAST(sum(pdb_violations) AS BIGINT) AS pdb_violations
            FROM (
                {counted}
                UNION ALL
                SELECT s.cluster_id, s.now_ms / 3600000, CAST(count(*) AS BIGINT),
                       CAST(sum(t.victims) AS BIGINT), CAST(0 AS BIGINT)
                {_CLAIMS}
                GROUP BY s.cluster_id, s.now_ms / 3600000
            ) b
            GROUP BY cluster_id, hour
        """
    return f"""
        SELECT c.name AS cluster, g.hour * 3600000 AS hour_ms,
               {words.instant("(g.hour * 3600000)")} AS hour_at,
               g.preemptions, g.victims, g.pdb_violations
        FROM ({counted}) g
        JOIN clusters c ON c.id = g.cluster_id
    """


_VIEWS = (v_preemptions, v_victims, v_who_preempts_whom, v_preemptions_hourly)


def _replace(*, sessions: bool) -> None:
    words = _SQLITE if op.get_bind().dialect.name == "sqlite" else _POSTGRES
    for view in _VIEWS:
        op.execute(f"DROP VIEW {view.__name__}")
        op.execute(f"CREATE VIEW {view.__name__} AS {view(words, sessions=sessions)}")


def upgrade() -> None:
    op.create_index(
        _EVICTIONS,
        "session_steps",
        ["session_id", "for_task"],
        sqlite_where=text(_EVICTED),
        postgresql_where=text(_EVICTED),
    )
    _replace(sessions=True)


def downgrade() -> None:
    _replace(sessions=False)
    op.drop_index(_EVICTIONS, "session_steps")
