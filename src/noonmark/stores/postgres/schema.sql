CREATE TABLE alembic_version (
    version_num VARCHAR(32) NOT NULL,
    CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
CREATE TABLE api_keys (
    key BIGSERIAL NOT NULL,
    key_id TEXT COLLATE "C" NOT NULL,
    digest TEXT COLLATE "C" NOT NULL,
    tenant TEXT COLLATE "C" NOT NULL,
    username TEXT COLLATE "C" NOT NULL,
    scopes TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C",
    is_agent SMALLINT DEFAULT 0 NOT NULL,
    created BIGINT NOT NULL,
    expires BIGINT,
    revoked BIGINT,
    used BIGINT,
    PRIMARY KEY (key)
);
CREATE INDEX api_keys_by_creation ON api_keys (created, key_id);
CREATE UNIQUE INDEX api_keys_by_id ON api_keys (key_id);
CREATE INDEX api_keys_of_tenant ON api_keys (tenant, created, key_id);
CREATE TABLE breakers (
    tenant TEXT COLLATE "C" NOT NULL,
    username TEXT COLLATE "C" NOT NULL,
    failures INTEGER DEFAULT 0 NOT NULL,
    since BIGINT NOT NULL,
    PRIMARY KEY (tenant, username)
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
CREATE TABLE bundles (
    key BIGSERIAL NOT NULL,
    tenant TEXT COLLATE "C" NOT NULL,
    content_id TEXT COLLATE "C" NOT NULL,
    bundle_id TEXT COLLATE "C",
    digest TEXT COLLATE "C",
    manifest TEXT COLLATE "C",
    size BIGINT NOT NULL,
    files INTEGER DEFAULT 0 NOT NULL,
    username TEXT COLLATE "C" DEFAULT '' NOT NULL,
    source TEXT COLLATE "C" DEFAULT '' NOT NULL,
    created BIGINT NOT NULL,
    pushed BIGINT,
    workflow_version INTEGER,
    PRIMARY KEY (key)
);
CREATE UNIQUE INDEX bundles_by_content ON bundles (tenant, content_id);
CREATE INDEX bundles_by_digest ON bundles (tenant, digest) WHERE pushed IS NOT NULL;
CREATE UNIQUE INDEX bundles_by_id ON bundles (tenant, bundle_id, pushed) WHERE pushed IS NOT NULL;
CREATE INDEX bundles_by_push ON bundles (pushed) WHERE pushed IS NOT NULL;
CREATE INDEX bundles_unfinished ON bundles (created) WHERE pushed IS NULL;
CREATE TABLE concurrency_keys (
    key BIGSERIAL NOT NULL,
    tenant TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    taken INTEGER DEFAULT 0 NOT NULL,
    waiting INTEGER DEFAULT 0 NOT NULL,
    PRIMARY KEY (key),
    CONSTRAINT places_are_counts CHECK (taken >= 0 AND waiting >= 0)
);
CREATE UNIQUE INDEX concurrency_keys_by_name ON concurrency_keys (tenant, name);
CREATE TABLE dependency_graphs (
    tenant TEXT COLLATE "C" NOT NULL,
    version INTEGER NOT NULL,
    PRIMARY KEY (tenant)
);
CREATE TABLE event_streams (
    tenant TEXT COLLATE "C" NOT NULL,
    newest BIGINT NOT NULL,
    matched_until BIGINT NOT NULL,
    cursor BIGINT DEFAULT 0 NOT NULL,
    matched INTEGER DEFAULT 0 NOT NULL,
    PRIMARY KEY (tenant),
    CONSTRAINT matched_is_a_count CHECK (matched >= 0)
);
CREATE INDEX event_streams_behind ON event_streams (matched_until, tenant) WHERE newest > matched_until;
CREATE INDEX event_streams_by_count ON event_streams (matched);
CREATE TABLE events (
    key BIGSERIAL NOT NULL,
    tenant TEXT COLLATE "C" NOT NULL,
    event_id TEXT COLLATE "C" NOT NULL,
    event_type TEXT COLLATE "C" NOT NULL,
    source TEXT COLLATE "C" NOT NULL,
    payload TEXT COLLATE "C" NOT NULL,
    emitted BIGINT NOT NULL,
    behind TEXT COLLATE "C",
    PRIMARY KEY (key)
);
CREATE INDEX events_by_age ON events (emitted);
CREATE UNIQUE INDEX events_by_id ON events (tenant, event_id);
CREATE UNIQUE INDEX events_in_order ON events (tenant, emitted);
CREATE TABLE halts (
    tenant TEXT COLLATE "C" NOT NULL,
    halt_id TEXT COLLATE "C" NOT NULL,
    halted BIGINT NOT NULL,
    caller TEXT COLLATE "C" NOT NULL,
    reason TEXT COLLATE "C",
    labels TEXT COLLATE "C",
    lineage TEXT COLLATE "C",
    PRIMARY KEY (tenant, halt_id)
);
CREATE TABLE idempotency_keys (
    key BIGSERIAL NOT NULL,
    tenant TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    fingerprint TEXT COLLATE "C" NOT NULL,
    created BIGINT NOT NULL,
    PRIMARY KEY (key)
);
CREATE INDEX idempotency_keys_by_age ON idempotency_keys (created);
CREATE UNIQUE INDEX idempotency_keys_by_name ON idempotency_keys (tenant, name);
CREATE TABLE leadership (
    key SMALLINT NOT NULL,
    term BIGINT NOT NULL,
    node TEXT COLLATE "C",
    until BIGINT NOT NULL,
    PRIMARY KEY (key),
    CONSTRAINT one_leader CHECK (key = 1),
    CONSTRAINT terms_are_counted CHECK (term >= 1)
);
CREATE TABLE mobs (
    key BIGSERIAL NOT NULL,
    tenant TEXT COLLATE "C" NOT NULL,
    mob_id TEXT COLLATE "C" NOT NULL,
    username TEXT COLLATE "C" NOT NULL,
    document TEXT COLLATE "C" NOT NULL,
    created BIGINT NOT NULL,
    updated BIGINT NOT NULL,
    PRIMARY KEY (key)
);
CREATE UNIQUE INDEX mobs_by_id ON mobs (tenant, mob_id);
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
    whole_id TEXT COLLATE "C",
    PRIMARY KEY (tenant, call_id)
);
CREATE INDEX model_calls_by_age ON model_calls (called) WHERE is_settled = 1;
CREATE INDEX model_calls_in_order ON model_calls (tenant, called);
CREATE INDEX model_calls_of_occurrence ON model_calls (occurrence_id) WHERE occurrence_id IS NOT NULL;
CREATE INDEX model_calls_of_schedule ON model_calls (tenant, schedule_id, called) WHERE schedule_id IS NOT NULL;
CREATE INDEX model_calls_of_whole ON model_calls (whole_id) WHERE whole_id IS NOT NULL;
CREATE TABLE nodes (
    name TEXT COLLATE "C" NOT NULL,
    routes TEXT COLLATE "C" NOT NULL,
    capacity INTEGER NOT NULL,
    load INTEGER NOT NULL,
    version TEXT COLLATE "C" NOT NULL,
    started BIGINT NOT NULL,
    lease BIGINT NOT NULL,
    seen BIGINT NOT NULL,
    left_at BIGINT,
    zone_data TEXT COLLATE "C" DEFAULT '' NOT NULL,
    process_lock TEXT COLLATE "C",
    gone_at BIGINT,
    schema_version TEXT COLLATE "C",
    PRIMARY KEY (name)
);
CREATE INDEX nodes_seen ON nodes (seen);
CREATE TABLE notes (
    key BIGSERIAL NOT NULL,
    tenant TEXT COLLATE "C" NOT NULL,
    noted BIGINT NOT NULL,
    caller TEXT COLLATE "C" NOT NULL,
    operation TEXT COLLATE "C" NOT NULL,
    schedule_id TEXT COLLATE "C",
    uid TEXT COLLATE "C",
    revision_before INTEGER,
    revision_after INTEGER,
    reason TEXT COLLATE "C",
    request_id TEXT COLLATE "C",
    key_id TEXT COLLATE "C",
    session_id TEXT COLLATE "C",
    tool_call_id TEXT COLLATE "C",
    parent_schedule_id TEXT COLLATE "C",
    source TEXT COLLATE "C",
    changes TEXT COLLATE "C",
    PRIMARY KEY (key)
);
CREATE INDEX notes_by_age ON notes (noted);
CREATE INDEX notes_in_order ON notes (tenant, key);
CREATE INDEX notes_of_schedule ON notes (tenant, schedule_id, key);
CREATE TABLE page_sessions (
    digest TEXT COLLATE "C" NOT NULL,
    key_id TEXT COLLATE "C" NOT NULL,
    created BIGINT NOT NULL,
    used BIGINT NOT NULL,
    PRIMARY KEY (digest)
);
CREATE INDEX page_sessions_of_key ON page_sessions (key_id, used);
CREATE TABLE proposals (
    tenant TEXT COLLATE "C" NOT NULL,
    schedule_id TEXT COLLATE "C" NOT NULL,
    proposal_id TEXT COLLATE "C" NOT NULL,
    action TEXT COLLATE "C" NOT NULL,
    uid TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C",
    username TEXT COLLATE "C" NOT NULL,
    document TEXT COLLATE "C" NOT NULL,
    base_revision INTEGER,
    source TEXT COLLATE "C" NOT NULL,
    proposer TEXT COLLATE "C" NOT NULL,
    key_id TEXT COLLATE "C",
    is_agent SMALLINT DEFAULT 0 NOT NULL,
    reason TEXT COLLATE "C",
    proposed BIGINT NOT NULL,
    expires BIGINT NOT NULL,
    lineage TEXT COLLATE "C",
    PRIMARY KEY (tenant, schedule_id)
);
CREATE INDEX proposals_by_expiry ON proposals (expires);
CREATE INDEX proposals_in_order ON proposals (tenant, proposed, schedule_id);
CREATE TABLE rate_buckets (
    name TEXT COLLATE "C" NOT NULL,
    full_at BIGINT NOT NULL,
    PRIMARY KEY (name)
);
CREATE INDEX rate_buckets_by_age ON rate_buckets (full_at);
CREATE TABLE schedules (
    key BIGSERIAL NOT NULL,
    tenant TEXT COLLATE "C" NOT NULL,
    username TEXT COLLATE "C" NOT NULL,
    schedule_id TEXT COLLATE "C" NOT NULL,
    declared_id TEXT COLLATE "C",
    name TEXT COLLATE "C",
    description TEXT COLLATE "C" NOT NULL,
    labels TEXT COLLATE "C",
    trigger_type TEXT COLLATE "C" NOT NULL,
    trigger_document TEXT COLLATE "C",
    terms_document TEXT COLLATE "C" NOT NULL,
    source TEXT COLLATE "C" NOT NULL,
    route TEXT COLLATE "C" NOT NULL,
    created BIGINT NOT NULL,
    anchored BIGINT,
    deleted BIGINT,
    is_listed SMALLINT NOT NULL,
    pause TEXT COLLATE "C",
    lineage TEXT COLLATE "C",
    parent TEXT COLLATE "C",
    fingerprint TEXT COLLATE "C",
    PRIMARY KEY (key)
);
CREATE INDEX schedules_by_creation ON schedules (tenant, created, schedule_id) WHERE is_listed = 1;
CREATE INDEX schedules_by_fingerprint ON schedules (tenant, username, fingerprint, created) WHERE is_listed = 1 AND fingerprint IS NOT NULL;
CREATE UNIQUE INDEX schedules_by_id ON schedules (tenant, schedule_id) WHERE is_listed = 1;
CREATE INDEX schedules_by_name ON schedules (tenant, username, name, created) WHERE is_listed = 1 AND name IS NOT NULL;
CREATE INDEX schedules_by_owner ON schedules (tenant, username) WHERE is_listed = 1;
CREATE INDEX schedules_by_parent ON schedules (tenant, parent) WHERE is_listed = 1 AND parent IS NOT NULL;
CREATE INDEX schedules_by_source ON schedules (source, route) WHERE is_listed = 1;
CREATE INDEX schedules_deleted ON schedules (tenant, created, schedule_id) WHERE is_listed = 0;
CREATE INDEX schedules_deleted_by_id ON schedules (tenant, schedule_id, deleted) WHERE is_listed = 0;
CREATE INDEX schedules_deleted_of_owner ON schedules (tenant, username) WHERE is_listed = 0;
CREATE TABLE secrets (
    key BIGSERIAL NOT NULL,
    tenant TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    hosts TEXT COLLATE "C" NOT NULL,
    sealed TEXT COLLATE "C" NOT NULL,
    created BIGINT NOT NULL,
    updated BIGINT NOT NULL,
    programs TEXT COLLATE "C" DEFAULT '[]' NOT NULL,
    PRIMARY KEY (key)
);
CREATE UNIQUE INDEX secrets_by_name ON secrets (tenant, name);
CREATE TABLE served_routes (
    route TEXT COLLATE "C" NOT NULL,
    seen BIGINT NOT NULL,
    PRIMARY KEY (route)
);
CREATE TABLE sessions (
    key BIGSERIAL NOT NULL,
    tenant TEXT COLLATE "C" NOT NULL,
    session_id TEXT COLLATE "C" NOT NULL,
    username TEXT COLLATE "C" NOT NULL,
    spec TEXT COLLATE "C" NOT NULL,
    tool_access_policy TEXT COLLATE "C",
    state TEXT COLLATE "C" NOT NULL,
    schedule_id TEXT COLLATE "C",
    mob_id TEXT COLLATE "C",
    member_id TEXT COLLATE "C",
    role TEXT COLLATE "C",
    turn TEXT COLLATE "C",
    messages INTEGER DEFAULT 0 NOT NULL,
    bytes BIGINT DEFAULT 0 NOT NULL,
    usage TEXT COLLATE "C" NOT NULL,
    created BIGINT NOT NULL,
    updated BIGINT NOT NULL,
    is_task SMALLINT DEFAULT 0 NOT NULL,
    scopes TEXT COLLATE "C",
    PRIMARY KEY (key)
);
CREATE INDEX sessions_by_creation ON sessions (tenant, created, session_id);
CREATE UNIQUE INDEX sessions_by_id ON sessions (tenant, session_id);
CREATE INDEX sessions_by_size ON sessions (bytes);
CREATE INDEX sessions_of_mobs ON sessions (tenant, mob_id) WHERE mob_id IS NOT NULL;
CREATE INDEX sessions_of_tasks ON sessions (updated) WHERE is_task = 1;
CREATE TABLE workflows (
    key BIGSERIAL NOT NULL,
    tenant TEXT COLLATE "C" NOT NULL,
    workflow_id TEXT COLLATE "C" NOT NULL,
    version INTEGER NOT NULL,
    document TEXT COLLATE "C" NOT NULL,
    digest TEXT COLLATE "C" NOT NULL,
    source TEXT COLLATE "C" NOT NULL,
    username TEXT COLLATE "C" NOT NULL,
    created BIGINT NOT NULL,
    deleted BIGINT,
    PRIMARY KEY (key)
);
CREATE UNIQUE INDEX workflows_by_version ON workflows (tenant, workflow_id, version);
CREATE INDEX workflows_deleted ON workflows (deleted) WHERE deleted IS NOT NULL;
CREATE TABLE bundle_chunks (
    bundle BIGINT NOT NULL,
    number INTEGER NOT NULL,
    data BYTEA NOT NULL,
    PRIMARY KEY (bundle, number)
);
CREATE TABLE dependencies (
    schedule BIGINT NOT NULL,
    position INTEGER NOT NULL,
    tenant TEXT COLLATE "C" NOT NULL,
    upstream_id TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (schedule, position)
);
CREATE INDEX dependencies_by_upstream ON dependencies (tenant, upstream_id);
CREATE TABLE event_listeners (
    tenant TEXT COLLATE "C" NOT NULL,
    event_type TEXT COLLATE "C" NOT NULL,
    schedule BIGINT NOT NULL,
    fields TEXT COLLATE "C" DEFAULT '' NOT NULL,
    wanted TEXT COLLATE "C" DEFAULT '' NOT NULL,
    narrow_fields TEXT COLLATE "C" DEFAULT '' NOT NULL,
    narrow_wanted TEXT COLLATE "C" DEFAULT '' NOT NULL,
    PRIMARY KEY (schedule, event_type)
);
CREATE INDEX event_listeners_by_discriminator ON event_listeners (tenant, event_type, fields, wanted, schedule);
CREATE INDEX event_listeners_by_narrow_discriminator ON event_listeners (tenant, event_type, narrow_fields, narrow_wanted, schedule);
CREATE TABLE occurrences (
    key BIGSERIAL NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    schedule BIGINT NOT NULL,
    revision INTEGER NOT NULL,
    origin TEXT COLLATE "C" NOT NULL,
    phase TEXT COLLATE "C" NOT NULL,
    route TEXT COLLATE "C" NOT NULL,
    nominal BIGINT NOT NULL,
    due BIGINT NOT NULL,
    first_due BIGINT NOT NULL,
    attempt INTEGER DEFAULT 0 NOT NULL,
    fence INTEGER DEFAULT 0 NOT NULL,
    reason TEXT COLLATE "C",
    detail TEXT COLLATE "C" DEFAULT '' NOT NULL,
    missed_count INTEGER DEFAULT 0 NOT NULL,
    missed_first BIGINT,
    missed_last BIGINT,
    caught_up BIGINT,
    losses INTEGER DEFAULT 0 NOT NULL,
    waiting_for TEXT COLLATE "C",
    holds_slot SMALLINT DEFAULT 0 NOT NULL,
    payload TEXT COLLATE "C",
    own TEXT COLLATE "C",
    ready BIGINT,
    held SMALLINT DEFAULT 0 NOT NULL,
    node TEXT COLLATE "C",
    lease_end BIGINT,
    started BIGINT,
    stop TEXT COLLATE "C",
    deadline BIGINT,
    place BIGINT,
    wanted BIGINT,
    wanted_limit INTEGER,
    awaits_after BIGINT,
    ended BIGINT,
    owner BIGINT NOT NULL,
    behind TEXT COLLATE "C",
    other_keys TEXT COLLATE "C",
    late BIGINT,
    PRIMARY KEY (key),
    CONSTRAINT phase_is_known CHECK (phase IN ('pending', 'claimed', 'dispatching', 'awaiting_completion', 'completed', 'failed', 'timed_out', 'cancelled', 'skipped', 'misfired', 'delivery_failed', 'superseded')),
    CONSTRAINT ended_when_final CHECK ((ended IS NULL) = (phase IN ('pending', 'claimed', 'dispatching', 'awaiting_completion'))),
    CONSTRAINT final_has_a_reason CHECK (ended IS NULL OR reason IS NOT NULL),
    CONSTRAINT leased_by_a_node CHECK ((lease_end IS NOT NULL) = (phase IN ('claimed', 'dispatching'))),
    CONSTRAINT counts_are_counts CHECK (attempt >= 0 AND losses >= 0 AND missed_count >= 0 AND fence >= 0),
    UNIQUE (id)
);
CREATE INDEX occurrences_awaiting ON occurrences (schedule, nominal) WHERE phase = 'pending' AND waiting_for = 'dependency_pending';
CREATE INDEX occurrences_ended ON occurrences (ended) WHERE ended IS NOT NULL;
CREATE INDEX occurrences_ended_of_owner ON occurrences (owner, nominal, phase, late, schedule, ended) WHERE ended IS NOT NULL;
CREATE INDEX occurrences_failed ON occurrences (phase, ended, id) WHERE phase IN ('delivery_failed', 'failed', 'misfired', 'timed_out');
CREATE UNIQUE INDEX occurrences_in_slot ON occurrences (schedule) WHERE holds_slot = 1;
CREATE INDEX occurrences_leased ON occurrences (route, lease_end, nominal, key) WHERE lease_end IS NOT NULL;
CREATE INDEX occurrences_live ON occurrences (schedule) WHERE ended IS NULL;
CREATE INDEX occurrences_live_of_owner ON occurrences (owner, nominal, schedule, ended) WHERE ended IS NULL;
CREATE INDEX occurrences_of_gaps ON occurrences (schedule, missed_last) WHERE missed_last IS NOT NULL;
CREATE INDEX occurrences_of_owners ON occurrences (route, (ready >> 25), owner, ready, nominal) WHERE phase = 'pending' AND held = 0 AND ready IS NOT NULL;
CREATE INDEX occurrences_of_schedule ON occurrences (schedule, nominal);
CREATE INDEX occurrences_queued ON occurrences (schedule, held, due, nominal, id) WHERE phase = 'pending' AND waiting_for = 'queued' AND ready IS NULL;
CREATE INDEX occurrences_ready ON occurrences (route, ready, nominal, key) WHERE phase = 'pending' AND held = 0 AND ready IS NOT NULL;
CREATE INDEX occurrences_suspended ON occurrences (schedule) WHERE phase = 'pending' AND waiting_for IN ('approval', 'step_pending');
CREATE INDEX occurrences_wanting ON occurrences (wanted, held, due, nominal, id) WHERE wanted IS NOT NULL;
CREATE INDEX occurrences_with_deadline ON occurrences (deadline, id) WHERE deadline IS NOT NULL AND phase IN ('dispatching', 'awaiting_completion');
CREATE TABLE schedule_states (
    schedule BIGINT NOT NULL,
    uid TEXT COLLATE "C" NOT NULL,
    phase TEXT COLLATE "C" NOT NULL,
    revision INTEGER NOT NULL,
    version INTEGER NOT NULL,
    updated BIGINT NOT NULL,
    watermark BIGINT NOT NULL,
    plan_at BIGINT,
    exhausted SMALLINT DEFAULT 0 NOT NULL,
    sent_back SMALLINT DEFAULT 0 NOT NULL,
    fault TEXT COLLATE "C",
    patience BIGINT NOT NULL,
    newest BIGINT,
    fences INTEGER DEFAULT 0 NOT NULL,
    holder BIGINT,
    live INTEGER DEFAULT 0 NOT NULL,
    history INTEGER DEFAULT 0 NOT NULL,
    queued INTEGER DEFAULT 0 NOT NULL,
    total INTEGER DEFAULT 0 NOT NULL,
    successful INTEGER DEFAULT 0 NOT NULL,
    failed INTEGER DEFAULT 0 NOT NULL,
    missed INTEGER DEFAULT 0 NOT NULL,
    skipped INTEGER DEFAULT 0 NOT NULL,
    admitted INTEGER DEFAULT 0 NOT NULL,
    failures_in_row INTEGER DEFAULT 0 NOT NULL,
    last_started BIGINT,
    last_phase TEXT COLLATE "C",
    news INTEGER DEFAULT 0 NOT NULL,
    followed SMALLINT DEFAULT 0 NOT NULL,
    ended_at BIGINT,
    completed_at BIGINT,
    owner BIGINT NOT NULL,
    leads TEXT COLLATE "C",
    rate_window TEXT COLLATE "C",
    runaway TEXT COLLATE "C",
    history_bucket INTEGER GENERATED ALWAYS AS ((history - 1) / 25) STORED,
    PRIMARY KEY (schedule),
    CONSTRAINT schedule_phase_is_known CHECK (phase IN ('active', 'paused', 'completed', 'deleted')),
    CONSTRAINT schedule_counts_are_counts CHECK (live >= 0 AND history >= 0 AND queued >= 0),
    UNIQUE (uid)
)
 WITH (fillfactor = 70);
CREATE INDEX schedules_of_owner ON schedule_states (owner, phase);
CREATE INDEX schedules_to_plan ON schedule_states (plan_at, uid) WHERE phase IN ('active', 'paused') AND plan_at IS NOT NULL AND fault IS NULL;
CREATE INDEX schedules_with_history ON schedule_states (history_bucket) WHERE history_bucket >= 1;
CREATE TABLE session_messages (
    session BIGINT NOT NULL,
    number INTEGER NOT NULL,
    role TEXT COLLATE "C" NOT NULL,
    parts TEXT COLLATE "C" NOT NULL,
    data TEXT COLLATE "C",
    occurrence_id TEXT COLLATE "C",
    usage TEXT COLLATE "C",
    bytes BIGINT NOT NULL,
    created BIGINT NOT NULL,
    PRIMARY KEY (session, number)
);
CREATE INDEX session_messages_by_age ON session_messages (created);
CREATE INDEX session_messages_of_turns ON session_messages (session, occurrence_id, number);
CREATE TABLE target_uses (
    schedule BIGINT NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    tenant TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (schedule, kind, name)
);
CREATE INDEX target_uses_by_name ON target_uses (tenant, kind, name, schedule);
CREATE TABLE approvals (
    key BIGSERIAL NOT NULL,
    approval_id TEXT COLLATE "C" NOT NULL,
    tenant TEXT COLLATE "C" NOT NULL,
    occurrence BIGINT NOT NULL,
    occurrence_id TEXT COLLATE "C" NOT NULL,
    step_id TEXT COLLATE "C" NOT NULL,
    message TEXT COLLATE "C" NOT NULL,
    requested BIGINT NOT NULL,
    expires BIGINT NOT NULL,
    state TEXT COLLATE "C" NOT NULL,
    decider TEXT COLLATE "C",
    comment TEXT COLLATE "C",
    decided BIGINT,
    PRIMARY KEY (key)
);
CREATE UNIQUE INDEX approvals_by_id ON approvals (tenant, approval_id);
CREATE INDEX approvals_of_occurrence ON approvals (occurrence);
CREATE INDEX approvals_of_tenant ON approvals (tenant, requested, approval_id);
CREATE INDEX approvals_pending ON approvals (tenant, requested, approval_id) WHERE state = 'pending';
CREATE TABLE runs (
    occurrence BIGINT NOT NULL,
    fence INTEGER NOT NULL,
    schedule BIGINT NOT NULL,
    attempt INTEGER NOT NULL,
    node TEXT COLLATE "C" NOT NULL,
    started BIGINT NOT NULL,
    ended BIGINT,
    outcome TEXT COLLATE "C",
    result TEXT COLLATE "C",
    error TEXT COLLATE "C",
    tokens BIGINT,
    cost_usd DOUBLE PRECISION,
    cost BIGINT,
    usage TEXT COLLATE "C",
    PRIMARY KEY (occurrence, fence)
);
CREATE INDEX runs_of_schedule ON runs (schedule, started);
CREATE TABLE step_waits (
    occurrence BIGINT NOT NULL,
    step_id TEXT COLLATE "C" NOT NULL,
    event_type TEXT COLLATE "C" NOT NULL,
    occurrence_id TEXT COLLATE "C" NOT NULL,
    tenant TEXT COLLATE "C" NOT NULL,
    filters TEXT COLLATE "C" NOT NULL,
    since BIGINT NOT NULL,
    fields TEXT COLLATE "C" DEFAULT '' NOT NULL,
    wanted TEXT COLLATE "C" DEFAULT '' NOT NULL,
    PRIMARY KEY (occurrence, step_id, event_type)
);
CREATE INDEX step_waits_by_discriminator ON step_waits (event_type, tenant, fields, wanted);
CREATE TABLE workflow_runs (
    occurrence BIGINT NOT NULL,
    id TEXT COLLATE "C" NOT NULL,
    tenant TEXT COLLATE "C" NOT NULL,
    workflow_id TEXT COLLATE "C" NOT NULL,
    version INTEGER NOT NULL,
    inputs TEXT COLLATE "C" NOT NULL,
    started BIGINT NOT NULL,
    attempt INTEGER NOT NULL,
    closing TEXT COLLATE "C",
    PRIMARY KEY (occurrence)
);
CREATE INDEX workflow_runs_of_tenant ON workflow_runs (tenant, started, id);
CREATE INDEX workflow_runs_of_workflow ON workflow_runs (tenant, workflow_id, started, id);
CREATE TABLE workflow_steps (
    occurrence BIGINT NOT NULL,
    step_id TEXT COLLATE "C" NOT NULL,
    element INTEGER NOT NULL,
    phase TEXT COLLATE "C" NOT NULL,
    attempt INTEGER NOT NULL,
    started BIGINT,
    ended BIGINT,
    result TEXT COLLATE "C",
    error TEXT COLLATE "C",
    is_external SMALLINT DEFAULT 0 NOT NULL,
    ready BIGINT,
    sequence INTEGER NOT NULL,
    elements INTEGER,
    child TEXT COLLATE "C",
    compensation TEXT COLLATE "C",
    PRIMARY KEY (occurrence, step_id, element),
    CONSTRAINT step_phase_is_known CHECK (phase IN ('pending', 'running', 'completed', 'failed', 'skipped', 'cancelled', 'compensated'))
);
CREATE INDEX workflow_steps_ended_elsewhere ON workflow_steps (occurrence) WHERE is_external = 1 AND ended IS NOT NULL;
CREATE VIEW schedule_execution_history AS
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
CREATE FUNCTION forget_discriminator() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN EXECUTE format($x$UPDATE %I.event_listeners SET fields = '', wanted = '', narrow_fields = '', narrow_wanted = '' WHERE schedule = $1$x$, TG_TABLE_SCHEMA) USING NEW.key; RETURN NULL; END $$;
CREATE TRIGGER discriminators_follow AFTER UPDATE OF trigger_document ON schedules FOR EACH ROW WHEN (OLD.trigger_document IS DISTINCT FROM NEW.trigger_document) EXECUTE FUNCTION forget_discriminator();
