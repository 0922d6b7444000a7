CREATE TABLE api_keys (
    "key" INTEGER NOT NULL,
    key_id TEXT NOT NULL,
    digest TEXT NOT NULL,
    tenant TEXT NOT NULL,
    username TEXT NOT NULL,
    scopes TEXT NOT NULL,
    name TEXT,
    is_agent SMALLINT DEFAULT 0 NOT NULL,
    created BIGINT NOT NULL,
    expires BIGINT,
    revoked BIGINT,
    used BIGINT,
    PRIMARY KEY ("key")
);
CREATE INDEX api_keys_by_creation ON api_keys (created, key_id);
CREATE UNIQUE INDEX api_keys_by_id ON api_keys (key_id);
CREATE INDEX api_keys_of_tenant ON api_keys (tenant, created, key_id);
ALTER TABLE notes ADD COLUMN key_id TEXT;
