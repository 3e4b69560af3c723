-- What is to be posted about runs that have ended: rows live until that is done, or given up.
CREATE TABLE run_webhook (
    run_id TEXT NOT NULL PRIMARY KEY,
    url TEXT NOT NULL,
    body TEXT NOT NULL,
    -- The node that posts it.
    node INTEGER NOT NULL DEFAULT 0
) STRICT;
