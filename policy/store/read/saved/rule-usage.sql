-- How often each rule decided: for eligibility per decision, for victims per decision that met it.
WITH span AS MATERIALIZED ($span(rule_totals)),
counted AS (
    SELECT t.rule_set_id, t.section, t.rule, t.verdict, t.decisions
    FROM span s
    CROSS JOIN rule_totals t
    WHERE t.cluster_id = s.cluster_id AND t.day >= s.first_day AND t.day < s.behind_day
    UNION ALL
    SELECT f.rule_set_id, f.section, f.rule, f.verdict, 1
    FROM span s
    CROSS JOIN decisions d
    CROSS JOIN decision_rules f
    WHERE d.cluster_id = s.cluster_id AND f.decision_id = d.id AND NOT d.hypothetical
          AND d.now_ms >= :since AND d.now_ms < $first_ms AND d.now_ms < :until
    UNION ALL
    SELECT f.rule_set_id, f.section, f.rule, f.verdict, 1
    FROM span s
    CROSS JOIN decisions d
    CROSS JOIN decision_rules f
    WHERE d.cluster_id = s.cluster_id AND f.decision_id = d.id AND NOT d.hypothetical
          AND d.now_ms >= $behind_ms AND d.now_ms >= $first_ms AND d.now_ms < :until
)
SELECT r.name AS rule_set, u.section, u.rule, u.verdict,
       CAST(sum(u.decisions) AS BIGINT) AS decisions
FROM (SELECT rule_set_id, section, rule, verdict, sum(decisions) AS decisions
      FROM counted GROUP BY rule_set_id, section, rule, verdict) u
JOIN rule_sets r ON r.id = u.rule_set_id
GROUP BY r.name, u.section, u.rule, u.verdict
ORDER BY r.name, u.section, decisions DESC, u.rule, u.verdict
LIMIT :limit
