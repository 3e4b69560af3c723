-- The platform's id of an accepted message, to find it when it is edited or deleted.
ALTER TABLE inbox ADD COLUMN message_id TEXT NOT NULL DEFAULT '';
CREATE INDEX inbox_by_message ON inbox (message_id) WHERE message_id <> '';
