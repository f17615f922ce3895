-- Workloads that are hit again and again: evictions, by how many namespaces, on which days.
WITH span AS MATERIALIZED ($span(eviction_totals)),
ends AS MATERIALIZED ( -- out of the parts of days
    SELECT c.id AS cluster_id, v.victim_namespace AS namespace, v.victim_owner AS owner,
           v.preemptor_namespace, v.now_ms / 86400000 AS day, v.run_seconds
    FROM v_victims v
    JOIN clusters c ON c.name = v.cluster
    WHERE v.evicted AND (:cluster = '' OR v.cluster = :cluster)
          AND (:namespace = '' OR v.victim_namespace = :namespace)
          AND v.now_ms >= :since AND v.now_ms < $first_ms AND v.now_ms < :until
    UNION ALL
    SELECT c.id, v.victim_namespace, v.victim_owner, v.preemptor_namespace, v.now_ms / 86400000,
           v.run_seconds
    FROM v_victims v
    JOIN clusters c ON c.name = v.cluster
    WHERE v.evicted AND (:cluster = '' OR v.cluster = :cluster)
          AND (:namespace = '' OR v.victim_namespace = :namespace)
          AND v.now_ms >= $behind_ms AND v.now_ms >= $first_ms AND v.now_ms < :until
),
hits AS (
    SELECT s.cluster_id, t.namespace, t.owner, t.evictions, t.run_seconds
    FROM span s
    CROSS JOIN eviction_totals t
    WHERE t.cluster_id = s.cluster_id AND s.first_day <> -1 AND t.day >= s.first_day
          AND t.day < s.behind_day
          AND (:namespace = '' OR t.namespace = :namespace)
    UNION ALL
    SELECT cluster_id, namespace, owner, 1, run_seconds
    FROM ends
),
sums AS (
    SELECT c.id AS cluster_id, t.namespace, t.owner,
           sum(t.evictions) AS evictions, sum(t.run_seconds) AS run_seconds
    FROM clusters c -- in whose order, and that of the key, the rows are grouped as they lie
    CROSS JOIN eviction_totals t
    WHERE (SELECT s.first_day FROM span s WHERE s.cluster_id = c.id) = -1
          AND t.cluster_id = c.id AND t.day = -1
          AND (:namespace = '' OR t.namespace = :namespace)
    GROUP BY c.id, t.namespace, t.owner
    UNION ALL
    SELECT cluster_id, namespace, owner, sum(evictions), sum(run_seconds)
    FROM hits
    -- In the order in which they lie on each day; what differs least comes last.
    GROUP BY namespace, owner, cluster_id
),
worst AS (
    SELECT *
    FROM sums
    ORDER BY evictions DESC, cluster_id, namespace, owner
    LIMIT :limit
),
days AS (
    SELECT w.cluster_id, w.namespace, w.owner, v.preemptor_namespace, v.day_at
    FROM worst w
    CROSS JOIN span s
    CROSS JOIN clusters c
    CROSS JOIN v_evictions_daily v
    WHERE s.cluster_id = w.cluster_id AND c.id = w.cluster_id AND v.cluster = c.name
          AND v.victim_namespace = w.namespace AND v.victim_owner = w.owner
          -- Days that the time touches: the whole ones, and others on which they were hit in it.
          AND v.day >= CAST(:since AS BIGINT) / 86400000
          AND v.day <= (CAST(:until AS BIGINT) - 1) / 86400000
          AND (s.first_day = -1 OR (v.day >= s.first_day AND v.day < s.behind_day) OR EXISTS (
              SELECT 1 FROM ends e
              WHERE e.cluster_id = w.cluster_id AND e.namespace = w.namespace
                    AND e.owner = w.owner AND e.day = v.day
                    AND e.preemptor_namespace = v.preemptor_namespace
          ))
)
SELECT c.name AS cluster, w.namespace AS victim_namespace, w.owner AS victim_owner, w.evictions,
       d.preemptor_namespaces, CAST(w.run_seconds AS BIGINT) AS run_seconds_lost,
       d.first_day, d.last_day
FROM worst w
JOIN clusters c ON c.id = w.cluster_id
JOIN (SELECT cluster_id, namespace, owner,
             count(DISTINCT preemptor_namespace) AS preemptor_namespaces,
             substr(min(day_at), 1, 10) AS first_day, substr(max(day_at), 1, 10) AS last_day
      FROM days
      GROUP BY cluster_id, namespace, owner) d
     ON d.cluster_id = w.cluster_id AND d.namespace = w.namespace AND d.owner = w.owner
ORDER BY w.evictions DESC, c.name, w.namespace, w.owner
