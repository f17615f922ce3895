-- Workloads that are hit again and again: evictions, from when to when, by how many preemptors.
SELECT victim_namespace, victim_owner, count(*) AS evictions,
       count(DISTINCT preemptor) AS preemptors,
       CAST(sum(run_seconds) AS BIGINT) AS run_seconds_lost,
       min(decided_at) AS first_at, max(decided_at) AS last_at
FROM v_victims
WHERE evicted AND now_ms >= :since AND now_ms < :until
      AND (:cluster = '' OR cluster = :cluster)
      AND (:namespace = '' OR victim_namespace = :namespace)
GROUP BY victim_namespace, victim_owner
ORDER BY evictions DESC, victim_namespace, victim_owner
LIMIT :limit
