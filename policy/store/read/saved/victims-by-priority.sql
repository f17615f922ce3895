-- Evictions by the priorities of who preempts and who leaves.
WITH span AS MATERIALIZED ($span(eviction_totals)),
lost AS (
    SELECT nullif(t.preemptor_priority, $unknown) AS preemptor_priority,
           nullif(t.priority, $unknown) AS priority, t.evictions, t.run_seconds
    FROM span s
    CROSS JOIN eviction_totals t
    WHERE t.cluster_id = s.cluster_id AND s.first_day <> -1 AND t.day >= $first_day
          AND t.day < $behind_day
          AND (:namespace = '' OR t.workload_id IN (
              SELECT n.id FROM evicted_workloads n WHERE n.namespace = :namespace
          ))
    UNION ALL
    SELECT nullif(t.preemptor_priority, $unknown), nullif(t.priority, $unknown), t.evictions,
           t.run_seconds
    FROM span s
    CROSS JOIN priority_totals t
    WHERE t.cluster_id = s.cluster_id AND s.first_day = -1
          AND (:namespace = '' OR t.namespace = :namespace)
    UNION ALL
    SELECT preemptor_priority, victim_priority, 1, run_seconds
    FROM v_victims
    WHERE evicted AND cluster IN (SELECT s.cluster FROM span s)
          AND (:namespace = '' OR victim_namespace = :namespace)
          AND now_ms >= :since AND now_ms < $first_ms AND now_ms < :until
    UNION ALL
    SELECT preemptor_priority, victim_priority, 1, run_seconds
    FROM v_victims
    WHERE evicted AND cluster IN (SELECT s.cluster FROM span s)
          AND (:namespace = '' OR victim_namespace = :namespace)
          AND now_ms >= $behind_ms AND now_ms >= $first_ms AND now_ms < :until
)
SELECT preemptor_priority, priority AS victim_priority,
       CAST(sum(evictions) AS BIGINT) AS evictions,
       CAST(sum(run_seconds) AS BIGINT) AS run_seconds_lost
FROM lost
GROUP BY preemptor_priority, priority
ORDER BY preemptor_priority DESC NULLS LAST, victim_priority DESC NULLS LAST
LIMIT :limit
