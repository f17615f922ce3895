-- How often each rule decided: for eligibility per decision, for victims per decision that met it.
WITH used AS (
    -- All of a cluster's record is counted without looking at its decisions.
    SELECT f.rule_set_id, f.section, f.rule, f.verdict, count(*) AS decisions
    FROM clusters c
    CROSS JOIN decision_rules f
    WHERE (:cluster = '' OR c.name = :cluster)
          AND (SELECT min(d.now_ms) FROM decisions d WHERE d.cluster_id = c.id) >= :since
          AND (SELECT max(d.now_ms) FROM decisions d WHERE d.cluster_id = c.id) < :until
          AND f.cluster_id = c.id AND NOT f.hypothetical
    GROUP BY c.id, f.rule_set_id, f.section, f.rule, f.verdict
    UNION ALL
    SELECT f.rule_set_id, f.section, f.rule, f.verdict, count(*)
    FROM clusters c
    CROSS JOIN decisions d
    CROSS JOIN decision_rules f -- behind the decisions, of which few may be asked for
    WHERE (:cluster = '' OR c.name = :cluster)
          AND NOT (
              (SELECT min(d.now_ms) FROM decisions d WHERE d.cluster_id = c.id) >= :since
              AND (SELECT max(d.now_ms) FROM decisions d WHERE d.cluster_id = c.id) < :until
          )
          AND d.cluster_id = c.id AND f.decision_id = d.id
          AND NOT d.hypothetical AND d.now_ms >= :since AND d.now_ms < :until
    GROUP BY f.rule_set_id, f.section, f.rule, f.verdict
)
SELECT r.name AS rule_set, u.section, u.rule, u.verdict,
       CAST(sum(u.decisions) AS BIGINT) AS decisions
FROM used u
JOIN rule_sets r ON r.id = u.rule_set_id
GROUP BY r.name, u.section, u.rule, u.verdict
ORDER BY r.name, u.section, decisions DESC, u.rule
LIMIT :limit
