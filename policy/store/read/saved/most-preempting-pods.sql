-- Pods that preempted most, and what that cost.
WITH made AS (
    -- `+` lets SQLite walk the pods in the order of their index, instead of sorting by time.
    SELECT d.preemptor, d.preemptor_priority, count(*) AS preemptions,
           sum(d.victim_count) AS victims, sum(d.pdb_violations) AS pdb_violations
    FROM clusters c
    CROSS JOIN decisions d
    WHERE d.cluster_id = c.id AND d.outcome = 'preempt' AND NOT d.hypothetical
          AND NOT EXISTS (SELECT 1 FROM decision_outcomes x
                          WHERE x.decision_id = d.id AND x.position = -1)
          AND (d.origin <> 'extender' OR d.revision IS NOT NULL)
          AND +d.now_ms >= :since AND +d.now_ms < :until
          AND (:cluster = '' OR c.name = :cluster)
          AND (:namespace = '' OR d.preemptor_namespace = :namespace)
    GROUP BY c.id, d.preemptor, d.preemptor_priority
    UNION ALL
    SELECT preemptor, preemptor_priority, count(*), sum(victim_count), sum(pdb_violations)
    FROM v_preemptions
    WHERE (session_id IS NOT NULL OR observation_id IS NOT NULL) 
          AND now_ms >= :since AND now_ms < :until
          AND (:cluster = '' OR cluster = :cluster)
          AND (:namespace = '' OR preemptor_namespace = :namespace)
    GROUP BY preemptor, preemptor_priority
)
SELECT preemptor, preemptor_priority, CAST(sum(preemptions) AS BIGINT) AS preemptions,
       CAST(sum(victims) AS BIGINT) AS victims,
       CAST(sum(pdb_violations) AS BIGINT) AS pdb_violations
FROM made
GROUP BY preemptor, preemptor_priority
ORDER BY victims DESC, preemptor
LIMIT :limit
