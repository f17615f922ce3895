-- How decisions ended, by rule set.
WITH span AS MATERIALIZED ($span(decision_totals)),
counted AS (
    SELECT t.rule_set_id, t.outcome, t.decisions
    FROM span s
    CROSS JOIN decision_totals t
    WHERE t.cluster_id = s.cluster_id AND t.day >= s.first_day AND t.day < s.behind_day
          AND (:namespace = '' OR t.preemptor_namespace = :namespace)
    UNION ALL
    SELECT d.rule_set_id, d.outcome, 1
    FROM span s
    CROSS JOIN decisions d
    WHERE d.cluster_id = s.cluster_id AND NOT d.hypothetical
          AND (:namespace = '' OR d.preemptor_namespace = :namespace)
          AND d.now_ms >= :since AND d.now_ms < $first_ms AND d.now_ms < :until
    UNION ALL
    SELECT d.rule_set_id, d.outcome, 1
    FROM span s
    CROSS JOIN decisions d
    WHERE d.cluster_id = s.cluster_id AND NOT d.hypothetical
          AND (:namespace = '' OR d.preemptor_namespace = :namespace)
          AND d.now_ms >= $behind_ms AND d.now_ms >= $first_ms AND d.now_ms < :until
)
SELECT r.name AS rule_set, c.outcome, CAST(sum(c.decisions) AS BIGINT) AS decisions
FROM (SELECT rule_set_id, outcome, sum(decisions) AS decisions
      FROM counted GROUP BY rule_set_id, outcome) c
JOIN rule_sets r ON r.id = c.rule_set_id
GROUP BY r.name, c.outcome
ORDER BY rule_set, decisions DESC, c.outcome
LIMIT :limit
