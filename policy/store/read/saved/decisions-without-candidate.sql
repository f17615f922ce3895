-- Pods for which no preemption would have helped, with the last reason; the most tries first.
SELECT g.preemptor, d.preemptor_priority, g.tries, g.last_decision, d.message
FROM (
    SELECT d.preemptor, count(*) AS tries, max(d.id) AS last_decision
    FROM clusters c
    JOIN decisions d ON d.cluster_id = c.id
    WHERE d.outcome = 'no-candidate' AND NOT d.hypothetical
          AND d.now_ms >= :since AND d.now_ms < :until
          AND (:cluster = '' OR c.name = :cluster)
          AND (:namespace = '' OR d.preemptor_namespace = :namespace)
    GROUP BY d.preemptor
    ORDER BY tries DESC, d.preemptor
    LIMIT :limit
) g
JOIN decisions d ON d.id = g.last_decision
ORDER BY g.tries DESC, g.preemptor
