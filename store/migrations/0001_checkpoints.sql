-- The tables of SQLite's second file: the states of threads. On PostgreSQL they are in the one database.

-- The steps of this folder that were applied to the file.
CREATE TABLE parley_schema (
    version INTEGER PRIMARY KEY,
    applied_at REAL NOT NULL
) STRICT;

-- The state of a thread after each step of its graph (LangGraph's checkpoints).
CREATE TABLE checkpoints (
    thread_id TEXT NOT NULL,
    checkpoint_ns TEXT NOT NULL DEFAULT '', -- the subgraph; '': the graph itself
    checkpoint_id TEXT NOT NULL,
    parent_checkpoint_id TEXT,
    type TEXT,
    checkpoint BLOB,
    metadata TEXT, -- JSON
    chunks TEXT, -- JSON: the names of the message chunks that it needs; NULL: none
    PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id)
);

-- Writes of tasks after a checkpoint and before the next one.
CREATE TABLE writes (
    thread_id TEXT NOT NULL,
    checkpoint_ns TEXT NOT NULL DEFAULT '',
    checkpoint_id TEXT NOT NULL,
    task_id TEXT NOT NULL,
    idx INTEGER NOT NULL,
    channel TEXT NOT NULL,
    type TEXT,
    value BLOB,
    task_path TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (thread_id, checkpoint_ns, checkpoint_id, task_id, idx)
);

-- Pieces of message lists that checkpoints of a thread share.
CREATE TABLE message_chunks (
    thread_id TEXT NOT NULL,
    name TEXT NOT NULL, -- the hash of its bytes
    type TEXT NOT NULL,
    value BLOB NOT NULL, -- compressed by zlib
    PRIMARY KEY (thread_id, name)
);
