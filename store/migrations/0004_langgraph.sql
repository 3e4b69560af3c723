-- What the LangGraph-compatible API keeps besides threads and runs: how long a thread lives, and the items of the
-- key-value store. Times are Unix seconds; a time to live is in minutes, NULL = for ever.

ALTER TABLE thread ADD COLUMN ttl_minutes REAL;
ALTER TABLE thread ADD COLUMN ttl_strategy TEXT CHECK (ttl_strategy IN ('delete', 'keep_latest'));
ALTER TABLE thread ADD COLUMN expires_at REAL;
CREATE INDEX thread_by_expiry ON thread (expires_at) WHERE expires_at IS NOT NULL;

-- `namespace` is its labels, each followed by a dot: `users.1.`; no label holds a dot. `value` is a JSON object.
CREATE TABLE item (
    namespace TEXT NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    ttl_minutes REAL,
    expires_at REAL,
    PRIMARY KEY (namespace, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX item_by_expiry ON item (expires_at) WHERE expires_at IS NOT NULL;
