DROP VIEW schedule_execution_history;
CREATE VIEW schedule_execution_history AS
SELECT
    history.*,
    CAST(ended - started AS DOUBLE PRECISION) / 1000000 AS duration_seconds,
    strftime('%Y-%m-%dT%H:%M:%S', nominal / 1000000, 'unixepoch') || printf('.%06dZ', nominal % 1000000) AS nominal_at,
    strftime('%Y-%m-%dT%H:%M:%S', due / 1000000, 'unixepoch') || printf('.%06dZ', due % 1000000) AS due_at,
    strftime('%Y-%m-%dT%H:%M:%S', started / 1000000, 'unixepoch') || printf('.%06dZ', started % 1000000) AS started_at,
    strftime('%Y-%m-%dT%H:%M:%S', ended / 1000000, 'unixepoch') || printf('.%06dZ', ended % 1000000) AS ended_at,
    strftime('%Y-%m-%dT%H:%M:%S', occurrence_ended / 1000000, 'unixepoch') || printf('.%06dZ', occurrence_ended % 1000000) AS occurrence_ended_at
FROM (
SELECT
    schedules.schedule_id,
    schedules.name AS schedule_name,
    schedules.tenant,
    schedules.username,
    occurrences.id AS occurrence_id,
    occurrences.origin,
    occurrences.phase,
    occurrences.reason,
    occurrences.missed_count,
    occurrences.nominal,
    occurrences.due,
    occurrences.ended AS occurrence_ended,
    occurrences.id || '-' || CAST(runs.fence AS TEXT) AS run_id,
    runs.attempt,
    runs.node,
    runs.started,
    runs.ended,
    runs.outcome,
    runs.error,
    runs.tokens,
    runs.cost_usd
FROM schedules
JOIN occurrences ON occurrences.schedule = schedules.key
LEFT JOIN runs ON runs.occurrence = occurrences.key
WHERE occurrences.phase <> 'dispatching' OR runs.occurrence IS NOT NULL
UNION ALL
SELECT
    schedules.schedule_id,
    schedules.name AS schedule_name,
    schedules.tenant,
    schedules.username,
    occurrences.id AS occurrence_id,
    occurrences.origin,
    occurrences.phase,
    occurrences.reason,
    occurrences.missed_count,
    occurrences.nominal,
    occurrences.due,
    occurrences.ended AS occurrence_ended,
    occurrences.id || '-' || CAST(occurrences.fence AS TEXT),
    occurrences.attempt,
    occurrences.node,
    CASE WHEN occurrences.started < occurrences.due THEN occurrences.due ELSE occurrences.started END,
    NULL,
    NULL,
    NULL,
    NULL,
    NULL
FROM schedules
JOIN occurrences ON occurrences.schedule = schedules.key
WHERE occurrences.phase = 'dispatching' AND occurrences.ended IS NULL AND NOT EXISTS (
    SELECT 1 FROM runs WHERE runs.occurrence = occurrences.key AND runs.fence = occurrences.fence
)
) AS history;
