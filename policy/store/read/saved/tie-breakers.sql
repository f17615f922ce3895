-- Which ranking criterion decided how many preemptions; '' where there was one candidate only.
WITH span AS MATERIALIZED ($span(decision_totals)),
counted AS (
    SELECT t.rule_set_id, t.decided_by, t.decisions
    FROM span s
    CROSS JOIN decision_totals t
    WHERE t.cluster_id = s.cluster_id AND t.day >= s.first_day AND t.day < s.behind_day
          AND t.preempted
    UNION ALL
    SELECT d.rule_set_id, d.decided_by, 1
    FROM span s
    CROSS JOIN decisions d
    WHERE d.cluster_id = s.cluster_id AND d.outcome = 'preempt' AND NOT d.hypothetical
          AND (d.origin <> 'extender' OR d.revision IS NOT NULL)
          AND NOT EXISTS (SELECT 1 FROM decision_outcomes x
                          WHERE x.decision_id = d.id AND x.position = -1)
          AND d.now_ms >= :since AND d.now_ms < $first_ms AND d.now_ms < :until
    UNION ALL
    SELECT d.rule_set_id, d.decided_by, 1
    FROM span s
    CROSS JOIN decisions d
    WHERE d.cluster_id = s.cluster_id AND d.outcome = 'preempt' AND NOT d.hypothetical
          AND (d.origin <> 'extender' OR d.revision IS NOT NULL)
          AND NOT EXISTS (SELECT 1 FROM decision_outcomes x
                          WHERE x.decision_id = d.id AND x.position = -1)
          AND d.now_ms >= $behind_ms AND d.now_ms >= $first_ms AND d.now_ms < :until
)
SELECT r.name AS rule_set, c.criterion, CAST(sum(c.decisions) AS BIGINT) AS decisions
FROM (SELECT rule_set_id, decided_by AS criterion, sum(decisions) AS decisions
      FROM counted GROUP BY rule_set_id, decided_by) c
JOIN rule_sets r ON r.id = c.rule_set_id
GROUP BY r.name, c.criterion
ORDER BY decisions DESC, rule_set, c.criterion
LIMIT :limit
