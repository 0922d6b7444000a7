CREATE INDEX schedules_by_owner ON schedules (tenant, username) WHERE is_listed = 1;
CREATE TABLE rate_buckets (
    name TEXT COLLATE "C" NOT NULL,
    full_at BIGINT NOT NULL,
    PRIMARY KEY (name)
);
CREATE INDEX rate_buckets_by_age ON rate_buckets (full_at);
