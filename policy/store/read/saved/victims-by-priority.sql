-- Evictions by the priorities of who preempts and who leaves.
SELECT preemptor_priority, victim_priority, count(*) AS evictions,
       CAST(sum(run_seconds) AS BIGINT) AS run_seconds_lost
FROM v_victims
WHERE evicted AND now_ms >= :since AND now_ms < :until
      AND (:cluster = '' OR cluster = :cluster)
      AND (:namespace = '' OR victim_namespace = :namespace)
GROUP BY preemptor_priority, victim_priority
ORDER BY preemptor_priority DESC, victim_priority DESC
LIMIT :limit
