-- How often each rule decided: for eligibility per decision, for victims per decision that met it.
SELECT r.name AS rule_set, f.section, f.rule, f.verdict, count(*) AS decisions
FROM clusters c
JOIN decisions d ON d.cluster_id = c.id
CROSS JOIN decision_rules f -- behind the decisions, of which few may be asked for
JOIN rule_sets r ON r.id = d.rule_set_id
WHERE f.decision_id = d.id AND NOT d.hypothetical AND d.now_ms >= :since AND d.now_ms < :until
      AND (:cluster = '' OR c.name = :cluster)
GROUP BY r.name, f.section, f.rule, f.verdict
ORDER BY r.name, f.section, decisions DESC, f.rule
LIMIT :limit
