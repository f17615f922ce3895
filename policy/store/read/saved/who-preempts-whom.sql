-- Evictions and lost run time, by who preempts and which workload leaves; the most first.
WITH span AS MATERIALIZED ($span(eviction_totals)),
ends AS MATERIALIZED ( -- out of the parts of days
    SELECT n.id AS workload_id, v.preemptor_namespace, v.now_ms / 86400000 AS day, v.run_seconds
    FROM v_victims v
    JOIN clusters c ON c.name = v.cluster
    JOIN evicted_workloads n ON n.cluster_id = c.id AND n.namespace = v.victim_namespace
         AND n.owner = v.victim_owner
    WHERE v.evicted AND v.cluster IN (SELECT s.cluster FROM span s)
          AND (:namespace = '' OR v.preemptor_namespace = :namespace
               OR v.victim_namespace = :namespace)
          AND v.now_ms >= :since AND v.now_ms < $first_ms AND v.now_ms < :until
    UNION ALL
    SELECT n.id, v.preemptor_namespace, v.now_ms / 86400000, v.run_seconds
    FROM v_victims v
    JOIN clusters c ON c.name = v.cluster
    JOIN evicted_workloads n ON n.cluster_id = c.id AND n.namespace = v.victim_namespace
         AND n.owner = v.victim_owner
    WHERE v.evicted AND v.cluster IN (SELECT s.cluster FROM span s)
          AND (:namespace = '' OR v.preemptor_namespace = :namespace
               OR v.victim_namespace = :namespace)
          AND v.now_ms >= $behind_ms AND v.now_ms >= $first_ms AND v.now_ms < :until
),
hits AS (
    SELECT t.workload_id, t.preemptor_namespace, t.evictions, t.run_seconds
    FROM span s
    CROSS JOIN eviction_totals t
    WHERE t.cluster_id = s.cluster_id AND s.first_day <> -1 AND t.day >= $first_day
          AND t.day < $behind_day
          AND (:namespace = '' OR t.preemptor_namespace = :namespace OR t.workload_id IN (
              SELECT n.id FROM evicted_workloads n WHERE n.namespace = :namespace
          ))
    UNION ALL
    SELECT workload_id, preemptor_namespace, 1, run_seconds
    FROM ends
),
worst AS (
    -- Each part is cut by itself: put together whole they would be copied once more. In the order
    -- in which it is shown: with a lower limit the first ones stay.
    SELECT * FROM (
        SELECT s.cluster, n.cluster_id, t.preemptor_namespace, n.namespace, n.owner, t.workload_id,
               t.evictions, t.run_seconds
        FROM span s
        CROSS JOIN pair_totals t
        CROSS JOIN evicted_workloads n
        WHERE t.cluster_id = s.cluster_id AND s.first_day = -1 AND n.id = t.workload_id
              AND (:namespace = '' OR t.preemptor_namespace = :namespace
                   OR n.namespace = :namespace)
        ORDER BY t.evictions DESC, s.cluster, t.preemptor_namespace, n.namespace, n.owner
        LIMIT :limit
    ) ever
    UNION ALL
    SELECT * FROM (
        SELECT k.cluster, n.cluster_id, s.preemptor_namespace, n.namespace, n.owner, s.workload_id,
               s.evictions, s.run_seconds
        FROM (
            SELECT workload_id, preemptor_namespace,
                   sum(evictions) AS evictions, sum(run_seconds) AS run_seconds
            FROM hits
            GROUP BY workload_id, preemptor_namespace
        ) s
        CROSS JOIN evicted_workloads n
        CROSS JOIN span k
        WHERE n.id = s.workload_id AND k.cluster_id = n.cluster_id
        ORDER BY evictions DESC, cluster, preemptor_namespace, namespace, owner
        LIMIT :limit
    ) then_only
    ORDER BY evictions DESC, cluster, preemptor_namespace, namespace, owner
    LIMIT :limit
)
SELECT c.name AS cluster, w.preemptor_namespace, w.namespace AS victim_namespace,
       w.owner AS victim_owner,
       CAST(w.evictions AS BIGINT) AS evictions,
       CAST(w.run_seconds AS BIGINT) AS run_seconds_lost,
       (SELECT substr(v.day_at, 1, 10) FROM v_evictions_daily v
        WHERE v.workload_id = w.workload_id AND v.preemptor_namespace = w.preemptor_namespace
              -- Days that the time touches: the whole ones, and others on which they were hit in it.
              AND v.day >= CAST(:since AS BIGINT) / 86400000
              AND v.day <= (CAST(:until AS BIGINT) - 1) / 86400000
              AND (s.first_day = -1 OR (v.day >= s.first_day AND v.day < s.behind_day) OR EXISTS (
                  SELECT 1 FROM ends e
                  WHERE e.workload_id = w.workload_id AND e.day = v.day
                        AND e.preemptor_namespace = w.preemptor_namespace
              ))
        ORDER BY v.day DESC
        LIMIT 1) AS last_day
FROM worst w
JOIN clusters c ON c.id = w.cluster_id
JOIN span s ON s.cluster_id = w.cluster_id
ORDER BY w.evictions DESC, c.name, w.preemptor_namespace, w.namespace, w.owner
