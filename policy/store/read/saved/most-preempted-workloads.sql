-- Workloads that are hit again and again: evictions, from when to when, by how many preemptors.
WITH hits AS (
    -- `+` lets SQLite walk the workloads in the order of their index, instead of sorting by time.
    SELECT v.namespace, v.owner, count(*) AS evictions, sum(v.run_seconds) AS run_seconds,
           min(v.now_ms) AS first_ms, max(v.now_ms) AS last_ms,
           CAST(NULL AS TEXT) AS first_at, CAST(NULL AS TEXT) AS last_at
    FROM clusters c
    CROSS JOIN victims v
    WHERE v.cluster_id = c.id AND v.evicted AND +v.now_ms >= :since AND +v.now_ms < :until
          AND NOT EXISTS (SELECT 1 FROM decision_outcomes x
                          WHERE x.decision_id = v.decision_id AND x.position = v.position)
          AND (:cluster = '' OR c.name = :cluster)
          AND (:namespace = '' OR v.namespace = :namespace)
    GROUP BY c.id, v.namespace, v.owner
    UNION ALL
    SELECT victim_namespace, victim_owner, count(*), sum(run_seconds),
           CAST(NULL AS BIGINT), CAST(NULL AS BIGINT), min(decided_at), max(decided_at)
    FROM v_victims
    WHERE (session_id IS NOT NULL OR observation_id IS NOT NULL) AND evicted
          AND now_ms >= :since AND now_ms < :until
          AND (:cluster = '' OR cluster = :cluster)
          AND (:namespace = '' OR victim_namespace = :namespace)
    GROUP BY victim_namespace, victim_owner
),
worst AS (
    SELECT namespace, owner, CAST(sum(evictions) AS BIGINT) AS evictions,
           CAST(sum(run_seconds) AS BIGINT) AS run_seconds,
           min(first_ms) AS first_ms, max(last_ms) AS last_ms,
           min(first_at) AS first_at, max(last_at) AS last_at
    FROM hits
    GROUP BY namespace, owner
    ORDER BY evictions DESC, namespace, owner
    LIMIT :limit
),
pairs AS (
    SELECT w.namespace, w.owner, d.preemptor
    FROM worst w
    CROSS JOIN clusters c
    CROSS JOIN victims v
    CROSS JOIN decisions d
    WHERE v.cluster_id = c.id AND v.namespace = w.namespace AND v.owner = w.owner
          AND v.evicted AND v.now_ms >= :since AND v.now_ms < :until
          AND (:cluster = '' OR c.name = :cluster)
          AND d.id = v.decision_id
          AND NOT EXISTS (SELECT 1 FROM decision_outcomes x
                          WHERE x.decision_id = v.decision_id AND x.position = v.position)
    UNION
    SELECT victim_namespace, victim_owner, preemptor
    FROM v_victims
    WHERE (session_id IS NOT NULL OR observation_id IS NOT NULL) AND evicted
          AND now_ms >= :since AND now_ms < :until
          AND (:cluster = '' OR cluster = :cluster)
          AND (:namespace = '' OR victim_namespace = :namespace)
),
preemptors AS (
    SELECT namespace, owner, count(*) AS preemptors FROM pairs GROUP BY namespace, owner
),
named AS (
    SELECT w.namespace, w.owner, w.evictions, w.run_seconds, w.first_at, w.last_at,
           (SELECT decided_at FROM v_preemptions
            WHERE now_ms = w.first_ms AND session_id IS NULL AND observation_id IS NULL LIMIT 1) AS first_decided_at,
           (SELECT decided_at FROM v_preemptions
            WHERE now_ms = w.last_ms AND session_id IS NULL AND observation_id IS NULL LIMIT 1) AS last_decided_at
    FROM worst w
)
SELECT n.namespace AS victim_namespace, n.owner AS victim_owner, n.evictions, p.preemptors,
       n.run_seconds AS run_seconds_lost,
       CASE WHEN n.first_at < n.first_decided_at THEN n.first_at
            ELSE coalesce(n.first_decided_at, n.first_at) END AS first_at,
       CASE WHEN n.last_at > n.last_decided_at THEN n.last_at
            ELSE coalesce(n.last_decided_at, n.last_at) END AS last_at
FROM named n
JOIN preemptors p ON p.namespace = n.namespace AND p.owner = n.owner
ORDER BY n.evictions DESC, n.namespace, n.owner
