-- What people chose for a conversation: a model, a custom agent. NULL = as configured.

CREATE TABLE choice (
    channel TEXT NOT NULL,
    workspace TEXT NOT NULL,
    chat TEXT NOT NULL,
    topic TEXT NOT NULL,
    model TEXT,
    agent TEXT,
    updated_at REAL NOT NULL,
    PRIMARY KEY (channel, workspace, chat, topic)
) STRICT, WITHOUT ROWID;
