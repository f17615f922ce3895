"""Views: the questions that people ask, under names and columns that stay."""

from __future__ import annotations

from collections.abc import Callable

from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

Instant = Callable[[str], str]


def _sqlite_instant(column: str) -> str:
    return f"strftime('%Y-%m-%dT%H:%M:%fZ', {column} / 1000.0, 'unixepoch')"


def _postgres_instant(column: str) -> str:
    instant = f"to_timestamp({column} / 1000.0) AT TIME ZONE 'UTC'"
    return f'to_char({instant}, \'YYYY-MM-DD"T"HH24:MI:SS.MS"Z"\')'


def v_preemptions(instant: Instant) -> str:
    return f"""
        SELECT d.id AS decision_id, c.name AS cluster, d.now_ms,
               {instant("d.now_ms")} AS decided_at, d.preemptor, d.preemptor_namespace,
               d.preemptor_priority, d.node, d.victim_count, d.pdb_violations,
               d.candidate_count, d.decided_by, r.name AS rule_set, r.digest AS rule_set_digest,
               y.environment, y.actor, d.revision, d.digest
        FROM decisions d
        JOIN clusters c ON c.id = d.cluster_id
        JOIN rule_sets r ON r.id = d.rule_set_id
        JOIN cycles y ON y.id = d.id
        WHERE d.outcome = 'preempt' AND NOT d.hypothetical
    """


def v_victims(instant: Instant) -> str:
    return f"""
        SELECT v.decision_id, v.position, c.name AS cluster, v.now_ms,
               {instant("v.now_ms")} AS decided_at,
               v.pod AS victim, v.namespace AS victim_namespace, v.owner AS victim_owner,
               v.priority AS victim_priority, v.priority_class AS victim_priority_class,
               v.uid AS victim_uid, v.node, d.preemptor, d.preemptor_namespace,
               d.preemptor_priority, {instant("v.start_ms")} AS started_at, v.run_seconds,
               v.cpu_milli, v.memory_bytes, v.pdb_violating, v.already_terminating, v.evicted,
               v.filter, v.reasons
        FROM victims v
        JOIN decisions d ON d.id = v.decision_id
        JOIN clusters c ON c.id = v.cluster_id
        WHERE d.outcome = 'preempt' AND NOT d.hypothetical
    """


def v_who_preempts_whom(instant: Instant) -> str:
    return f"""
        SELECT c.name AS cluster, g.preemptor_namespace, g.victim_namespace, g.evictions,
               g.run_seconds_lost, {instant("g.first_ms")} AS first_at,
               {instant("g.last_ms")} AS last_at
        FROM (
            SELECT cluster_id, preemptor_namespace, namespace AS victim_namespace,
                   CAST(count(*) AS BIGINT) AS evictions,
                   CAST(sum(run_seconds) AS BIGINT) AS run_seconds_lost,
                   min(now_ms) AS first_ms, max(now_ms) AS last_ms
            FROM victims
            WHERE evicted
            GROUP BY cluster_id, preemptor_namespace, namespace
        ) g
        JOIN clusters c ON c.id = g.cluster_id
    """


def v_pdb_violations(instant: Instant) -> str:
    return f"""
        SELECT v.decision_id, c.name AS cluster, v.now_ms, {instant("v.now_ms")} AS decided_at,
               v.pod AS victim, v.namespace AS victim_namespace, v.owner AS victim_owner,
               v.priority AS victim_priority, v.node, d.preemptor, d.preemptor_namespace,
               d.preemptor_priority, r.name AS rule_set
        FROM victims v
        JOIN decisions d ON d.id = v.decision_id
        JOIN rule_sets r ON r.id = d.rule_set_id
        JOIN clusters c ON c.id = v.cluster_id
        WHERE v.pdb_violating AND d.outcome = 'preempt' AND NOT d.hypothetical
    """


def v_preemptions_hourly(instant: Instant) -> str:
    return f"""
        SELECT c.name AS cluster, g.hour * 3600000 AS hour_ms,
               {instant("(g.hour * 3600000)")} AS hour_at,
               g.preemptions, g.victims, g.pdb_violations
        FROM (
            SELECT cluster_id, now_ms / 3600000 AS hour, CAST(count(*) AS BIGINT) AS preemptions,
                   CAST(sum(victim_count) AS BIGINT) AS victims,
                   CAST(sum(pdb_violations) AS BIGINT) AS pdb_violations
            FROM decisions
            WHERE outcome = 'preempt' AND NOT hypothetical
            GROUP BY cluster_id, now_ms / 3600000
        ) g
        JOIN clusters c ON c.id = g.cluster_id
    """


