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
ALTER TABLE notes ADD COLUMN key_id TEXT COLLATE "C";
