CREATE TABLE secrets (
    key BIGSERIAL NOT NULL,
    tenant TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    hosts TEXT COLLATE "C" NOT NULL,
    sealed TEXT COLLATE "C" NOT NULL,
    created BIGINT NOT NULL,
    updated BIGINT NOT NULL,
    PRIMARY KEY (key)
);
CREATE UNIQUE INDEX secrets_by_name ON secrets (tenant, name);
