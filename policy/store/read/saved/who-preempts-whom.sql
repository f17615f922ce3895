-- Evictions and lost run time, by who preempts and which workload leaves; the most first.
SELECT preemptor_namespace, victim_namespace, victim_owner, count(*) AS evictions,
       CAST(sum(run_seconds) AS BIGINT) AS run_seconds_lost, max(decided_at) AS last_at
FROM v_victims
WHERE evicted AND now_ms >= :since AND now_ms < :until
      AND (:cluster = '' OR cluster = :cluster)
      AND (:namespace = '' OR preemptor_namespace = :namespace OR victim_namespace = :namespace)
GROUP BY preemptor_namespace, victim_namespace, victim_owner
ORDER BY evictions DESC, preemptor_namespace, victim_namespace, victim_owner
LIMIT :limit
