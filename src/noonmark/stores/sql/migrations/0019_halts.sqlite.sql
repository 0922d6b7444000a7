CREATE TABLE halts (
    tenant TEXT NOT NULL,
    halt_id TEXT NOT NULL,
    halted BIGINT NOT NULL,
    caller TEXT NOT NULL,
    reason TEXT,
    labels TEXT,
    PRIMARY KEY (tenant, halt_id)
)
 WITHOUT ROWID;
