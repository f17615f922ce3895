-- Evictions and lost run time, by who preempts and which workload leaves; the most first.
WITH hits AS (
    -- `+` lets SQLite walk the pairs in the order of their index, instead of sorting by time.
    SELECT v.preemptor_namespace, v.namespace, v.owner, count(*) AS evictions,
           sum(v.run_seconds) AS run_seconds, max(v.now_ms) AS last_ms,
           CAST(NULL AS TEXT) AS last_at
    FROM clusters c
    CROSS JOIN victims v
    WHERE v.cluster_id = c.id AND v.evicted AND +v.now_ms >= :since AND +v.now_ms < :until
          AND NOT EXISTS (SELECT 1 FROM decision_outcomes x
                          WHERE x.decision_id = v.decision_id AND x.position = v.position)
          AND (:cluster = '' OR c.name = :cluster)
          AND (:namespace = '' OR v.preemptor_namespace = :namespace OR v.namespace = :namespace)
    GROUP BY c.id, v.preemptor_namespace, v.namespace, v.owner
    UNION ALL
    SELECT preemptor_namespace, victim_namespace, victim_owner, count(*), sum(run_seconds),
           CAST(NULL AS BIGINT), max(decided_at)
    FROM v_victims
    WHERE (session_id IS NOT NULL OR observation_id IS NOT NULL) AND evicted
          AND now_ms >= :since AND now_ms < :until
          AND (:cluster = '' OR cluster = :cluster)
          AND (:namespace = '' OR preemptor_namespace = :namespace
               OR victim_namespace = :namespace)
    GROUP BY preemptor_namespace, victim_namespace, victim_owner
),
worst AS (
    SELECT preemptor_namespace, namespace, owner, CAST(sum(evictions) AS BIGINT) AS evictions,
           CAST(sum(run_seconds) AS BIGINT) AS run_seconds, max(last_ms) AS last_ms,
           max(last_at) AS last_at
    FROM hits
    GROUP BY preemptor_namespace, namespace, owner
    ORDER BY evictions DESC, preemptor_namespace, namespace, owner
    LIMIT :limit
),
named AS (
    SELECT w.preemptor_namespace, w.namespace, w.owner, w.evictions, w.run_seconds, w.last_at,
           (SELECT decided_at FROM v_preemptions
            WHERE now_ms = w.last_ms AND session_id IS NULL AND observation_id IS NULL LIMIT 1) AS last_decided_at
    FROM worst w
)
SELECT preemptor_namespace, namespace AS victim_namespace, owner AS victim_owner, evictions,
       run_seconds AS run_seconds_lost,
       CASE WHEN last_at > last_decided_at THEN last_at
            ELSE coalesce(last_decided_at, last_at) END AS last_at
FROM named
ORDER BY evictions DESC, preemptor_namespace, namespace, owner
