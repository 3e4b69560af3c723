-- What is needed to start a run again whose process ended: rows live as long as the run.
CREATE TABLE run_request (
    run_id TEXT NOT NULL PRIMARY KEY,
    -- Empty: a run without a thread of its own.
    thread_id TEXT REFERENCES thread (thread_id) ON DELETE CASCADE,
    -- The node that executes it; -1: a node that stopped has handed it over.
    node INTEGER NOT NULL,
    attempt INTEGER NOT NULL DEFAULT 1,
    -- Attempts that ended with their process.
    crashes INTEGER NOT NULL DEFAULT 0,
    body TEXT NOT NULL,
    created_at REAL NOT NULL
) STRICT;
CREATE INDEX run_request_by_thread ON run_request (thread_id);
