-- Preemptions, victims and violated budgets per hour, the newest first.
SELECT cluster, hour_at, preemptions, victims, pdb_violations
FROM v_preemptions_hourly
WHERE hour_ms + 3600000 > :since AND hour_ms < :until AND cluster IN (SELECT k.name FROM $clusters k)
ORDER BY hour_ms DESC, cluster
LIMIT :limit
