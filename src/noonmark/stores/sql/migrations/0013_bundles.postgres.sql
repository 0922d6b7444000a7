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
CREATE TABLE bundle_chunks (
    bundle BIGINT NOT NULL,
    number INTEGER NOT NULL,
    data BYTEA NOT NULL,
    PRIMARY KEY (bundle, number)
);
ALTER TABLE secrets ADD COLUMN programs TEXT COLLATE "C" DEFAULT '[]' NOT NULL;
