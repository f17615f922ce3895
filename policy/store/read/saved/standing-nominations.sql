-- Pods that wait on a node for their victims to leave, the oldest nomination first.
SELECT cluster, pod, priority, node, made_at, made_decision
FROM v_nominations
WHERE ended_by IS NULL AND made_ms >= :since AND made_ms < :until
      AND (:cluster = '' OR cluster = :cluster)
ORDER BY made_ms, cluster, pod
LIMIT :limit
