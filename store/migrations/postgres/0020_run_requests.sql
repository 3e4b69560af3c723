CREATE TABLE run_request (
    run_id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    thread_id TEXT COLLATE "C" REFERENCES thread (thread_id) ON DELETE CASCADE,
    node BIGINT NOT NULL,
    attempt BIGINT NOT NULL DEFAULT 1,
    crashes BIGINT NOT NULL DEFAULT 0,
    body TEXT COLLATE "C" NOT NULL,
    created_at DOUBLE PRECISION NOT NULL
);
CREATE INDEX run_request_by_thread ON run_request (thread_id);
