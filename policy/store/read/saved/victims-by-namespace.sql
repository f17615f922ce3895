-- What each namespace lost by preemption: pods, of how many workloads (those without an owner are of none), run time, violated budgets.
WITH span AS MATERIALIZED ($span(eviction_totals)),
whole AS (
    SELECT t.workload_id, sum(t.evictions) AS evictions, sum(t.run_seconds) AS run_seconds,
           sum(t.pdb_violations) AS pdb_violations
    FROM span s
    CROSS JOIN pair_totals t
    WHERE t.cluster_id = s.cluster_id AND s.first_day = -1
    GROUP BY t.workload_id
    UNION ALL
    SELECT t.workload_id, sum(t.evictions), sum(t.run_seconds), sum(t.pdb_violations)
    FROM span s
    CROSS JOIN eviction_totals t
    WHERE t.cluster_id = s.cluster_id AND s.first_day <> -1 AND t.day >= $first_day
          AND t.day < $behind_day
    GROUP BY t.workload_id
),
lost AS (
    SELECT n.namespace, n.owner, h.evictions, h.run_seconds, h.pdb_violations
    FROM whole h
    JOIN evicted_workloads n ON n.id = h.workload_id
    UNION ALL
    SELECT victim_namespace, victim_owner, 1, run_seconds,
           CASE WHEN pdb_violating AND decision_id IS NOT NULL THEN 1 ELSE 0 END
    FROM v_victims
    WHERE evicted AND cluster IN (SELECT s.cluster FROM span s)
          AND now_ms >= :since AND now_ms < $first_ms AND now_ms < :until
    UNION ALL
    SELECT victim_namespace, victim_owner, 1, run_seconds,
           CASE WHEN pdb_violating AND decision_id IS NOT NULL THEN 1 ELSE 0 END
    FROM v_victims
    WHERE evicted AND cluster IN (SELECT s.cluster FROM span s)
          AND now_ms >= $behind_ms AND now_ms >= $first_ms AND now_ms < :until
)
SELECT namespace AS victim_namespace, CAST(sum(evictions) AS BIGINT) AS evictions,
       count(DISTINCT nullif(owner, '')) AS workloads, CAST(sum(run_seconds) AS BIGINT) AS run_seconds_lost,
       CAST(sum(pdb_violations) AS BIGINT) AS pdb_violations
FROM lost
GROUP BY namespace
ORDER BY evictions DESC, victim_namespace
LIMIT :limit
