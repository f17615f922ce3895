-- Victims that violate a pod disruption budget, also those leaving already, with the budget, the newest first.
SELECT v.decision_id, v.decided_at, v.victim, v.victim_owner, v.victim_priority, v.node,
       v.preemptor, v.preemptor_priority, v.rule_set, v.budget, v.disruptions_allowed,
       v.allowed_before, v.allowed_after
FROM (
    SELECT f.decision_id, f.pod
    FROM victims f
    CROSS JOIN decisions d
    WHERE d.id = f.decision_id
          AND f.pdb_violating AND d.outcome = 'preempt' AND NOT d.hypothetical
          AND NOT EXISTS (SELECT 1 FROM decision_outcomes x
                          WHERE x.decision_id = f.decision_id AND x.position = f.position)
          AND (d.origin <> 'extender' OR d.revision IS NOT NULL)
          -- `+` lets SQLite walk the violations from the newest one back, between the first and the
          -- last id that decisions of the time may have.
          AND +f.now_ms >= :since AND +f.now_ms < :until
          AND f.decision_id >= (SELECT min(s.thousand) * 1000 FROM decision_spans s
                                WHERE s.latest_ms >= :since)
          AND f.decision_id < (SELECT max(s.thousand) * 1000 + 1000 FROM decision_spans s
                               WHERE s.earliest_ms < :until)
          AND +f.cluster_id IN (SELECT k.id FROM $clusters k)
          AND (:namespace = '' OR f.namespace = :namespace)
    ORDER BY f.decision_id DESC, f.pod
    LIMIT :limit
) newest
CROSS JOIN v_pdb_violations v -- else SQLite walks all violations, in the order wanted
WHERE v.decision_id = newest.decision_id AND v.victim = newest.pod
ORDER BY v.decision_id DESC, v.victim, v.budget
LIMIT :limit
