CREATE OR REPLACE VIEW schedule_execution_history AS
SELECT
    history.*,
    CAST(ended - started AS DOUBLE PRECISION) / 1000000 AS duration_seconds,
    to_char(to_timestamp(nominal / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS') || '.' || lpad(CAST(nominal % 1000000 AS TEXT), 6, '0') || 'Z' AS nominal_at,
    to_char(to_timestamp(due / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS') || '.' || lpad(CAST(due % 1000000 AS TEXT), 6, '0') || 'Z' AS due_at,
    to_char(to_timestamp(started / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS') || '.' || lpad(CAST(started % 1000000 AS TEXT), 6, '0') || 'Z' AS started_at,
    to_char(to_timestamp(ended / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS') || '.' || lpad(CAST(ended % 1000000 AS TEXT), 6, '0') || 'Z' AS ended_at,
    to_char(to_timestamp(occurrence_ended / 1000000) AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS') || '.' || lpad(CAST(occurrence_ended % 1000000 AS TEXT), 6, '0') || 'Z' AS occurrence_ended_at
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
