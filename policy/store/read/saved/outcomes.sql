-- How decisions ended, by rule set.
SELECT r.name AS rule_set, d.outcome, CAST(sum(d.decisions) AS BIGINT) AS decisions
FROM (
    -- `+` lets SQLite walk the rule sets in the order of their index, instead of sorting by time.
    SELECT d.rule_set_id, d.decided_by, d.outcome, count(*) AS decisions
    FROM clusters c
    CROSS JOIN decisions d
    WHERE d.cluster_id = c.id AND NOT d.hypothetical
          AND +d.now_ms >= :since AND +d.now_ms < :until
          AND (:cluster = '' OR c.name = :cluster)
          AND (:namespace = '' OR d.preemptor_namespace = :namespace)
    GROUP BY c.id, d.rule_set_id, d.decided_by, d.outcome
) d
JOIN rule_sets r ON r.id = d.rule_set_id
GROUP BY r.name, d.outcome
ORDER BY rule_set, decisions DESC, d.outcome
LIMIT :limit
