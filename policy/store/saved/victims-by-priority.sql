-- Evictions by the priorities of who preempts and who leaves.
SELECT d.preemptor_priority, v.priority AS victim_priority, count(*) AS evictions,
       CAST(sum(v.run_seconds) AS BIGINT) AS run_seconds_lost
FROM clusters c
JOIN victims v ON v.cluster_id = c.id
JOIN decisions d ON d.id = v.decision_id
WHERE v.evicted AND v.now_ms >= :since AND v.now_ms < :until
      AND (:cluster = '' OR c.name = :cluster)
      AND (:namespace = '' OR v.namespace = :namespace)
GROUP BY d.preemptor_priority, v.priority
ORDER BY d.preemptor_priority DESC, v.priority DESC
LIMIT :limit
