"""Views of single rows say where SQLite shall begin: with the rows, not with the names beside them.

SQLite chooses the order of inner joins by its statistics, and with those of a long record it begins
at the few clusters and rule sets: the newest fifty preemptions then cost a sort of all of them. An
outer join to a name that every row has gives the same rows and keeps the order, and a condition on
the name still makes it an inner one. A cross join keeps what is looked up behind what names it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None

_EVICTED = "operation = 'evict' AND reason = ''"


class Words(NamedTuple):
    """What the two databases say differently."""

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


class Sources(NamedTuple):
    """What the parts of the views read: decisions and nominations, and the steps of sessions."""

    preemptions: str
    victims: str
    pdb_violations: str
    nominations: str
    name: str  #: how a session's part joins a name that every row has


_FREE = Sources(
    preemptions="""
        FROM decisions d
        JOIN clusters c ON c.id = d.cluster_id
        JOIN rule_sets r ON r.id = d.rule_set_id
        JOIN cycles y ON y.id = d.id
        WHERE d.outcome = 'preempt' AND NOT d.hypothetical
    """,
    victims="""
        FROM victims v
        JOIN decisions d ON d.id = v.decision_id
        JOIN clusters c ON c.id = v.cluster_id
        WHERE d.outcome = 'preempt' AND NOT d.hypothetical
    """,
    pdb_violations="""
        FROM victims v
        JOIN decisions d ON d.id = v.decision_id
        JOIN rule_sets r ON r.id = d.rule_set_id
        JOIN clusters c ON c.id = v.cluster_id
        WHERE v.pdb_violating AND d.outcome = 'preempt' AND NOT d.hypothetical
    """,
    nominations="""
        FROM nominations n
        JOIN clusters c ON c.id = n.cluster_id
        LEFT JOIN nomination_ends e ON e.cluster_id = n.cluster_id
             AND e.made_revision = n.made_revision AND e.pod = n.pod
    """,
    name="JOIN",
)
_ORDERED = Sources(
    preemptions="""
        FROM decisions d
        LEFT JOIN clusters c ON c.id = d.cluster_id
        LEFT JOIN rule_sets r ON r.id = d.rule_set_id
        LEFT JOIN cycles y ON y.id = d.id
        WHERE d.outcome = 'preempt' AND NOT d.hypothetical
    """,
    victims="""
        FROM victims v
        CROSS JOIN decisions d
        LEFT JOIN clusters c ON c.id = v.cluster_id
        WHERE d.id = v.decision_id AND d.outcome = 'preempt' AND NOT d.hypothetical
    """,
    pdb_violations="""
        FROM victims v
        CROSS JOIN decisions d
        LEFT JOIN rule_sets r ON r.id = d.rule_set_id
        LEFT JOIN clusters c ON c.id = v.cluster_id
        WHERE d.id = v.decision_id
              AND v.pdb_violating AND d.outcome = 'preempt' AND NOT d.hypothetical
    """,
    # Here the few clusters come first: their nominations and the ends of these lie in one order.
    nominations="""
        FROM clusters c
        CROSS JOIN nominations n
        LEFT JOIN nomination_ends e ON e.cluster_id = n.cluster_id
             AND e.made_revision = n.made_revision AND e.pod = n.pod
        WHERE n.cluster_id = c.id
    """,
    name="LEFT JOIN",
)


def _at_base(name: str, key: str) -> str:
    """The pod as it was when the session `s` began."""
    return (
        f"{name}.cluster_id = s.cluster_id AND {name}.key = {key}"
        f" AND {name}.valid_from <= s.base_revision"
        f" AND ({name}.valid_to IS NULL OR {name}.valid_to > s.base_revision)"
    )


def _steps(sources: Sources) -> str:
    return f"""
        FROM session_steps t
        JOIN sessions s ON s.id = t.session_id
        CROSS JOIN pods v
        CROSS JOIN pods p
        {sources.name} clusters c ON c.id = s.cluster_id
        WHERE {_EVICTED} AND {_at_base("v", "t.task")} AND {_at_base("p", "t.for_task")}
    """


def _claims(sources: Sources) -> str:
    """One row for each pod that others were evicted for, with `victims`."""
    return f"""
        FROM (
            SELECT session_id, for_task, min(node) AS node, count(*) AS victims
            FROM session_steps
            WHERE {_EVICTED}
            GROUP BY session_id, for_task
        ) t
        JOIN sessions s ON s.id = t.session_id
        CROSS JOIN pods p
        {sources.name} clusters c ON c.id = s.cluster_id
        {sources.name} rule_sets r ON r.id = s.rule_set_id
        WHERE {_at_base("p", "t.for_task")}
    """


_RAN = (
    "CASE WHEN v.start_ms IS NULL OR v.start_ms > s.now_ms THEN 0"
    " ELSE (s.now_ms - v.start_ms) / 1000 END"
)


def v_preemptions(words: Words, sources: Sources) -> str:
    instant = words.instant
    return f"""
        SELECT d.id AS decision_id, c.name AS cluster, d.now_ms,
               {instant("d.now_ms")} AS decided_at, d.preemptor, d.preemptor_namespace,
               d.preemptor_priority, d.node, d.victim_count, d.pdb_violations,
               d.candidate_count, d.decided_by, r.name AS rule_set, r.digest AS rule_set_digest,
               y.environment, y.actor, d.revision, d.digest, CAST(NULL AS BIGINT) AS session_id
        {sources.preemptions}
        UNION ALL
        SELECT CAST(NULL AS BIGINT), c.name, s.now_ms, {instant("s.now_ms")}, t.for_task,
               p.namespace, p.priority, CAST(t.node AS TEXT), CAST(t.victims AS BIGINT),
               CAST(NULL AS BIGINT), CAST(NULL AS BIGINT), CAST('' AS TEXT), r.name, r.digest,
               s.environment, s.actor, s.revision, s.digest, s.id
        {_claims(sources)}
    """


def v_victims(words: Words, sources: Sources) -> str:
    instant = words.instant
    return f"""
        SELECT v.decision_id, v.position, c.name AS cluster, v.now_ms,
               {instant("v.now_ms")} AS decided_at,
               v.pod AS victim, v.namespace AS victim_namespace, v.owner AS victim_owner,
               v.priority AS victim_priority, v.priority_class AS victim_priority_class,
               v.uid AS victim_uid, v.node, d.preemptor, d.preemptor_namespace,
               d.preemptor_priority, {instant("v.start_ms")} AS started_at, v.run_seconds,
               v.cpu_milli, v.memory_bytes, v.pdb_violating, v.already_terminating, v.evicted,
               v.filter, v.reasons, CAST(NULL AS BIGINT) AS session_id, CAST('' AS TEXT) AS action
        {sources.victims}
        UNION ALL
        SELECT CAST(NULL AS BIGINT), t.position, c.name, s.now_ms, {instant("s.now_ms")},
               t.task, v.namespace, v.owner, v.priority, v.priority_class, v.uid, t.node,
               t.for_task, p.namespace, p.priority, {instant("v.start_ms")},
               CAST({_RAN} AS BIGINT), v.cpu_milli, v.memory_bytes,
               CAST(NULL AS {words.boolean}), CAST({words.no} AS {words.boolean}),
               CAST(NOT {words.no} AS {words.boolean}), CAST('' AS TEXT),
               CAST('[]' AS {words.json}), s.id, t.action
        {_steps(sources)}
    """


def v_pdb_violations(words: Words, sources: Sources) -> str:
    return f"""
        SELECT v.decision_id, c.name AS cluster, v.now_ms,
               {words.instant("v.now_ms")} AS decided_at,
               v.pod AS victim, v.namespace AS victim_namespace, v.owner AS victim_owner,
               v.priority AS victim_priority, v.node, d.preemptor, d.preemptor_namespace,
               d.preemptor_priority, r.name AS rule_set
        {sources.pdb_violations}
    """


def v_nominations(words: Words, sources: Sources) -> str:
    instant = words.instant
    return f"""
        SELECT c.name AS cluster, n.pod, n.priority, n.node, n.made_revision, n.made_decision,
               n.made_ms, {instant("n.made_ms")} AS made_at, e.cause AS ended_by,
               e.ended_revision, e.ended_decision, {instant("e.ended_ms")} AS ended_at
        {sources.nominations}
    """


_VIEWS = (v_preemptions, v_victims, v_pdb_violations, v_nominations)


def _replace(sources: Sources) -> None:
    words = _SQLITE if op.get_bind().dialect.name == "sqlite" else _POSTGRES
    for view in _VIEWS:
        op.execute(f"DROP VIEW {view.__name__}")
        op.execute(f"CREATE VIEW {view.__name__} AS {view(words, sources)}")


def upgrade() -> None:
    _replace(_ORDERED)


def downgrade() -> None:
    _replace(_FREE)
