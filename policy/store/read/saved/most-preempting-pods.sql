-- Pods that preempted most, and what that cost.
SELECT preemptor, preemptor_priority, count(*) AS preemptions,
       CAST(sum(victim_count) AS BIGINT) AS victims,
       CAST(sum(pdb_violations) AS BIGINT) AS pdb_violations
FROM v_preemptions
WHERE now_ms >= :since AND now_ms < :until
      AND (:cluster = '' OR cluster = :cluster)
      AND (:namespace = '' OR preemptor_namespace = :namespace)
GROUP BY preemptor, preemptor_priority
ORDER BY victims DESC, preemptor
LIMIT :limit
