-- Secrets that a channel received at run time, such as the tokens of Slack workspaces that installed the app.
-- `secret` is AES-256-GCM under the key in the data folder: nonce, tag, ciphertext.
CREATE TABLE credential (
    channel TEXT NOT NULL,
    name TEXT NOT NULL,
    secret BLOB NOT NULL,
    updated_at REAL NOT NULL,
    PRIMARY KEY (channel, name)
) STRICT, WITHOUT ROWID;
