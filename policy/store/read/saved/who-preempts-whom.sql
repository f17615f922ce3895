-- Evictions and lost run time, by who preempts and which workload leaves; the most first.
WITH span AS MATERIALIZED ($span(eviction_totals)),
ends AS MATERIALIZED ( -- out of the parts of days
    SELECT c.id AS cluster_id, v.preemptor_namespace, v.victim_namespace AS namespace,
           v.victim_owner AS owner, v.now_ms / 86400000 AS day, v.run_seconds
    FROM v_victims v
    JOIN clusters c ON c.name = v.cluster
    WHERE v.evicted AND (:cluster = '' OR v.cluster = :cluster)
          AND (:namespace = '' OR v.preemptor_namespace = :namespace
               OR v.victim_namespace = :namespace)
          AND v.now_ms >= :since AND v.now_ms < $first_ms AND v.now_ms < :until
    UNION ALL
    SELECT c.id, v.preemptor_namespace, v.victim_namespace, v.victim_owner, v.now_ms / 86400000,
           v.run_seconds
    FROM v_victims v
    JOIN clusters c ON c.name = v.cluster
    WHERE v.evicted AND (:cluster = '' OR v.cluster = :cluster)
          AND (:namespace = '' OR v.preemptor_namespace = :namespace
               OR v.victim_namespace = :namespace)
          AND v.now_ms >= $behind_ms AND v.now_ms >= $first_ms AND v.now_ms < :until
),
hits AS (
    SELECT s.cluster_id, t.preemptor_namespace, t.namespace, t.owner, t.evictions, t.run_seconds
    FROM span s
    CROSS JOIN eviction_totals t
    WHERE t.cluster_id = s.cluster_id AND s.first_day <> -1 AND t.day >= s.first_day
          AND t.day < s.behind_day
          AND (:namespace = '' OR t.preemptor_namespace = :namespace
               OR t.namespace = :namespace)
    UNION ALL
    SELECT cluster_id, preemptor_namespace, namespace, owner, 1, run_seconds
    FROM ends
),
worst AS (
    -- Each part is cut by itself: put together whole they would be copied and sorted once more.
    SELECT * FROM (
        SELECT c.id AS cluster_id, t.preemptor_namespace, t.namespace, t.owner,
               sum(t.evictions) AS evictions, sum(t.run_seconds) AS run_seconds
        FROM clusters c -- in whose order, and that of the key, the rows are grouped as they lie
        CROSS JOIN eviction_totals t
        WHERE (SELECT s.first_day FROM span s WHERE s.cluster_id = c.id) = -1
              AND t.cluster_id = c.id AND t.day = -1
              AND (:namespace = '' OR t.preemptor_namespace = :namespace
                   OR t.namespace = :namespace)
        GROUP BY c.id, t.namespace, t.owner, t.preemptor_namespace
        ORDER BY evictions DESC, cluster_id, preemptor_namespace, namespace, owner
        LIMIT :limit
    ) ever
    UNION ALL
    SELECT * FROM (
        SELECT cluster_id, preemptor_namespace, namespace, owner,
               sum(evictions) AS evictions, sum(run_seconds) AS run_seconds
        FROM hits
        -- In the order in which they lie on each day; what differs least comes last.
        GROUP BY namespace, owner, preemptor_namespace, cluster_id
        ORDER BY evictions DESC, cluster_id, preemptor_namespace, namespace, owner
        LIMIT :limit
    ) then_only
    ORDER BY evictions DESC, cluster_id, preemptor_namespace, namespace, owner
    LIMIT :limit
)
SELECT c.name AS cluster, w.preemptor_namespace, w.namespace AS victim_namespace,
       w.owner AS victim_owner,
       CAST(w.evictions AS BIGINT) AS evictions,
       CAST(w.run_seconds AS BIGINT) AS run_seconds_lost,
       (SELECT substr(max(v.day_at), 1, 10) FROM v_evictions_daily v
        WHERE v.victim_namespace = w.namespace AND v.victim_owner = w.owner
              AND v.preemptor_namespace = w.preemptor_namespace
              AND v.cluster = c.name
              -- Days that the time touches: the whole ones, and others on which they were hit in it.
              AND v.day >= CAST(:since AS BIGINT) / 86400000
              AND v.day <= (CAST(:until AS BIGINT) - 1) / 86400000
              AND (s.first_day = -1 OR (v.day >= s.first_day AND v.day < s.behind_day) OR EXISTS (
                  SELECT 1 FROM ends e
                  WHERE e.cluster_id = w.cluster_id AND e.namespace = w.namespace
                        AND e.owner = w.owner AND e.day = v.day
                        AND e.preemptor_namespace = w.preemptor_namespace
              ))) AS last_day
FROM worst w
JOIN clusters c ON c.id = w.cluster_id
JOIN span s ON s.cluster_id = w.cluster_id
ORDER BY w.evictions DESC, c.name, w.preemptor_namespace, w.namespace, w.owner
