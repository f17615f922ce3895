-- What each namespace lost by preemption: pods, run time, violated budgets.
SELECT victim_namespace, count(*) AS evictions, count(DISTINCT victim) AS pods,
       CAST(sum(run_seconds) AS BIGINT) AS run_seconds_lost,
       CAST(sum(CASE WHEN pdb_violating THEN 1 ELSE 0 END) AS BIGINT) AS pdb_violations
FROM v_victims
WHERE evicted AND now_ms >= :since AND now_ms < :until
      AND (:cluster = '' OR cluster = :cluster)
GROUP BY victim_namespace
ORDER BY evictions DESC, victim_namespace
LIMIT :limit
