-- Which ranking criterion decided how many preemptions; '' where there was one candidate only.
SELECT r.name AS rule_set, d.criterion, CAST(sum(d.decisions) AS BIGINT) AS decisions
FROM (
    -- `+` lets SQLite walk the criteria in the order of their index, instead of sorting by time.
    SELECT d.rule_set_id, d.decided_by AS criterion, count(*) AS decisions
    FROM clusters c
    CROSS JOIN decisions d
    WHERE d.cluster_id = c.id AND d.outcome = 'preempt' AND NOT d.hypothetical
          AND NOT EXISTS (SELECT 1 FROM decision_outcomes x
                          WHERE x.decision_id = d.id AND x.position = -1)
          AND (d.origin <> 'extender' OR d.revision IS NOT NULL)
          AND +d.now_ms >= :since AND +d.now_ms < :until
          AND (:cluster = '' OR c.name = :cluster)
    GROUP BY c.id, d.rule_set_id, d.decided_by
) d
JOIN rule_sets r ON r.id = d.rule_set_id
GROUP BY r.name, d.criterion
ORDER BY decisions DESC, rule_set, d.criterion
LIMIT :limit
