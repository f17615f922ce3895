-- Workloads that are hit again and again, without pods that have no owner: evictions, by how many namespaces, on which days.
WITH span AS MATERIALIZED ($span(eviction_totals)),
ends AS MATERIALIZED ( -- out of the parts of days
    SELECT n.id AS workload_id, v.preemptor_namespace, v.now_ms / 86400000 AS day, v.run_seconds
    FROM v_victims v
    JOIN clusters c ON c.name = v.cluster
    JOIN evicted_workloads n ON n.cluster_id = c.id AND n.namespace = v.victim_namespace
         AND n.owner = v.victim_owner
    WHERE v.evicted AND v.cluster IN (SELECT s.cluster FROM span s)
          AND (:namespace = '' OR v.victim_namespace = :namespace)
          AND v.now_ms >= :since AND v.now_ms < $first_ms AND v.now_ms < :until
    UNION ALL
    SELECT n.id, v.preemptor_namespace, v.now_ms / 86400000, v.run_seconds
    FROM v_victims v
    JOIN clusters c ON c.name = v.cluster
    JOIN evicted_workloads n ON n.cluster_id = c.id AND n.namespace = v.victim_namespace
         AND n.owner = v.victim_owner
    WHERE v.evicted AND v.cluster IN (SELECT s.cluster FROM span s)
          AND (:namespace = '' OR v.victim_namespace = :namespace)
          AND v.now_ms >= $behind_ms AND v.now_ms >= $first_ms AND v.now_ms < :until
),
hits AS (
    SELECT t.workload_id, t.evictions, t.run_seconds
    FROM span s
    CROSS JOIN eviction_totals t
    WHERE t.cluster_id = s.cluster_id AND s.first_day <> -1 AND t.day >= $first_day
          AND t.day < $behind_day
          AND (:namespace = '' OR t.workload_id IN (
              SELECT n.id FROM evicted_workloads n WHERE n.namespace = :namespace
          ))
    UNION ALL
    SELECT workload_id, 1, run_seconds
    FROM ends
),
sums AS (
    SELECT t.workload_id, sum(t.evictions) AS evictions, sum(t.run_seconds) AS run_seconds
    FROM span s
    CROSS JOIN pair_totals t
    WHERE t.cluster_id = s.cluster_id AND s.first_day = -1
          AND (:namespace = '' OR t.workload_id IN (
              SELECT n.id FROM evicted_workloads n WHERE n.namespace = :namespace
          ))
    GROUP BY t.workload_id
    UNION ALL
    SELECT workload_id, sum(evictions), sum(run_seconds)
    FROM hits
    GROUP BY workload_id
),
worst AS (
    SELECT n.cluster_id, s.workload_id, n.namespace, n.owner, s.evictions, s.run_seconds
    FROM sums s
    JOIN evicted_workloads n ON n.id = s.workload_id
    JOIN span k ON k.cluster_id = n.cluster_id
    WHERE n.owner <> '' -- all pods of a namespace that have no owner
    -- Cut in the order in which it is shown: with a lower limit the first ones stay.
    ORDER BY s.evictions DESC, k.cluster, n.namespace, n.owner
    LIMIT :limit
),
days AS ( -- out of the index by workloads alone
    SELECT t.workload_id, t.preemptor_namespace, min(t.day) AS first_day, max(t.day) AS last_day
    FROM worst w
    CROSS JOIN span s
    CROSS JOIN eviction_totals t
    WHERE s.cluster_id = w.cluster_id AND t.workload_id = w.workload_id
          -- Days that the time touches: the whole ones, and others on which they were hit in it.
          AND t.day >= CAST(:since AS BIGINT) / 86400000
          AND t.day <= (CAST(:until AS BIGINT) - 1) / 86400000
          AND (s.first_day = -1 OR (t.day >= s.first_day AND t.day < s.behind_day) OR EXISTS (
              SELECT 1 FROM ends e
              WHERE e.workload_id = w.workload_id AND e.day = t.day
                    AND e.preemptor_namespace = t.preemptor_namespace
          ))
    GROUP BY t.workload_id, t.preemptor_namespace
)
SELECT c.name AS cluster, w.namespace AS victim_namespace, w.owner AS victim_owner, w.evictions,
       d.preemptor_namespaces, CAST(w.run_seconds AS BIGINT) AS run_seconds_lost,
       (SELECT substr(v.day_at, 1, 10) FROM v_evictions_daily v
        WHERE v.workload_id = w.workload_id AND v.day = d.first_day LIMIT 1) AS first_day,
       (SELECT substr(v.day_at, 1, 10) FROM v_evictions_daily v
        WHERE v.workload_id = w.workload_id AND v.day = d.last_day LIMIT 1) AS last_day
FROM worst w
JOIN clusters c ON c.id = w.cluster_id
JOIN (SELECT workload_id, count(*) AS preemptor_namespaces,
             min(first_day) AS first_day, max(last_day) AS last_day
      FROM days
      GROUP BY workload_id) d ON d.workload_id = w.workload_id
ORDER BY w.evictions DESC, c.name, w.namespace, w.owner
