-- Preemptions, victims and violated budgets per hour, the newest first.
SELECT cluster, hour_at, CAST(sum(preemptions) AS BIGINT) AS preemptions,
       CAST(sum(victims) AS BIGINT) AS victims,
       CAST(sum(pdb_violations) AS BIGINT) AS pdb_violations
FROM v_preemptions_hourly -- which has a row for each origin
WHERE hour_ms + 3600000 > :since AND hour_ms < :until AND cluster IN (SELECT k.name FROM $clusters k)
GROUP BY cluster, hour_ms, hour_at
ORDER BY hour_ms DESC, cluster
LIMIT :limit
