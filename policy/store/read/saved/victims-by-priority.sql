-- Evictions by the priorities of who preempts and who leaves.
WITH lost AS (
    SELECT d.preemptor_priority, v.priority, count(*) AS evictions,
           sum(v.run_seconds) AS run_seconds
    FROM clusters c
    CROSS JOIN victims v
    CROSS JOIN decisions d
    WHERE v.cluster_id = c.id AND d.id = v.decision_id
          AND NOT EXISTS (SELECT 1 FROM decision_outcomes x
                          WHERE x.decision_id = v.decision_id AND x.position = v.position)
          AND v.evicted AND v.now_ms >= :since AND v.now_ms < :until
          AND (:cluster = '' OR c.name = :cluster)
          AND (:namespace = '' OR v.namespace = :namespace)
    GROUP BY d.preemptor_priority, v.priority
    UNION ALL
    SELECT preemptor_priority, victim_priority, count(*), sum(run_seconds)
    FROM v_victims
    WHERE (session_id IS NOT NULL OR observation_id IS NOT NULL) AND evicted
          AND now_ms >= :since AND now_ms < :until
          AND (:cluster = '' OR cluster = :cluster)
          AND (:namespace = '' OR victim_namespace = :namespace)
    GROUP BY preemptor_priority, victim_priority
)
SELECT preemptor_priority, priority AS victim_priority,
       CAST(sum(evictions) AS BIGINT) AS evictions,
       CAST(sum(run_seconds) AS BIGINT) AS run_seconds_lost
FROM lost
GROUP BY preemptor_priority, priority
ORDER BY preemptor_priority DESC, victim_priority DESC
LIMIT :limit
