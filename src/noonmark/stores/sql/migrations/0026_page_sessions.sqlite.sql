CREATE TABLE page_sessions (
    digest TEXT NOT NULL,
    key_id TEXT NOT NULL,
    created BIGINT NOT NULL,
    used BIGINT NOT NULL,
    PRIMARY KEY (digest)
)
 WITHOUT ROWID;
CREATE INDEX page_sessions_of_key ON page_sessions (key_id, used);
