-- The journal of the bus. Times are Unix seconds. Written in the common subset with PostgreSQL except for
-- STRICT, WITHOUT ROWID and AUTOINCREMENT (there: GENERATED ALWAYS AS IDENTITY).

-- One place where people talk. owner and epoch are the lease of the node that runs it (always 1 and 0 here).
CREATE TABLE conversation (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    channel TEXT NOT NULL,
    workspace TEXT NOT NULL,
    chat TEXT NOT NULL,
    topic TEXT NOT NULL DEFAULT '',
    thread_id TEXT,
    last_seq INTEGER NOT NULL DEFAULT 0,
    pending INTEGER NOT NULL DEFAULT 0 CHECK (pending >= 0), -- chat rows in state new or running
    owner INTEGER DEFAULT 1,
    epoch INTEGER NOT NULL DEFAULT 0,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    UNIQUE (channel, workspace, chat, topic)
) STRICT;
CREATE INDEX conversation_by_use ON conversation (updated_at, id);

-- What was accepted. Ids are never used twice: the keys of deliveries are made from them.
CREATE TABLE inbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    conversation_id INTEGER NOT NULL REFERENCES conversation (id),
    seq INTEGER NOT NULL,
    event_id TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('chat', 'command')),
    body TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'new' CHECK (state IN ('new', 'running', 'done', 'dead')),
    attempts INTEGER NOT NULL DEFAULT 0,
    thread_id TEXT,
    run_id TEXT,
    received_at REAL NOT NULL,
    UNIQUE (conversation_id, seq)
) STRICT;
CREATE INDEX inbox_unfinished ON inbox (conversation_id, seq) WHERE state IN ('new', 'running');
CREATE INDEX inbox_finished ON inbox (received_at) WHERE state IN ('done', 'dead');

-- Platform ids that were seen: of deliveries (kind event, chat '') and of messages within their chat.
CREATE TABLE seen (
    channel TEXT NOT NULL,
    workspace TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('event', 'message')),
    chat TEXT NOT NULL,
    external_id TEXT NOT NULL,
    seen_at REAL NOT NULL,
    PRIMARY KEY (channel, workspace, kind, chat, external_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX seen_by_age ON seen (seen_at);

-- What is owed to the platforms.
CREATE TABLE outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL UNIQUE,
    conversation_id INTEGER NOT NULL REFERENCES conversation (id),
    body TEXT NOT NULL,
    state TEXT NOT NULL DEFAULT 'pending'
        CHECK (state IN ('pending', 'sending', 'delivered', 'uncertain', 'failed')),
    attempts INTEGER NOT NULL DEFAULT 0,
    not_before REAL NOT NULL DEFAULT 0,
    platform_id TEXT,
    error TEXT,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL
) STRICT;
CREATE INDEX outbox_open ON outbox (conversation_id, id) WHERE state IN ('pending', 'sending');
CREATE INDEX outbox_by_state ON outbox (state, id);

-- Which topic a platform message was said in, so that a reply to it finds the conversation.
CREATE TABLE origin (
    channel TEXT NOT NULL,
    workspace TEXT NOT NULL,
    chat TEXT NOT NULL,
    message_id TEXT NOT NULL,
    topic TEXT NOT NULL,
    PRIMARY KEY (channel, workspace, chat, message_id)
) STRICT, WITHOUT ROWID;

-- Strangers who asked to be let in, and who was.
CREATE TABLE pairing (
    code TEXT PRIMARY KEY,
    channel TEXT NOT NULL,
    workspace TEXT NOT NULL,
    user_id TEXT NOT NULL,
    user_name TEXT NOT NULL,
    chat TEXT NOT NULL,
    created_at REAL NOT NULL,
    approved_at REAL
) STRICT;
CREATE INDEX pairing_by_person ON pairing (channel, workspace, user_id);
