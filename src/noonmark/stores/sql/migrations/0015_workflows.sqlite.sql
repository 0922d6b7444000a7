CREATE TABLE workflows (
    "key" INTEGER NOT NULL,
    tenant TEXT NOT NULL,
    workflow_id TEXT NOT NULL,
    version INTEGER NOT NULL,
    document TEXT NOT NULL,
    digest TEXT NOT NULL,
    source TEXT NOT NULL,
    username TEXT NOT NULL,
    created BIGINT NOT NULL,
    deleted BIGINT,
    PRIMARY KEY ("key")
);
CREATE UNIQUE INDEX workflows_by_version ON workflows (tenant, workflow_id, version);
CREATE INDEX workflows_deleted ON workflows (deleted) WHERE deleted IS NOT NULL;
CREATE INDEX occurrences_suspended ON occurrences (schedule) WHERE phase = 'pending' AND waiting_for IN ('approval', 'step_pending');
CREATE TABLE target_uses (
    schedule BIGINT NOT NULL,
    kind TEXT NOT NULL,
    name TEXT NOT NULL,
    tenant TEXT NOT NULL,
    PRIMARY KEY (schedule, kind, name),
    FOREIGN KEY(schedule) REFERENCES schedules ("key")
)
 WITHOUT ROWID;
CREATE INDEX target_uses_by_name ON target_uses (tenant, kind, name, schedule);
CREATE TABLE approvals (
    "key" INTEGER NOT NULL,
    approval_id TEXT NOT NULL,
    tenant TEXT NOT NULL,
    occurrence BIGINT NOT NULL,
    occurrence_id TEXT NOT NULL,
    step_id TEXT NOT NULL,
    message TEXT NOT NULL,
    requested BIGINT NOT NULL,
    expires BIGINT NOT NULL,
    state TEXT NOT NULL,
    decider TEXT,
    comment TEXT,
    decided BIGINT,
    PRIMARY KEY ("key"),
    FOREIGN KEY(occurrence) REFERENCES occurrences ("key")
);
CREATE UNIQUE INDEX approvals_by_id ON approvals (tenant, approval_id);
CREATE INDEX approvals_of_occurrence ON approvals (occurrence);
CREATE INDEX approvals_of_tenant ON approvals (tenant, requested, approval_id);
CREATE INDEX approvals_pending ON approvals (tenant, requested, approval_id) WHERE state = 'pending';
CREATE TABLE step_waits (
    occurrence BIGINT NOT NULL,
    step_id TEXT NOT NULL,
    event_type TEXT NOT NULL,
    occurrence_id TEXT NOT NULL,
    tenant TEXT NOT NULL,
    filters TEXT NOT NULL,
    since BIGINT NOT NULL,
    PRIMARY KEY (occurrence, step_id, event_type),
    FOREIGN KEY(occurrence) REFERENCES occurrences ("key")
)
 WITHOUT ROWID;
CREATE INDEX step_waits_by_type ON step_waits (event_type, tenant);
CREATE TABLE workflow_runs (
    occurrence BIGINT NOT NULL,
    id TEXT NOT NULL,
    tenant TEXT NOT NULL,
    workflow_id TEXT NOT NULL,
    version INTEGER NOT NULL,
    inputs TEXT NOT NULL,
    started BIGINT NOT NULL,
    attempt INTEGER NOT NULL,
    closing TEXT,
    PRIMARY KEY (occurrence),
    FOREIGN KEY(occurrence) REFERENCES occurrences ("key")
);
CREATE INDEX workflow_runs_of_tenant ON workflow_runs (tenant, started, id);
CREATE INDEX workflow_runs_of_workflow ON workflow_runs (tenant, workflow_id, started, id);
CREATE TABLE workflow_steps (
    occurrence BIGINT NOT NULL,
    step_id TEXT NOT NULL,
    element INTEGER NOT NULL,
    phase TEXT NOT NULL,
    attempt INTEGER NOT NULL,
    started BIGINT,
    ended BIGINT,
    result TEXT,
    error TEXT,
    is_external SMALLINT DEFAULT 0 NOT NULL,
    ready BIGINT,
    sequence INTEGER NOT NULL,
    elements INTEGER,
    child TEXT,
    compensation TEXT,
    PRIMARY KEY (occurrence, step_id, element),
    CONSTRAINT step_phase_is_known CHECK (phase IN ('pending', 'running', 'completed', 'failed', 'skipped', 'cancelled', 'compensated')),
    FOREIGN KEY(occurrence) REFERENCES occurrences ("key")
)
 WITHOUT ROWID;
CREATE INDEX workflow_steps_ended_elsewhere ON workflow_steps (occurrence) WHERE is_external = 1 AND ended IS NOT NULL;
