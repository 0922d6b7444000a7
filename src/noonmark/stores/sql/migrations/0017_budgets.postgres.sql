ALTER TABLE runs ADD COLUMN cost BIGINT;
ALTER TABLE runs ADD COLUMN usage TEXT COLLATE "C";
UPDATE runs SET cost = CAST(round(cost_usd * 1000000000) AS BIGINT) WHERE cost_usd >= 0 AND cost_usd < 1000000000;
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
    coalesce(CAST(runs.cost AS DOUBLE PRECISION) / 1000000000, runs.cost_usd) AS cost_usd
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
CREATE TABLE budgets (
    tenant TEXT COLLATE "C" NOT NULL,
    scope TEXT COLLATE "C" NOT NULL,
    scope_id TEXT COLLATE "C" NOT NULL,
    period TEXT COLLATE "C" NOT NULL,
    max_cost BIGINT,
    max_tokens BIGINT,
    is_hard SMALLINT DEFAULT 0 NOT NULL,
    warning_threshold DOUBLE PRECISION,
    require_approval SMALLINT DEFAULT 0 NOT NULL,
    when_exhausted TEXT COLLATE "C" NOT NULL,
    updated BIGINT NOT NULL,
    PRIMARY KEY (tenant, scope, scope_id, period)
);
CREATE TABLE budget_counters (
    tenant TEXT COLLATE "C" NOT NULL,
    scope TEXT COLLATE "C" NOT NULL,
    scope_id TEXT COLLATE "C" NOT NULL,
    period TEXT COLLATE "C" NOT NULL,
    period_start BIGINT NOT NULL,
    settled_tokens BIGINT DEFAULT 0 NOT NULL,
    settled_cost BIGINT DEFAULT 0 NOT NULL,
    reserved_tokens BIGINT DEFAULT 0 NOT NULL,
    reserved_cost BIGINT DEFAULT 0 NOT NULL,
    is_warned SMALLINT DEFAULT 0 NOT NULL,
    PRIMARY KEY (tenant, scope, scope_id, period, period_start)
);
CREATE INDEX budget_counters_by_age ON budget_counters (period_start);
CREATE TABLE model_calls (
    tenant TEXT COLLATE "C" NOT NULL,
    call_id TEXT COLLATE "C" NOT NULL,
    username TEXT COLLATE "C" NOT NULL,
    schedule_id TEXT COLLATE "C",
    session_id TEXT COLLATE "C",
    occurrence_id TEXT COLLATE "C",
    called BIGINT NOT NULL,
    is_settled SMALLINT DEFAULT 0 NOT NULL,
    is_made SMALLINT DEFAULT 0 NOT NULL,
    tokens BIGINT DEFAULT 0 NOT NULL,
    cost BIGINT,
    model TEXT COLLATE "C",
    provider TEXT COLLATE "C",
    input_tokens BIGINT DEFAULT 0 NOT NULL,
    output_tokens BIGINT DEFAULT 0 NOT NULL,
    cache_read_tokens BIGINT DEFAULT 0 NOT NULL,
    cache_write_tokens BIGINT DEFAULT 0 NOT NULL,
    model_calls INTEGER DEFAULT 0 NOT NULL,
    tool_calls INTEGER DEFAULT 0 NOT NULL,
    PRIMARY KEY (tenant, call_id)
);
CREATE INDEX model_calls_by_age ON model_calls (called) WHERE is_settled = 1;
CREATE INDEX model_calls_in_order ON model_calls (tenant, called);
CREATE INDEX model_calls_of_occurrence ON model_calls (occurrence_id) WHERE occurrence_id IS NOT NULL;
CREATE INDEX model_calls_of_schedule ON model_calls (tenant, schedule_id, called) WHERE schedule_id IS NOT NULL;
CREATE TABLE breakers (
    tenant TEXT COLLATE "C" NOT NULL,
    username TEXT COLLATE "C" NOT NULL,
    failures INTEGER DEFAULT 0 NOT NULL,
    since BIGINT NOT NULL,
    PRIMARY KEY (tenant, username)
);
