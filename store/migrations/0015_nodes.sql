-- The processes that share a database, and whose chats are whose. A SQLite file has one process: node 0, without rows.
CREATE TABLE node (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    started_at REAL NOT NULL,
    is_leaving INTEGER NOT NULL DEFAULT 0,
    ended_at REAL
) STRICT;
CREATE TABLE chat_owner (
    channel TEXT NOT NULL,
    workspace TEXT NOT NULL,
    chat TEXT NOT NULL,
    node INTEGER NOT NULL,
    PRIMARY KEY (channel, workspace, chat)
) STRICT, WITHOUT ROWID;
CREATE INDEX chat_owner_by_node ON chat_owner (node);
-- What a signal between nodes is too short for; rows live for minutes.
CREATE TABLE node_message (
    id TEXT NOT NULL PRIMARY KEY,
    body TEXT NOT NULL,
    created_at REAL NOT NULL
) STRICT, WITHOUT ROWID;
-- The node that executes a run.
ALTER TABLE run ADD COLUMN node INTEGER NOT NULL DEFAULT 0;
