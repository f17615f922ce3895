-- What each namespace lost by preemption: pods, run time, violated budgets.
WITH lost AS (
    -- `+` lets SQLite walk the workloads in the order of their index, instead of sorting by time.
    SELECT v.namespace, count(*) AS evictions, count(DISTINCT v.pod) AS pods,
           sum(v.run_seconds) AS run_seconds,
           sum(CASE WHEN v.pdb_violating THEN 1 ELSE 0 END) AS pdb_violations
    FROM clusters c
    CROSS JOIN victims v
    WHERE v.cluster_id = c.id AND v.evicted AND +v.now_ms >= :since AND +v.now_ms < :until
          AND NOT EXISTS (SELECT 1 FROM decision_outcomes x
                          WHERE x.decision_id = v.decision_id AND x.position = v.position)
          AND (:cluster = '' OR c.name = :cluster)
    GROUP BY c.id, v.namespace, v.owner
    UNION ALL
    SELECT s.victim_namespace, count(*), count(DISTINCT s.new_pod), sum(s.run_seconds), 0
    FROM (
        SELECT t.cluster, t.victim_namespace, t.victim_owner, t.run_seconds,
               CASE WHEN NOT EXISTS (
                   SELECT 1 FROM clusters c
                   JOIN victims v ON v.cluster_id = c.id
                   WHERE c.name = t.cluster AND v.namespace = t.victim_namespace
                         AND v.owner = t.victim_owner AND v.pod = t.victim
                         AND v.evicted AND +v.now_ms >= :since AND +v.now_ms < :until
                         AND NOT EXISTS (SELECT 1 FROM decision_outcomes x
                                         WHERE x.decision_id = v.decision_id AND x.position = v.position)
               ) THEN t.victim END AS new_pod
        FROM v_victims t
        WHERE (t.session_id IS NOT NULL OR t.observation_id IS NOT NULL) AND t.evicted
              AND t.now_ms >= :since AND t.now_ms < :until
              AND (:cluster = '' OR t.cluster = :cluster)
    ) s
    GROUP BY s.cluster, s.victim_namespace, s.victim_owner
)
SELECT namespace AS victim_namespace, CAST(sum(evictions) AS BIGINT) AS evictions,
       CAST(sum(pods) AS BIGINT) AS pods, CAST(sum(run_seconds) AS BIGINT) AS run_seconds_lost,
       CAST(sum(pdb_violations) AS BIGINT) AS pdb_violations
FROM lost
GROUP BY namespace
ORDER BY evictions DESC, victim_namespace
LIMIT :limit
