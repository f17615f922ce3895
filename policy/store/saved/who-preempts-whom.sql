-- Evictions and lost run time, by who preempts and which workload leaves; the most first.
SELECT g.preemptor_namespace, g.victim_namespace, g.victim_owner, g.evictions,
       g.run_seconds_lost, p.decided_at AS last_at
FROM (
    SELECT v.preemptor_namespace, v.namespace AS victim_namespace, v.owner AS victim_owner,
           count(*) AS evictions, CAST(sum(v.run_seconds) AS BIGINT) AS run_seconds_lost,
           max(v.decision_id) AS last_decision
    FROM clusters c
    JOIN victims v ON v.cluster_id = c.id
    WHERE v.evicted AND v.now_ms >= :since AND v.now_ms < :until
          AND (:cluster = '' OR c.name = :cluster)
          AND (:namespace = '' OR v.preemptor_namespace = :namespace OR v.namespace = :namespace)
    GROUP BY v.preemptor_namespace, v.namespace, v.owner
    ORDER BY evictions DESC, v.preemptor_namespace, v.namespace, v.owner
    LIMIT :limit
) g
JOIN v_preemptions p ON p.decision_id = g.last_decision
ORDER BY g.evictions DESC, g.preemptor_namespace, g.victim_namespace, g.victim_owner
