-- Victims whose eviction violated a pod disruption budget, the newest first.
SELECT decision_id, decided_at, victim, victim_owner, victim_priority, node, preemptor,
       preemptor_priority, rule_set
FROM v_pdb_violations
WHERE now_ms >= :since AND now_ms < :until AND (:cluster = '' OR cluster = :cluster)
      AND (:namespace = '' OR victim_namespace = :namespace)
ORDER BY decision_id DESC, victim
LIMIT :limit
