ALTER TABLE schedules ADD COLUMN lineage TEXT COLLATE "C";
ALTER TABLE schedules ADD COLUMN parent TEXT COLLATE "C";
ALTER TABLE schedules ADD COLUMN fingerprint TEXT COLLATE "C";
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
CREATE INDEX schedules_by_fingerprint ON schedules (tenant, username, fingerprint, created) WHERE is_listed = 1 AND fingerprint IS NOT NULL;
CREATE INDEX schedules_by_parent ON schedules (tenant, parent) WHERE is_listed = 1 AND parent IS NOT NULL;
