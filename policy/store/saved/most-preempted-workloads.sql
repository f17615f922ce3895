-- Workloads that are hit again and again: evictions, from when to when, by how many preemptors.
SELECT g.namespace, g.owner, g.evictions, g.preemptors, g.run_seconds_lost,
       a.decided_at AS first_at, b.decided_at AS last_at
FROM (
    SELECT v.namespace, v.owner, count(*) AS evictions,
           count(DISTINCT d.preemptor) AS preemptors,
           CAST(sum(v.run_seconds) AS BIGINT) AS run_seconds_lost,
           min(v.decision_id) AS first_decision, max(v.decision_id) AS last_decision
    FROM clusters c
    JOIN victims v ON v.cluster_id = c.id
    JOIN decisions d ON d.id = v.decision_id
    WHERE v.evicted AND v.now_ms >= :since AND v.now_ms < :until
          AND (:cluster = '' OR c.name = :cluster)
          AND (:namespace = '' OR v.namespace = :namespace)
    GROUP BY v.namespace, v.owner
    ORDER BY evictions DESC, v.namespace, v.owner
    LIMIT :limit
) g
JOIN v_preemptions a ON a.decision_id = g.first_decision
JOIN v_preemptions b ON b.decision_id = g.last_decision
ORDER BY g.evictions DESC, g.namespace, g.owner
