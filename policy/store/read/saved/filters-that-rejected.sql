-- Which filter kept pods from how many nodes, over all decisions that found no node.
SELECT f.filter, f.phase, count(DISTINCT f.decision_id) AS decisions,
       CAST(sum(f.node_count) AS BIGINT) AS nodes
FROM clusters c
JOIN decisions d ON d.cluster_id = c.id
JOIN decision_filters f ON f.decision_id = d.id
WHERE d.node IS NULL AND f.code <> 0 AND NOT d.hypothetical
      AND d.now_ms >= :since AND d.now_ms < :until
      AND (:cluster = '' OR c.name = :cluster)
      AND (:namespace = '' OR d.preemptor_namespace = :namespace)
GROUP BY f.filter, f.phase
ORDER BY nodes DESC, f.filter, f.phase
LIMIT :limit
