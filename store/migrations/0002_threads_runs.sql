-- Threads and runs of the LangGraph-compatible API. Times are Unix seconds; metadata, kwargs, error and
-- interrupts are JSON. A thread's state is not here: it lies in the checkpoints.

CREATE TABLE thread (
    thread_id TEXT PRIMARY KEY,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    state_updated_at REAL NOT NULL,
    metadata TEXT NOT NULL DEFAULT '{}',
    status TEXT NOT NULL DEFAULT 'idle' CHECK (status IN ('idle', 'busy', 'interrupted', 'error')),
    title TEXT,
    error TEXT,
    interrupts TEXT NOT NULL DEFAULT '{}'
) STRICT;
CREATE INDEX thread_by_use ON thread (updated_at);

CREATE TABLE run (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    run_id TEXT NOT NULL UNIQUE,
    thread_id TEXT NOT NULL REFERENCES thread (thread_id) ON DELETE CASCADE,
    assistant_id TEXT NOT NULL,
    status TEXT NOT NULL
        CHECK (status IN ('pending', 'running', 'success', 'error', 'timeout', 'interrupted')),
    metadata TEXT NOT NULL DEFAULT '{}',
    kwargs TEXT NOT NULL DEFAULT '{}',
    multitask_strategy TEXT NOT NULL,
    error TEXT,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL
) STRICT;
CREATE INDEX run_by_thread ON run (thread_id, seq);
CREATE INDEX run_unfinished ON run (thread_id) WHERE status IN ('pending', 'running');
