-- Tables and columns get the names that the code uses. Rows are kept.

ALTER TABLE seen RENAME TO received_id;
ALTER TABLE received_id RENAME COLUMN seen_at TO received_at;
DROP INDEX seen_by_age;
CREATE INDEX received_id_by_age ON received_id (received_at);

ALTER TABLE inbox RENAME COLUMN asks TO question;
DROP INDEX inbox_asking;
CREATE INDEX inbox_with_question ON inbox (conversation_id, seq) WHERE question IS NOT NULL;

ALTER TABLE origin RENAME TO message_topic;
ALTER TABLE choice RENAME TO conversation_settings;

ALTER TABLE moved_chat RENAME TO chat_migration;
ALTER TABLE chat_migration RENAME COLUMN chat TO old_chat;
ALTER TABLE chat_migration RENAME COLUMN now_chat TO new_chat;

ALTER TABLE assistant_version RENAME COLUMN made_at TO created_at;