def v_tie_breakers(_: Instant) -> str:
    return """
        SELECT c.name AS cluster, r.name AS rule_set, r.digest AS rule_set_digest, g.criterion,
               g.decisions
        FROM (
            SELECT cluster_id, rule_set_id, decided_by AS criterion,
                   CAST(count(*) AS BIGINT) AS decisions
            FROM decisions
            WHERE outcome = 'preempt' AND NOT hypothetical
            GROUP BY cluster_id, rule_set_id, decided_by
        ) g
        JOIN rule_sets r ON r.id = g.rule_set_id
        JOIN clusters c ON c.id = g.cluster_id
    """


def v_rule_usage(_: Instant) -> str:
    return """
        SELECT c.name AS cluster, r.name AS rule_set, r.digest AS rule_set_digest, g.section,
               g.rule, g.verdict, g.fired
        FROM (
            SELECT cluster_id, rule_set_id, section, rule, verdict,
                   CAST(count(*) AS BIGINT) AS fired
            FROM decision_rules
            WHERE NOT hypothetical
            GROUP BY cluster_id, rule_set_id, section, rule, verdict
        ) g
        JOIN rule_sets r ON r.id = g.rule_set_id
        JOIN clusters c ON c.id = g.cluster_id
    """


def v_nominations(instant: Instant) -> str:
    return f"""
        SELECT c.name AS cluster, n.pod, n.priority, n.node, n.made_revision, n.made_decision,
               n.made_ms, {instant("n.made_ms")} AS made_at, e.cause AS ended_by,
               e.ended_revision, e.ended_decision, {instant("e.ended_ms")} AS ended_at
        FROM nominations n
        JOIN clusters c ON c.id = n.cluster_id
        LEFT JOIN nomination_ends e ON e.cluster_id = n.cluster_id
             AND e.made_revision = n.made_revision AND e.pod = n.pod
    """


_KINDS = (
    # kind, table, namespace, node
    ("Node", "nodes", "''", "v.name"),
    ("Pod", "pods", "v.namespace", "v.node"),
    ("PodDisruptionBudget", "pod_disruption_budgets", "v.namespace", "''"),
    ("PriorityClass", "priority_classes", "''", "''"),
    ("Namespace", "namespaces", "v.name", "''"),
    ("PodGroup", "pod_groups", "v.namespace", "''"),
    ("Queue", "queues", "''", "''"),
    ("PersistentVolume", "persistent_volumes", "''", "''"),
    ("PersistentVolumeClaim", "persistent_volume_claims", "v.namespace", "''"),
    ("CSINode", "csi_nodes", "''", "v.name"),
)


def v_cluster_at(instant: Instant) -> str:
    # The join stands in every branch, so that a condition on cluster and revision reaches the
    # index of each table on both databases; and what is still true has a branch of its own, so
    # that near the newest revision only little is read. The plus keeps SQLite off the index over
    # `valid_from`, which would read the whole past.
    ends = ("v.valid_to IS NULL", "v.valid_to > r.number")
    return "\nUNION ALL\n".join(
        f"""
        SELECT c.name AS cluster, r.number AS revision, r.at_ms,
               {instant("r.at_ms")} AS revision_at, '{kind}' AS kind, v.key,
               {namespace} AS namespace, v.name, {node} AS node, v.valid_from, v.valid_to,
               v.digest, v.manifest
        FROM clusters c
        JOIN revisions r ON r.cluster_id = c.id
        JOIN {table} v ON v.cluster_id = r.cluster_id AND +v.valid_from <= r.number AND {end}
        """
        for kind, table, namespace, node in _KINDS
        for end in ends
    )


_VIEWS = (
    v_preemptions,
    v_victims,
    v_who_preempts_whom,
    v_pdb_violations,
    v_preemptions_hourly,
    v_tie_breakers,
    v_rule_usage,
    v_nominations,
    v_cluster_at,
)


def upgrade() -> None:
    sqlite = op.get_bind().dialect.name == "sqlite"
    instant = _sqlite_instant if sqlite else _postgres_instant
    for view in _VIEWS:
        op.execute(f"CREATE VIEW {view.__name__} AS {view(instant)}")


def downgrade() -> None:
    for view in reversed(_VIEWS):
        op.execute(f"DROP VIEW {view.__name__}")
