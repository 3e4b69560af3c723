-- Chats in which somebody wrote to the bot, as their newest message says: the inbox keeps its messages for a week only.
CREATE TABLE chat (
    channel TEXT NOT NULL,
    workspace TEXT NOT NULL,
    chat TEXT NOT NULL,
    is_private INTEGER NOT NULL,
    user_id TEXT NOT NULL, -- who wrote last
    user_kind TEXT NOT NULL,
    recipient TEXT NOT NULL, -- ReplyTarget.user
    received_at REAL NOT NULL,
    PRIMARY KEY (channel, workspace, chat)
) STRICT, WITHOUT ROWID;
CREATE INDEX chat_by_age ON chat (received_at);

-- Messages of the administrator to many chats. The key is never used twice; text is '' once no chat waits any more.
CREATE TABLE broadcast (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL UNIQUE,
    digest TEXT NOT NULL, -- of what was asked for
    text TEXT NOT NULL,
    audience TEXT NOT NULL, -- what was answered, as JSON
    created_at REAL NOT NULL
) STRICT;

-- The chats that wait for one: a row is deleted in the transaction that puts its message into the outbox.
CREATE TABLE broadcast_chat (
    channel TEXT NOT NULL,
    broadcast_id INTEGER NOT NULL REFERENCES broadcast (id),
    workspace TEXT NOT NULL,
    chat TEXT NOT NULL,
    recipient TEXT NOT NULL,
    PRIMARY KEY (channel, broadcast_id, workspace, chat)
) STRICT, WITHOUT ROWID;
CREATE INDEX broadcast_chat_by_broadcast ON broadcast_chat (broadcast_id);
