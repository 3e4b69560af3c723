-- Assistants of the LangGraph-compatible API that were made, or changed, over it: a graph with settings of its own,
-- in versions of which one is in force. Times are Unix seconds; config, context and metadata are JSON objects.

CREATE TABLE assistant (
    assistant_id TEXT PRIMARY KEY,
    version INTEGER NOT NULL,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL
) STRICT;

CREATE TABLE assistant_version (
    assistant_id TEXT NOT NULL REFERENCES assistant (assistant_id) ON DELETE CASCADE,
    version INTEGER NOT NULL,
    graph_id TEXT NOT NULL,
    name TEXT NOT NULL,
    description TEXT,
    config TEXT NOT NULL,
    context TEXT NOT NULL,
    metadata TEXT NOT NULL,
    made_at REAL NOT NULL,
    PRIMARY KEY (assistant_id, version)
) STRICT, WITHOUT ROWID;
