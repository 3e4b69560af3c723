-- Retention and searches without table scans.

ALTER TABLE message_topic ADD COLUMN created_at REAL NOT NULL DEFAULT 0;
UPDATE message_topic SET created_at = CAST(strftime('%s', 'now') AS REAL);
CREATE INDEX message_topic_by_age ON message_topic (created_at);

CREATE INDEX outbox_delivered ON outbox (updated_at) WHERE state = 'delivered';
CREATE INDEX outbox_undelivered ON outbox (updated_at) WHERE state IN ('failed', 'uncertain');
CREATE INDEX outbox_by_conversation ON outbox (conversation_id); -- the foreign key, when a conversation is deleted
CREATE INDEX pairing_open ON pairing (channel, created_at) WHERE approved_at IS NULL;
CREATE INDEX run_finished ON run (updated_at)
    WHERE status IN ('success', 'error', 'timeout', 'interrupted');

DROP INDEX thread_by_use;
CREATE INDEX thread_by_use ON thread (updated_at, thread_id);
CREATE INDEX thread_by_creation ON thread (created_at, thread_id);
CREATE INDEX thread_by_state_change ON thread (state_updated_at, thread_id);
CREATE INDEX thread_by_status ON thread (status, updated_at, thread_id);

-- The top-level fields of each thread's metadata, kept by the triggers below. `value` is the type and the first
-- 200 characters of the text or JSON; store/threads.py writes the same expression for what it looks for.
CREATE TABLE thread_metadata (
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    thread_id TEXT NOT NULL REFERENCES thread (thread_id) ON DELETE CASCADE,
    PRIMARY KEY (key, value, thread_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX thread_metadata_by_thread ON thread_metadata (thread_id);
INSERT OR IGNORE INTO thread_metadata
SELECT field.key, substr(field.type || ':' || coalesce(field.value, ''), 1, 200), thread_id
FROM thread, json_each(thread.metadata) AS field;

CREATE TRIGGER thread_metadata_insert AFTER INSERT ON thread BEGIN
    INSERT OR IGNORE INTO thread_metadata
    SELECT key, substr(type || ':' || coalesce(value, ''), 1, 200), new.thread_id FROM json_each(new.metadata);
END;
CREATE TRIGGER thread_metadata_update AFTER UPDATE OF metadata ON thread WHEN new.metadata <> old.metadata BEGIN
    DELETE FROM thread_metadata WHERE thread_id = new.thread_id;
    INSERT OR IGNORE INTO thread_metadata
    SELECT key, substr(type || ':' || coalesce(value, ''), 1, 200), new.thread_id FROM json_each(new.metadata);
END;
