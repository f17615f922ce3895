-- Pods for which no preemption would have helped, with the last reason; the most tries first.
WITH span AS MATERIALIZED ($span(decision_totals)),
tries AS (
    SELECT t.preemptor, t.decisions
    FROM span s
    CROSS JOIN preemptor_totals t
    WHERE s.first_day = -1 AND t.cluster_id = s.cluster_id AND t.outcome = 'no-candidate'
    UNION ALL
    SELECT d.preemptor, 1
    FROM span s
    CROSS JOIN decisions d
    WHERE s.first_day <> -1 AND d.cluster_id = s.cluster_id
          AND d.now_ms >= :since AND d.now_ms < :until
          AND d.outcome = 'no-candidate' AND NOT d.hypothetical
),
most AS (
    SELECT preemptor, CAST(sum(decisions) AS BIGINT) AS tries
    FROM tries
    WHERE :namespace = '' OR (preemptor >= CAST(:namespace AS TEXT) || '/'
                              AND preemptor < CAST(:namespace AS TEXT) || '0')
    GROUP BY preemptor
    ORDER BY tries DESC, preemptor
    LIMIT :limit
)
SELECT m.preemptor, d.preemptor_priority, m.tries, d.id AS last_decision, d.message
FROM most m
JOIN decisions d ON d.id = (
    SELECT x.id
    FROM decisions x
    WHERE x.preemptor = m.preemptor AND x.cluster_id IN (SELECT s.cluster_id FROM span s)
          AND x.outcome = 'no-candidate' AND NOT x.hypothetical
          AND x.now_ms >= :since AND x.now_ms < :until
    ORDER BY x.id DESC
    LIMIT 1
)
ORDER BY m.tries DESC, m.preemptor
