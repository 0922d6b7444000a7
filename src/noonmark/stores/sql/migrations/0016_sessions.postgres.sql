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
    PRIMARY KEY (key)
);
CREATE INDEX sessions_by_creation ON sessions (tenant, created, session_id);
CREATE UNIQUE INDEX sessions_by_id ON sessions (tenant, session_id);
CREATE INDEX sessions_by_size ON sessions (bytes);
CREATE INDEX sessions_of_mobs ON sessions (tenant, mob_id) WHERE mob_id IS NOT NULL;
CREATE INDEX sessions_of_tasks ON sessions (updated) WHERE is_task = 1;
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
