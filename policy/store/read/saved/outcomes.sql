-- How decisions ended, by rule set.
SELECT r.name AS rule_set, d.outcome, count(*) AS decisions
FROM clusters c
JOIN decisions d ON d.cluster_id = c.id
JOIN rule_sets r ON r.id = d.rule_set_id
WHERE NOT d.hypothetical AND d.now_ms >= :since AND d.now_ms < :until
      AND (:cluster = '' OR c.name = :cluster)
      AND (:namespace = '' OR d.preemptor_namespace = :namespace)
GROUP BY r.name, d.outcome
ORDER BY r.name, decisions DESC, d.outcome
LIMIT :limit
