-- Which filter kept pods from how many nodes, over all decisions that found no node.
WITH span AS MATERIALIZED ($span(filter_totals)),
counted AS (
    SELECT t.filter, t.phase, t.decisions, t.nodes
    FROM span s
    CROSS JOIN filter_totals t
    WHERE t.cluster_id = s.cluster_id AND t.day >= s.first_day AND t.day < s.behind_day
          AND (:namespace = '' OR t.preemptor_namespace = :namespace)
    UNION ALL
    SELECT f.filter, f.phase, count(DISTINCT f.decision_id), sum(f.node_count)
    FROM span s
    CROSS JOIN decisions d
    CROSS JOIN decision_filters f
    WHERE d.cluster_id = s.cluster_id AND f.decision_id = d.id
          AND d.node IS NULL AND f.code <> 0 AND NOT d.hypothetical
          AND (:namespace = '' OR d.preemptor_namespace = :namespace)
          AND d.now_ms >= :since AND d.now_ms < $first_ms AND d.now_ms < :until
    GROUP BY f.filter, f.phase
    UNION ALL
    SELECT f.filter, f.phase, count(DISTINCT f.decision_id), sum(f.node_count)
    FROM span s
    CROSS JOIN decisions d
    CROSS JOIN decision_filters f
    WHERE d.cluster_id = s.cluster_id AND f.decision_id = d.id
          AND d.node IS NULL AND f.code <> 0 AND NOT d.hypothetical
          AND (:namespace = '' OR d.preemptor_namespace = :namespace)
          AND d.now_ms >= $behind_ms AND d.now_ms >= $first_ms AND d.now_ms < :until
    GROUP BY f.filter, f.phase
)
SELECT filter, phase, CAST(sum(decisions) AS BIGINT) AS decisions,
       CAST(sum(nodes) AS BIGINT) AS nodes
FROM counted
GROUP BY filter, phase
ORDER BY nodes DESC, filter, phase
LIMIT :limit
