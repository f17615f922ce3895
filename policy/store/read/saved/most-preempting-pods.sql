-- Pods that preempted most, and what that cost.
WITH span AS MATERIALIZED ($span(hour_totals)),
made AS (
    SELECT t.preemptor, nullif(t.preemptor_priority, $unknown) AS preemptor_priority,
           t.decisions AS preemptions, t.victims, t.pdb_violations
    FROM span s
    CROSS JOIN preemptor_totals t
    WHERE s.first_day = -1 AND t.cluster_id = s.cluster_id AND t.preempted
    UNION ALL
    SELECT d.preemptor, d.preemptor_priority, 1, d.victim_count, d.pdb_violations
    FROM span s
    CROSS JOIN decisions d
    WHERE s.first_day <> -1 AND d.cluster_id = s.cluster_id
          AND d.now_ms >= :since AND d.now_ms < :until
          AND d.outcome = 'preempt' AND NOT d.hypothetical
          AND (d.origin <> 'extender' OR d.revision IS NOT NULL)
          AND NOT EXISTS (SELECT 1 FROM decision_outcomes x
                          WHERE x.decision_id = d.id AND x.position = -1)
    UNION ALL
    SELECT t.for_task, p.priority, 1, count(*), 0
    FROM span s
    CROSS JOIN sessions b
    CROSS JOIN session_steps t
    CROSS JOIN pods p
    WHERE s.first_day <> -1 AND b.cluster_id = s.cluster_id
          AND b.now_ms >= :since AND b.now_ms < :until
          AND t.session_id = b.id AND t.operation = 'evict' AND t.reason = ''
          AND NOT EXISTS (SELECT 1 FROM session_outcomes x
                          WHERE x.session_id = t.session_id AND x.position = t.position)
          AND p.cluster_id = b.cluster_id AND p.key = t.for_task
          -- The last version of then alone: a pod of a controller may have had hundreds.
          AND p.valid_from = (SELECT max(v.valid_from) FROM pods v
                              WHERE v.cluster_id = b.cluster_id AND v.key = t.for_task
                                    AND v.valid_from <= b.base_revision)
          AND (p.valid_to IS NULL OR p.valid_to > b.base_revision)
    GROUP BY b.id, t.for_task, p.priority
    UNION ALL
    SELECT o.preemptor, o.preemptor_priority, 1, o.victim_count, 0
    FROM span s
    CROSS JOIN observations o
    WHERE s.first_day <> -1 AND o.cluster_id = s.cluster_id
          AND o.now_ms >= :since AND o.now_ms < :until AND o.confidence <> 'possible'
          AND o.verdict <> 'answered'
          AND NOT EXISTS (SELECT 1 FROM observations x WHERE x.replaces = o.id)
)
SELECT preemptor, preemptor_priority, CAST(sum(preemptions) AS BIGINT) AS preemptions,
       CAST(sum(victims) AS BIGINT) AS victims,
       CAST(sum(pdb_violations) AS BIGINT) AS pdb_violations
FROM made
WHERE :namespace = '' OR (preemptor >= CAST(:namespace AS TEXT) || '/'
                          AND preemptor < CAST(:namespace AS TEXT) || '0')
GROUP BY preemptor, preemptor_priority
ORDER BY victims DESC, preemptor, preemptor_priority DESC NULLS LAST
LIMIT :limit
