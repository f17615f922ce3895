-- What each namespace lost by preemption: pods, run time, violated budgets.
SELECT v.namespace, count(*) AS evictions, count(DISTINCT v.pod) AS pods,
       CAST(sum(v.run_seconds) AS BIGINT) AS run_seconds_lost,
       CAST(sum(CASE WHEN v.pdb_violating THEN 1 ELSE 0 END) AS BIGINT) AS pdb_violations
FROM clusters c
JOIN victims v ON v.cluster_id = c.id
WHERE v.evicted AND v.now_ms >= :since AND v.now_ms < :until
      AND (:cluster = '' OR c.name = :cluster)
GROUP BY v.namespace
ORDER BY evictions DESC, v.namespace
LIMIT :limit
