CREATE TABLE halts (
    tenant TEXT COLLATE "C" NOT NULL,
    halt_id TEXT COLLATE "C" NOT NULL,
    halted BIGINT NOT NULL,
    caller TEXT COLLATE "C" NOT NULL,
    reason TEXT COLLATE "C",
    labels TEXT COLLATE "C",
    PRIMARY KEY (tenant, halt_id)
);
