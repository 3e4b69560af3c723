-- Named tokens of the API. Only a hash of each is kept; the admin token of the data folder is not here.
-- `thread_id` is the only thread that a token of scope `thread` reaches, '' for the others.
CREATE TABLE api_token (
    name TEXT NOT NULL PRIMARY KEY,
    digest TEXT NOT NULL UNIQUE,
    scope TEXT NOT NULL,
    thread_id TEXT NOT NULL,
    created_at REAL NOT NULL,
    expires_at REAL
) STRICT, WITHOUT ROWID;
