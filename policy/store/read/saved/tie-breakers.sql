-- Which ranking criterion decided how many preemptions; '' where there was one candidate only.
SELECT r.name AS rule_set, d.decided_by AS criterion, count(*) AS decisions
FROM clusters c
JOIN decisions d ON d.cluster_id = c.id
JOIN rule_sets r ON r.id = d.rule_set_id
WHERE d.outcome = 'preempt' AND NOT d.hypothetical
      AND d.now_ms >= :since AND d.now_ms < :until
      AND (:cluster = '' OR c.name = :cluster)
GROUP BY r.name, d.decided_by
ORDER BY decisions DESC, r.name, d.decided_by
LIMIT :limit
