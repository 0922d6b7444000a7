CREATE TABLE mobs (
    "key" INTEGER NOT NULL,
    tenant TEXT NOT NULL,
    mob_id TEXT NOT NULL,
    username TEXT NOT NULL,
    document TEXT NOT NULL,
    created BIGINT NOT NULL,
    updated BIGINT NOT NULL,
    PRIMARY KEY ("key")
);
CREATE UNIQUE INDEX mobs_by_id ON mobs (tenant, mob_id);
CREATE TABLE sessions (
    "key" INTEGER NOT NULL,
    tenant TEXT NOT NULL,
    session_id TEXT NOT NULL,
    username TEXT NOT NULL,
    spec TEXT NOT NULL,
    tool_access_policy TEXT,
    state TEXT NOT NULL,
    schedule_id TEXT,
    mob_id TEXT,
    member_id TEXT,
    role TEXT,
    turn TEXT,
    messages INTEGER DEFAULT 0 NOT NULL,
    bytes BIGINT DEFAULT 0 NOT NULL,
    usage TEXT NOT NULL,
    created BIGINT NOT NULL,
    updated BIGINT NOT NULL,
    is_task SMALLINT DEFAULT 0 NOT NULL,
    PRIMARY KEY ("key")
);
CREATE INDEX sessions_by_creation ON sessions (tenant, created, session_id);
CREATE UNIQUE INDEX sessions_by_id ON sessions (tenant, session_id);
CREATE INDEX sessions_by_size ON sessions (bytes);
CREATE INDEX sessions_of_mobs ON sessions (tenant, mob_id) WHERE mob_id IS NOT NULL;
CREATE INDEX sessions_of_tasks ON sessions (updated) WHERE is_task = 1;
CREATE TABLE session_messages (
    session BIGINT NOT NULL,
    number INTEGER NOT NULL,
    role TEXT NOT NULL,
    parts TEXT NOT NULL,
    data TEXT,
    occurrence_id TEXT,
    usage TEXT,
    bytes BIGINT NOT NULL,
    created BIGINT NOT NULL,
    PRIMARY KEY (session, number),
    FOREIGN KEY(session) REFERENCES sessions ("key")
);
CREATE INDEX session_messages_by_age ON session_messages (created);
CREATE INDEX session_messages_of_turns ON session_messages (session, occurrence_id, number);
