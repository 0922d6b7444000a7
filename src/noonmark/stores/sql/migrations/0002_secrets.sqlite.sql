CREATE TABLE secrets (
    "key" INTEGER NOT NULL,
    tenant TEXT NOT NULL,
    name TEXT NOT NULL,
    hosts TEXT NOT NULL,
    sealed TEXT NOT NULL,
    created BIGINT NOT NULL,
    updated BIGINT NOT NULL,
    PRIMARY KEY ("key")
);
CREATE UNIQUE INDEX secrets_by_name ON secrets (tenant, name);
