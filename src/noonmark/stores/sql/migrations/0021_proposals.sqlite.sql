ALTER TABLE schedules ADD COLUMN lineage TEXT;
ALTER TABLE schedules ADD COLUMN parent TEXT;
ALTER TABLE schedules ADD COLUMN fingerprint TEXT;
CREATE TABLE proposals (
    tenant TEXT NOT NULL,
    schedule_id TEXT NOT NULL,
    proposal_id TEXT NOT NULL,
    action TEXT NOT NULL,
    uid TEXT NOT NULL,
    name TEXT,
    username TEXT NOT NULL,
    document TEXT NOT NULL,
    base_revision INTEGER,
    source TEXT NOT NULL,
    proposer TEXT NOT NULL,
    key_id TEXT,
    is_agent SMALLINT DEFAULT 0 NOT NULL,
    reason TEXT,
    proposed BIGINT NOT NULL,
    expires BIGINT NOT NULL,
    lineage TEXT,
    PRIMARY KEY (tenant, schedule_id)
)
 WITHOUT ROWID;
CREATE INDEX proposals_by_expiry ON proposals (expires);
CREATE INDEX proposals_in_order ON proposals (tenant, proposed, schedule_id);
CREATE INDEX schedules_by_fingerprint ON schedules (tenant, username, fingerprint, created) WHERE is_listed = 1 AND fingerprint IS NOT NULL;
CREATE INDEX schedules_by_parent ON schedules (tenant, parent) WHERE is_listed = 1 AND parent IS NOT NULL;
