CREATE TABLE bundles (
    "key" INTEGER NOT NULL,
    tenant TEXT NOT NULL,
    content_id TEXT NOT NULL,
    bundle_id TEXT,
    digest TEXT,
    manifest TEXT,
    size BIGINT NOT NULL,
    files INTEGER DEFAULT 0 NOT NULL,
    username TEXT DEFAULT '' NOT NULL,
    source TEXT DEFAULT '' NOT NULL,
    created BIGINT NOT NULL,
    pushed BIGINT,
    workflow_version INTEGER,
    PRIMARY KEY ("key")
);
CREATE UNIQUE INDEX bundles_by_content ON bundles (tenant, content_id);
CREATE INDEX bundles_by_digest ON bundles (tenant, digest) WHERE pushed IS NOT NULL;
CREATE UNIQUE INDEX bundles_by_id ON bundles (tenant, bundle_id, pushed) WHERE pushed IS NOT NULL;
CREATE INDEX bundles_by_push ON bundles (pushed) WHERE pushed IS NOT NULL;
CREATE INDEX bundles_unfinished ON bundles (created) WHERE pushed IS NULL;
CREATE TABLE bundle_chunks (
    bundle BIGINT NOT NULL,
    number INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (bundle, number),
    FOREIGN KEY(bundle) REFERENCES bundles ("key")
);
ALTER TABLE secrets ADD COLUMN programs TEXT DEFAULT '[]' NOT NULL;
