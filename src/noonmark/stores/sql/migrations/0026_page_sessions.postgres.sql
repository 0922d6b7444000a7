CREATE TABLE page_sessions (
    digest TEXT COLLATE "C" NOT NULL,
    key_id TEXT COLLATE "C" NOT NULL,
    created BIGINT NOT NULL,
    used BIGINT NOT NULL,
    PRIMARY KEY (digest)
);
CREATE INDEX page_sessions_of_key ON page_sessions (key_id, used);
