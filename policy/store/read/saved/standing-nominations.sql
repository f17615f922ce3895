-- Pods that wait on a node for their victims to leave, the oldest nomination first.
WITH waiting AS MATERIALIZED (
    -- A nomination stands as long as its pod has it, and each is the last one of its pod. Looked up
    -- pod by pod: Postgres takes them for many, and would join them with all that ever were made.
    SELECT c.name AS cluster, p.cluster_id, p.key AS pod,
           (SELECT max(k.made_revision) FROM nominations k
            WHERE k.cluster_id = p.cluster_id AND k.pod = p.key) AS made_revision
    FROM $clusters c
    CROSS JOIN pods p
    WHERE p.cluster_id = c.id AND p.valid_to IS NULL AND p.nominated_node <> ''
          -- Schedulers before 1.34 leave it in the status of a pod that is bound. By its length: the
          -- index of nodes is not the one to look in.
          AND length(p.node) = 0 AND p.phase NOT IN ('Succeeded', 'Failed')
),
dated AS MATERIALIZED (
    SELECT s.cluster, s.pod, s.made_revision,
           (SELECT n.made_ms FROM nominations n
            WHERE n.cluster_id = s.cluster_id AND n.made_revision = s.made_revision
                  AND n.pod = s.pod) AS made_ms
    FROM waiting s
),
oldest AS (
    SELECT cluster, pod, made_revision, made_ms
    FROM dated
    WHERE made_ms >= :since AND made_ms < :until
    ORDER BY made_ms, cluster, pod
    LIMIT :limit
)
SELECT v.cluster, v.pod, v.priority, v.node, v.made_at, v.made_decision
FROM oldest
JOIN v_nominations v ON v.cluster = oldest.cluster AND v.pod = oldest.pod
     AND v.made_revision = oldest.made_revision
ORDER BY oldest.made_ms, v.cluster, v.pod
