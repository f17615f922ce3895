-- Pods that preempted most, and what that cost.
SELECT d.preemptor, d.preemptor_priority, count(*) AS preemptions,
       CAST(sum(d.victim_count) AS BIGINT) AS victims,
       CAST(sum(d.pdb_violations) AS BIGINT) AS pdb_violations
FROM clusters c
JOIN decisions d ON d.cluster_id = c.id
WHERE d.outcome = 'preempt' AND NOT d.hypothetical
      AND d.now_ms >= :since AND d.now_ms < :until
      AND (:cluster = '' OR c.name = :cluster)
      AND (:namespace = '' OR d.preemptor_namespace = :namespace)
GROUP BY d.preemptor, d.preemptor_priority
ORDER BY victims DESC, d.preemptor
LIMIT :limit
