-- Pods that wait on a node for their victims to leave, the oldest nomination first.
SELECT v.cluster, v.pod, v.priority, v.node, v.made_at, v.made_decision
FROM (
    SELECT c.name AS cluster, n.pod, n.made_revision, n.made_ms
    FROM clusters c
    CROSS JOIN pods p -- a nomination stands as long as its pod has it
    CROSS JOIN nominations k -- out of the index by pod alone, which holds the key
    CROSS JOIN nominations n
    WHERE p.cluster_id = c.id AND p.valid_to IS NULL AND p.nominated_node <> ''
          AND k.cluster_id = p.cluster_id AND k.pod = p.key
          AND NOT EXISTS (SELECT 1 FROM nomination_ends e
                          WHERE e.cluster_id = k.cluster_id
                                AND e.made_revision = k.made_revision AND e.pod = k.pod)
          AND n.cluster_id = k.cluster_id AND n.made_revision = k.made_revision AND n.pod = k.pod
          AND n.made_ms >= :since AND n.made_ms < :until
          AND (:cluster = '' OR c.name = :cluster)
    ORDER BY n.made_ms, c.name, n.pod
    LIMIT :limit
) oldest
JOIN v_nominations v ON v.cluster = oldest.cluster AND v.pod = oldest.pod
     AND v.made_revision = oldest.made_revision
ORDER BY oldest.made_ms, v.cluster, v.pod
