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
CREATE INDEX occurrences_suspended ON occurrences (schedule) WHERE phase = 'pending' AND waiting_for IN ('approval', 'step_pending');
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
CREATE TABLE step_waits (
    occurrence BIGINT NOT NULL,
    step_id TEXT COLLATE "C" NOT NULL,
    event_type TEXT COLLATE "C" NOT NULL,
    occurrence_id TEXT COLLATE "C" NOT NULL,
    tenant TEXT COLLATE "C" NOT NULL,
    filters TEXT COLLATE "C" NOT NULL,
    since BIGINT NOT NULL,
    PRIMARY KEY (occurrence, step_id, event_type)
);
CREATE INDEX step_waits_by_type ON step_waits (event_type, tenant);
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
