DROP VIEW schedule_execution_history;
ALTER TABLE runs ADD COLUMN cost BIGINT;
ALTER TABLE runs ADD COLUMN usage TEXT;
UPDATE runs SET cost = CAST(round(cost_usd * 1000000000) AS BIGINT) WHERE cost_usd >= 0 AND cost_usd < 1000000000;
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
    tenant TEXT NOT NULL,
    scope TEXT NOT NULL,
    scope_id TEXT NOT NULL,
    period TEXT NOT NULL,
    max_cost BIGINT,
    max_tokens BIGINT,
    is_hard SMALLINT DEFAULT 0 NOT NULL,
    warning_threshold DOUBLE,
    require_approval SMALLINT DEFAULT 0 NOT NULL,
    when_exhausted TEXT NOT NULL,
    updated BIGINT NOT NULL,
    PRIMARY KEY (tenant, scope, scope_id, period)
)
 WITHOUT ROWID;
CREATE TABLE budget_counters (
    tenant TEXT NOT NULL,
    scope TEXT NOT NULL,
    scope_id TEXT NOT NULL,
    period TEXT NOT NULL,
    period_start BIGINT NOT NULL,
    settled_tokens BIGINT DEFAULT 0 NOT NULL,
    settled_cost BIGINT DEFAULT 0 NOT NULL,
    reserved_tokens BIGINT DEFAULT 0 NOT NULL,
    reserved_cost BIGINT DEFAULT 0 NOT NULL,
    is_warned SMALLINT DEFAULT 0 NOT NULL,
    PRIMARY KEY (tenant, scope, scope_id, period, period_start)
)
 WITHOUT ROWID;
CREATE INDEX budget_counters_by_age ON budget_counters (period_start);
CREATE TABLE model_calls (
    tenant TEXT NOT NULL,
    call_id TEXT NOT NULL,
    username TEXT NOT NULL,
    schedule_id TEXT,
    session_id TEXT,
    occurrence_id TEXT,
    called BIGINT NOT NULL,
    is_settled SMALLINT DEFAULT 0 NOT NULL,
    is_made SMALLINT DEFAULT 0 NOT NULL,
    tokens BIGINT DEFAULT 0 NOT NULL,
    cost BIGINT,
    model TEXT,
    provider TEXT,
    input_tokens BIGINT DEFAULT 0 NOT NULL,
    output_tokens BIGINT DEFAULT 0 NOT NULL,
    cache_read_tokens BIGINT DEFAULT 0 NOT NULL,
    cache_write_tokens BIGINT DEFAULT 0 NOT NULL,
    model_calls INTEGER DEFAULT 0 NOT NULL,
    tool_calls INTEGER DEFAULT 0 NOT NULL,
    PRIMARY KEY (tenant, call_id)
)
 WITHOUT ROWID;
CREATE INDEX model_calls_by_age ON model_calls (called) WHERE is_settled = 1;
CREATE INDEX model_calls_in_order ON model_calls (tenant, called);
CREATE INDEX model_calls_of_occurrence ON model_calls (occurrence_id) WHERE occurrence_id IS NOT NULL;
CREATE INDEX model_calls_of_schedule ON model_calls (tenant, schedule_id, called) WHERE schedule_id IS NOT NULL;
CREATE TABLE breakers (
    tenant TEXT NOT NULL,
    username TEXT NOT NULL,
    failures INTEGER DEFAULT 0 NOT NULL,
    since BIGINT NOT NULL,
    PRIMARY KEY (tenant, username)
)
 WITHOUT ROWID;
