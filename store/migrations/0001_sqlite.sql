-- The tables of Parley's SQLite file. 0001_postgres.sql creates the same tables for PostgreSQL, and the tables through
-- which nodes exchange data. 0001_checkpoints.sql creates the tables of the second SQLite file. Times are Unix seconds.
-- JSON is text.

-- The steps of this folder that were applied to the database.
CREATE TABLE parley_schema (
    version INTEGER PRIMARY KEY,
    applied_at REAL NOT NULL
) STRICT;


-- CONVERSATIONS AND THEIR MESSAGES

-- A place where people talk to a bot, and the thread it is bound to.
CREATE TABLE conversation (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    channel TEXT NOT NULL,
    workspace TEXT NOT NULL,
    chat TEXT NOT NULL,
    topic TEXT NOT NULL DEFAULT '', -- '': the chat itself
    thread_id TEXT,
    last_seq INTEGER NOT NULL DEFAULT 0, -- the position of the last message that was deleted, if any
    taken_over_by TEXT, -- the person who answers instead of the agent; NULL: the agent answers
    taken_over_at REAL,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL, -- when it was last used, up to a minute too early
    UNIQUE (channel, workspace, chat, topic)
) STRICT;
CREATE INDEX conversation_by_use ON conversation (updated_at, id);
CREATE INDEX conversation_by_thread ON conversation (thread_id) WHERE thread_id IS NOT NULL;
CREATE INDEX conversation_taken_over ON conversation (id) WHERE taken_over_by IS NOT NULL;

-- Accepted messages. An ID is never reused, because the keys of deliveries contain it.
CREATE TABLE inbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    conversation_id INTEGER NOT NULL REFERENCES conversation (id),
    seq INTEGER NOT NULL, -- its position in the conversation
    event_id TEXT NOT NULL,
    message_id TEXT NOT NULL DEFAULT '', -- the platform's ID, to find it when it is edited or deleted
    kind TEXT NOT NULL CHECK (kind IN ('chat', 'command')),
    body TEXT NOT NULL, -- JSON (bus/messages.py)
    state TEXT NOT NULL DEFAULT 'new' CHECK (state IN ('new', 'running', 'done', 'dead')),
    starts INTEGER NOT NULL DEFAULT 0, -- how often its turn was started
    thread_id TEXT, -- the thread of its turn
    run_id TEXT,
    question TEXT, -- JSON: the question that its turn ended with
    speech TEXT, -- JSON: the transcripts of its recordings
    outcome TEXT, -- failed, waiting, silent, stopped, interrupted, deleted, joined or taken_over; NULL: not ended, or answered
    problem TEXT, -- why it failed, for administrators
    signed_at REAL, -- when people saw the first sign of its turn; NULL: not before the answer
    received_at REAL NOT NULL,
    UNIQUE (conversation_id, seq)
) STRICT;
CREATE INDEX inbox_unfinished ON inbox (conversation_id, seq) WHERE state IN ('new', 'running');
CREATE INDEX inbox_finished ON inbox (received_at, state, kind, outcome) WHERE state IN ('done', 'dead');
CREATE INDEX inbox_by_outcome ON inbox (outcome, id) WHERE outcome IS NOT NULL;
CREATE INDEX inbox_with_question ON inbox (conversation_id, seq) WHERE question IS NOT NULL;
CREATE INDEX inbox_by_message ON inbox (message_id) WHERE message_id <> '';

-- The words of accepted messages, their authors and chats, which administrators search.
CREATE TABLE message_words (
    inbox_id INTEGER PRIMARY KEY REFERENCES inbox (id) ON DELETE CASCADE,
    words TEXT NOT NULL
) STRICT;
CREATE VIRTUAL TABLE message_words_index USING fts5 (
    words, content = 'message_words', content_rowid = 'inbox_id', tokenize = 'ascii', detail = none
);
CREATE TRIGGER message_words_insert AFTER INSERT ON message_words BEGIN
    INSERT INTO message_words_index (rowid, words) VALUES (new.inbox_id, new.words);
END;
CREATE TRIGGER message_words_delete AFTER DELETE ON message_words BEGIN
    INSERT INTO message_words_index (message_words_index, rowid, words) VALUES ('delete', old.inbox_id, old.words);
END;

-- Messages that were not accepted, and why.
CREATE TABLE refused_message (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    channel TEXT NOT NULL,
    workspace TEXT NOT NULL,
    chat TEXT NOT NULL,
    topic TEXT NOT NULL,
    is_private INTEGER NOT NULL,
    place TEXT NOT NULL, -- the name of the group; '': unknown, or a private chat
    user_id TEXT NOT NULL,
    user_name TEXT NOT NULL,
    text TEXT NOT NULL, -- its beginning; '': it was not meant for the bot
    origin TEXT NOT NULL, -- the program that sent it in the person's name; '': the person sent it
    reason TEXT NOT NULL,
    received_at REAL NOT NULL,
    body TEXT NOT NULL -- the message without its text if it may be answered later, else ''
) STRICT;
CREATE INDEX refused_message_by_age ON refused_message (received_at);
CREATE INDEX refused_message_by_reason ON refused_message (reason, id);
CREATE INDEX refused_message_shown ON refused_message (id) WHERE reason <> 'not_addressed';

-- Platform IDs that were received before: IDs of events (chat is ''), and IDs of messages within their chat.
CREATE TABLE received_id (
    channel TEXT NOT NULL,
    workspace TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('event', 'message')),
    chat TEXT NOT NULL,
    external_id TEXT NOT NULL,
    received_at REAL NOT NULL,
    PRIMARY KEY (channel, workspace, kind, chat, external_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX received_id_by_age ON received_id (received_at);

-- Messages to send to the platforms.
CREATE TABLE outbox (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    key TEXT NOT NULL UNIQUE,
    conversation_id INTEGER NOT NULL REFERENCES conversation (id),
    body TEXT NOT NULL, -- JSON (bus/messages.py)
    state TEXT NOT NULL DEFAULT 'pending'
        CHECK (state IN ('pending', 'sending', 'delivered', 'uncertain', 'failed')),
    attempts INTEGER NOT NULL DEFAULT 0,
    uncertain_attempts INTEGER NOT NULL DEFAULT 0, -- attempts with an unknown outcome
    not_before REAL NOT NULL DEFAULT 0,
    first_sent_at REAL, -- the platform's idempotency window starts here
    last_sent_at REAL,
    platform_id TEXT, -- the platform's ID of the sent message
    error TEXT,
    failed_attempts TEXT NOT NULL DEFAULT '', -- one line of JSON each: at, error
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL
) STRICT;
CREATE INDEX outbox_open ON outbox (conversation_id, id) WHERE state IN ('pending', 'sending');
CREATE INDEX outbox_by_state ON outbox (state, id);
CREATE INDEX outbox_delivered ON outbox (updated_at) WHERE state = 'delivered';
CREATE INDEX outbox_undelivered ON outbox (updated_at) WHERE state IN ('failed', 'uncertain');
CREATE INDEX outbox_by_conversation ON outbox (conversation_id); -- for the foreign key
CREATE INDEX outbox_notifications ON outbox (conversation_id) WHERE key >= 'notification:' AND key < 'notification;';

-- Deliveries that an administrator discarded, as they were in the outbox, so that this can be undone.
CREATE TABLE discarded_delivery (
    id INTEGER PRIMARY KEY, -- its ID in the outbox
    key TEXT NOT NULL,
    conversation_id INTEGER NOT NULL REFERENCES conversation (id),
    body TEXT NOT NULL,
    state TEXT NOT NULL,
    attempts INTEGER NOT NULL,
    uncertain_attempts INTEGER NOT NULL,
    not_before REAL NOT NULL,
    first_sent_at REAL,
    last_sent_at REAL,
    platform_id TEXT,
    error TEXT,
    failed_attempts TEXT NOT NULL,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    batch TEXT NOT NULL, -- the request that discarded it
    discarded_at REAL NOT NULL
) STRICT;
CREATE INDEX discarded_delivery_by_age ON discarded_delivery (discarded_at);
CREATE INDEX discarded_delivery_by_batch ON discarded_delivery (batch);
CREATE INDEX discarded_delivery_by_key ON discarded_delivery (key);
CREATE INDEX discarded_delivery_by_conversation ON discarded_delivery (conversation_id); -- for the foreign key

-- The topic of each platform message, so that a reply to it finds its conversation.
CREATE TABLE message_topic (
    channel TEXT NOT NULL,
    workspace TEXT NOT NULL,
    chat TEXT NOT NULL,
    message_id TEXT NOT NULL,
    topic TEXT NOT NULL,
    created_at REAL NOT NULL,
    PRIMARY KEY (channel, workspace, chat, message_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX message_topic_by_age ON message_topic (created_at);

-- Settings that people chose by command. NULL: as configured.
CREATE TABLE conversation_settings (
    channel TEXT NOT NULL,
    workspace TEXT NOT NULL,
    chat TEXT NOT NULL,
    topic TEXT NOT NULL,
    model TEXT,
    agent TEXT,
    language TEXT,
    timezone TEXT, -- a person's
    updated_at REAL NOT NULL,
    PRIMARY KEY (channel, workspace, chat, topic)
) STRICT, WITHOUT ROWID;

-- Chats whose ID changed: Telegram groups that became supergroups.
CREATE TABLE chat_migration (
    channel TEXT NOT NULL,
    workspace TEXT NOT NULL,
    old_chat TEXT NOT NULL,
    new_chat TEXT NOT NULL,
    PRIMARY KEY (channel, workspace, old_chat)
) STRICT, WITHOUT ROWID;

-- Chats in which people wrote to the bot, as described by their newest message.
CREATE TABLE chat (
    channel TEXT NOT NULL,
    workspace TEXT NOT NULL,
    chat TEXT NOT NULL,
    is_private INTEGER NOT NULL,
    user_id TEXT NOT NULL, -- the author of the newest message
    user_kind TEXT NOT NULL,
    recipient TEXT NOT NULL, -- ReplyTarget.user
    room TEXT NOT NULL, -- its name in model_usage
    title TEXT NOT NULL, -- its name; '': unknown
    search TEXT NOT NULL, -- title and ID, case folded
    received_at REAL NOT NULL,
    PRIMARY KEY (channel, workspace, chat)
) STRICT, WITHOUT ROWID;
CREATE INDEX chat_by_age ON chat (received_at);
CREATE INDEX chat_by_id ON chat (channel, chat);
CREATE INDEX chat_by_person ON chat (channel, user_id) WHERE is_private = 1;
CREATE INDEX chat_by_room ON chat (room);

-- People who wrote to the bot, as described by their newest message.
CREATE TABLE person (
    id TEXT NOT NULL PRIMARY KEY, -- their name in model_usage
    channel TEXT NOT NULL,
    workspace TEXT NOT NULL,
    user_id TEXT NOT NULL,
    name TEXT NOT NULL, -- '': unknown
    kind TEXT NOT NULL, -- SenderKind
    search TEXT NOT NULL, -- name and ID, case folded
    messages INTEGER NOT NULL, -- number of messages, including commands
    received_at REAL NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX person_by_age ON person (received_at);
CREATE INDEX person_by_user ON person (channel, user_id);

-- Messages from API clients to one chat, or to many (broadcasts). The key of a broadcast is never reused. Other keys
-- are not reused while their row is kept.
CREATE TABLE notification (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    channel TEXT NOT NULL, -- '' = a broadcast
    key TEXT NOT NULL,
    digest TEXT NOT NULL, -- hash of the request
    text TEXT NOT NULL, -- '' once no chat waits for it
    files TEXT NOT NULL, -- JSON: its files in outbox_file; '' if it has none, or once the text is ''
    recipients TEXT NOT NULL, -- JSON: who gets it, as stated in the response to the request
    created_at REAL NOT NULL,
    UNIQUE (channel, key)
) STRICT;
CREATE INDEX notification_by_age ON notification (created_at) WHERE channel <> '';
CREATE INDEX notification_broadcasts ON notification (id) WHERE channel = '';

-- The chats that wait for a broadcast. The transaction that puts its message into the outbox deletes the row.
CREATE TABLE notification_chat (
    channel TEXT NOT NULL,
    notification_id INTEGER NOT NULL REFERENCES notification (id),
    workspace TEXT NOT NULL,
    chat TEXT NOT NULL,
    is_private INTEGER NOT NULL,
    recipient TEXT NOT NULL, -- ReplyTarget.user
    PRIMARY KEY (channel, notification_id, workspace, chat)
) STRICT, WITHOUT ROWID;
CREATE INDEX notification_chat_by_notification ON notification_chat (notification_id);

-- Files of notifications, in parts. All outbox rows of a notification send the same files.
CREATE TABLE outbox_file (
    file_id TEXT NOT NULL,
    part INTEGER NOT NULL,
    channel TEXT NOT NULL, -- with `key`: the notification, which may not be accepted yet
    key TEXT NOT NULL,
    content BLOB NOT NULL,
    created_at REAL NOT NULL,
    PRIMARY KEY (file_id, part)
) STRICT;
CREATE INDEX outbox_file_by_age ON outbox_file (created_at) WHERE part = 0;


-- ACCESS

-- People and groups that asked to use a bot. approved_at is NULL until an administrator approves them. A revoked row is
-- kept for an hour, during which the revocation can be undone.
CREATE TABLE pairing (
    code TEXT PRIMARY KEY,
    channel TEXT NOT NULL,
    workspace TEXT NOT NULL,
    user_id TEXT NOT NULL,
    user_name TEXT NOT NULL,
    chat TEXT NOT NULL,
    topic TEXT NOT NULL,
    text TEXT NOT NULL, -- the beginning of their message; '' once they are approved
    notice TEXT NOT NULL, -- the message that tells them (bus/messages.py); '' = none, or already sent
    created_at REAL NOT NULL,
    approved_at REAL,
    revoked_at REAL
) STRICT;
CREATE INDEX pairing_by_person ON pairing (channel, workspace, user_id);
CREATE INDEX pairing_open ON pairing (channel, created_at) WHERE approved_at IS NULL;
CREATE INDEX pairing_revoked ON pairing (revoked_at) WHERE revoked_at IS NOT NULL;

-- Secrets that a channel received at run time, such as the tokens of Slack workspaces that installed the app.
CREATE TABLE credential (
    channel TEXT NOT NULL,
    name TEXT NOT NULL,
    secret BLOB NOT NULL, -- AES-256-GCM under the key in the data folder: nonce, tag, ciphertext
    updated_at REAL NOT NULL,
    PRIMARY KEY (channel, name)
) STRICT, WITHOUT ROWID;

-- Named tokens of the API. The admin token is a file in the data folder.
CREATE TABLE api_token (
    name TEXT NOT NULL PRIMARY KEY,
    digest TEXT NOT NULL UNIQUE, -- the token itself is not stored
    scope TEXT NOT NULL,
    created_at REAL NOT NULL,
    expires_at REAL
) STRICT, WITHOUT ROWID;

-- Sessions of the console, and one-time links that open one.
CREATE TABLE console_session (
    id TEXT NOT NULL PRIMARY KEY,
    digest TEXT NOT NULL UNIQUE, -- the secret itself is not stored
    former_digest TEXT NOT NULL, -- its digest before the last rotation; '': none
    csrf TEXT NOT NULL,
    scope TEXT NOT NULL,
    token TEXT NOT NULL, -- the name of the token that opened it; '': the admin token
    token_digest TEXT NOT NULL,
    address TEXT NOT NULL, -- '': a link that has not been opened
    browser TEXT NOT NULL,
    created_at REAL NOT NULL,
    rotated_at REAL NOT NULL,
    expires_at REAL NOT NULL
) STRICT, WITHOUT ROWID;


-- SCHEDULES

-- Messages to chats, and API runs, at set times.
CREATE TABLE schedule (
    id TEXT PRIMARY KEY,
    channel TEXT NOT NULL, -- '': it starts API runs
    workspace TEXT NOT NULL,
    chat TEXT NOT NULL,
    topic TEXT NOT NULL,
    thread_id TEXT, -- the thread of its runs; NULL: a chat's schedule, or a new thread for each run
    assistant_id TEXT NOT NULL, -- the assistant of its runs; '': a chat's schedule
    name TEXT NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('once', 'every', 'cron')),
    expression TEXT NOT NULL,
    timezone TEXT NOT NULL,
    since REAL NOT NULL, -- periods count from here
    end_at REAL,
    active_hours TEXT NOT NULL,
    missed TEXT NOT NULL CHECK (missed IN ('once', 'skip')),
    overlap TEXT NOT NULL CHECK (overlap IN ('queue', 'skip', 'replace')),
    check_command TEXT NOT NULL, -- '': none
    check_digest TEXT NOT NULL, -- hash of the check's last output
    on_run_completed TEXT, -- for runs with new threads: delete or keep
    body TEXT NOT NULL, -- JSON: the message (bus/messages.py), or the run to start
    metadata TEXT NOT NULL, -- JSON
    is_enabled INTEGER NOT NULL,
    paused_because TEXT NOT NULL, -- '': it is enabled
    next_at REAL, -- NULL: it is not due anymore
    failures INTEGER NOT NULL, -- number of failures in a row
    fired_at REAL NOT NULL, -- when it was last due, by the clock of that time; 0 = never
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    owner TEXT NOT NULL -- ID of the person in whose name it runs; '': it starts API runs
) STRICT;
CREATE INDEX schedule_due ON schedule (next_at) WHERE is_enabled = 1 AND next_at IS NOT NULL;
CREATE INDEX schedule_by_age ON schedule (created_at, id);
CREATE INDEX schedule_ended ON schedule (updated_at) WHERE next_at IS NULL;
CREATE INDEX schedule_fired ON schedule (fired_at) WHERE is_enabled = 1;
CREATE INDEX schedule_by_chat ON schedule (channel, workspace, chat);
CREATE INDEX schedule_by_owner ON schedule (channel, workspace, owner);
CREATE INDEX schedule_by_thread ON schedule (thread_id) WHERE thread_id IS NOT NULL;

-- The outcome of each time at which a schedule was due.
CREATE TABLE schedule_occurrence (
    schedule_id TEXT NOT NULL REFERENCES schedule (id) ON DELETE CASCADE,
    due_at REAL NOT NULL,
    outcome TEXT NOT NULL CHECK (outcome IN (
        'queued', 'answered', 'silent', 'unchanged', 'skipped', 'missed', 'failed')),
    detail TEXT NOT NULL, -- why it failed or was skipped
    missed INTEGER NOT NULL, -- number of further times that it stands for, because the service was down
    inbox_id INTEGER, -- the message
    run_id TEXT, -- the API run
    thread_id TEXT, -- its thread
    created_at REAL NOT NULL,
    PRIMARY KEY (schedule_id, due_at)
) STRICT, WITHOUT ROWID;
CREATE INDEX schedule_occurrence_open ON schedule_occurrence (created_at) WHERE outcome = 'queued';
CREATE INDEX schedule_occurrence_by_age ON schedule_occurrence (created_at);


-- THREADS AND RUNS

-- Threads of the API. Their states are in the checkpoints.
CREATE TABLE thread (
    thread_id TEXT PRIMARY KEY,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    state_updated_at REAL NOT NULL,
    metadata TEXT NOT NULL DEFAULT '{}', -- JSON
    status TEXT NOT NULL DEFAULT 'idle' CHECK (status IN ('idle', 'busy', 'interrupted', 'error')),
    title TEXT,
    error TEXT, -- JSON
    interrupts TEXT NOT NULL DEFAULT '{}', -- JSON
    ttl_minutes REAL, -- NULL: the thread never expires
    ttl_strategy TEXT CHECK (ttl_strategy IN ('delete', 'keep_latest')),
    expires_at REAL
) STRICT;
CREATE INDEX thread_by_expiry ON thread (expires_at) WHERE expires_at IS NOT NULL;
CREATE INDEX thread_by_use ON thread (updated_at, thread_id);
CREATE INDEX thread_by_creation ON thread (created_at, thread_id);
CREATE INDEX thread_by_state_change ON thread (state_updated_at, thread_id);
CREATE INDEX thread_by_status ON thread (status, updated_at, thread_id);

-- The top-level fields of each thread's metadata; the triggers below write them. value is the type and the first 200
-- characters of the text or JSON: store/threads.py builds the same expression to search for it.
CREATE TABLE thread_metadata (
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    thread_id TEXT NOT NULL REFERENCES thread (thread_id) ON DELETE CASCADE,
    PRIMARY KEY (key, value, thread_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX thread_metadata_by_thread ON thread_metadata (thread_id);
CREATE TRIGGER thread_metadata_insert AFTER INSERT ON thread BEGIN
    INSERT OR IGNORE INTO thread_metadata
    SELECT key, substr(type || ':' || coalesce(value, ''), 1, 200), new.thread_id FROM json_each(new.metadata);
END;
CREATE TRIGGER thread_metadata_update AFTER UPDATE OF metadata ON thread WHEN new.metadata <> old.metadata BEGIN
    DELETE FROM thread_metadata WHERE thread_id = new.thread_id;
    INSERT OR IGNORE INTO thread_metadata
    SELECT key, substr(type || ':' || coalesce(value, ''), 1, 200), new.thread_id FROM json_each(new.metadata);
END;

-- Messages of people and the agent, for the tool `recall`. They are deleted with their thread.
CREATE TABLE past_message (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    scope TEXT NOT NULL, -- the person or room whose memory it belongs to
    agent TEXT NOT NULL, -- the custom agent; '': the lead agent
    thread_id TEXT NOT NULL REFERENCES thread (thread_id) ON DELETE CASCADE,
    message_id TEXT NOT NULL,
    speaker TEXT NOT NULL, -- '': the agent
    text TEXT NOT NULL,
    words TEXT NOT NULL, -- the words that a search finds (store/past_messages.py)
    said_at REAL NOT NULL,
    UNIQUE (thread_id, message_id)
) STRICT;
CREATE INDEX past_message_by_scope ON past_message (scope, agent);
CREATE INDEX past_message_by_age ON past_message (said_at);
CREATE VIRTUAL TABLE past_message_words USING fts5 (
    words, content = 'past_message', content_rowid = 'id', tokenize = 'ascii'
);
CREATE TRIGGER past_message_insert AFTER INSERT ON past_message BEGIN
    INSERT INTO past_message_words (rowid, words) VALUES (new.id, new.words);
END;
CREATE TRIGGER past_message_delete AFTER DELETE ON past_message BEGIN
    INSERT INTO past_message_words (past_message_words, rowid, words) VALUES ('delete', old.id, old.words);
END;

-- Tool calls that a guardrail denied, or that a person rejected or approved. Deleted with their thread.
CREATE TABLE guardrail_decision (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    outcome TEXT NOT NULL CHECK (outcome IN ('denied', 'rejected', 'approved')),
    tool TEXT NOT NULL,
    server TEXT NOT NULL, -- the MCP server of the tool; '': none
    code TEXT NOT NULL, -- why, for programs; '': a person approved it
    policy TEXT NOT NULL, -- the provider's name for the rule; '': none
    reason TEXT NOT NULL, -- why, for people
    is_subagent INTEGER NOT NULL,
    thread_id TEXT REFERENCES thread (thread_id) ON DELETE CASCADE,
    person TEXT NOT NULL, -- as in model_usage
    room TEXT NOT NULL,
    created_at REAL NOT NULL
) STRICT;
CREATE INDEX guardrail_decision_by_age ON guardrail_decision (created_at);
CREATE INDEX guardrail_decision_by_person ON guardrail_decision (person);
CREATE INDEX guardrail_decision_by_room ON guardrail_decision (room);
CREATE INDEX guardrail_decision_by_thread ON guardrail_decision (thread_id); -- for the foreign key

-- Runs on threads.
CREATE TABLE run (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    run_id TEXT NOT NULL UNIQUE,
    thread_id TEXT NOT NULL REFERENCES thread (thread_id) ON DELETE CASCADE,
    assistant_id TEXT NOT NULL,
    status TEXT NOT NULL
        CHECK (status IN ('pending', 'running', 'success', 'error', 'timeout', 'interrupted')),
    metadata TEXT NOT NULL DEFAULT '{}', -- JSON
    kwargs TEXT NOT NULL DEFAULT '{}', -- JSON
    multitask_strategy TEXT NOT NULL,
    error TEXT, -- JSON
    node INTEGER NOT NULL DEFAULT 0, -- the node that executes it
    start_key TEXT, -- the start key of the request; NULL = none
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL
) STRICT;
CREATE INDEX run_by_thread ON run (thread_id, seq);
-- A repeated request finds its run, unless the run failed.
CREATE UNIQUE INDEX run_by_start_key ON run (thread_id, start_key)
    WHERE start_key IS NOT NULL AND status IN ('pending', 'running', 'success');
CREATE INDEX run_unfinished ON run (thread_id) WHERE status IN ('pending', 'running');
CREATE INDEX run_finished ON run (updated_at)
    WHERE status IN ('success', 'error', 'timeout', 'interrupted');

-- The requests of unfinished runs, to start them again if their process ends. A row is deleted when its run ends.
CREATE TABLE run_request (
    run_id TEXT NOT NULL PRIMARY KEY,
    thread_id TEXT REFERENCES thread (thread_id) ON DELETE CASCADE, -- NULL: the run has no thread
    node INTEGER NOT NULL, -- the node that executes it; -1: a node handed it over when it stopped
    attempt INTEGER NOT NULL DEFAULT 1,
    crashes INTEGER NOT NULL DEFAULT 0, -- number of attempts that ended with a crash of their process
    body TEXT NOT NULL, -- JSON
    cancel_action TEXT, -- NULL: the run was not canceled
    messages TEXT NOT NULL DEFAULT '', -- injected messages, each one line of JSON
    created_at REAL NOT NULL
) STRICT;
CREATE INDEX run_request_by_thread ON run_request (thread_id);

-- Webhook calls about ended runs. A row is deleted when its call succeeds or is given up.
CREATE TABLE run_webhook (
    run_id TEXT NOT NULL PRIMARY KEY,
    url TEXT NOT NULL,
    body TEXT NOT NULL,
    node INTEGER NOT NULL DEFAULT 0 -- the node that makes the call
) STRICT;

-- Assistants that were created or changed over the API, with the active version of each.
CREATE TABLE assistant (
    assistant_id TEXT PRIMARY KEY,
    version INTEGER NOT NULL,
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL
) STRICT;

-- All versions of the assistants.
CREATE TABLE assistant_version (
    assistant_id TEXT NOT NULL REFERENCES assistant (assistant_id) ON DELETE CASCADE,
    version INTEGER NOT NULL,
    graph_id TEXT NOT NULL,
    name TEXT NOT NULL,
    description TEXT,
    config TEXT NOT NULL, -- JSON
    context TEXT NOT NULL, -- JSON
    metadata TEXT NOT NULL, -- JSON
    created_at REAL NOT NULL,
    PRIMARY KEY (assistant_id, version)
) STRICT, WITHOUT ROWID;

-- Items of the API's key-value store.
CREATE TABLE item (
    namespace TEXT NOT NULL, -- its labels, each followed by a dot: `users.1.`
    key TEXT NOT NULL,
    value TEXT NOT NULL, -- JSON
    created_at REAL NOT NULL,
    updated_at REAL NOT NULL,
    ttl_minutes REAL, -- NULL: the item never expires
    expires_at REAL,
    PRIMARY KEY (namespace, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX item_by_expiry ON item (expires_at) WHERE expires_at IS NOT NULL;


-- USAGE

-- Usage of model calls: one row for each run (or call outside of runs), UTC day, kind of call, model and agent.
CREATE TABLE model_usage (
    day TEXT NOT NULL, -- 2026-11-28
    run_id TEXT NOT NULL, -- '': the sum of rows older than the retention
    kind TEXT NOT NULL, -- run, subagent, title, summarize, memory ...
    model TEXT NOT NULL, -- an entry of `models`
    agent TEXT NOT NULL,
    person TEXT NOT NULL, -- channel:workspace:user; '': unknown or forgotten
    room TEXT NOT NULL, -- channel:workspace:chat; '': unknown or forgotten
    topic TEXT NOT NULL,
    calls INTEGER NOT NULL,
    estimated_calls INTEGER NOT NULL, -- calls whose server reported no usage
    unpriced_calls INTEGER NOT NULL, -- calls of models without a price
    input_tokens INTEGER NOT NULL, -- including the cached ones
    cached_tokens INTEGER NOT NULL,
    output_tokens INTEGER NOT NULL, -- including reasoning
    reasoning_tokens INTEGER NOT NULL,
    cost_nano_usd INTEGER NOT NULL,
    started_at REAL NOT NULL, -- time of its first call
    PRIMARY KEY (day, run_id, kind, model, agent)
) STRICT, WITHOUT ROWID;
CREATE INDEX model_usage_by_time ON model_usage (started_at, input_tokens, output_tokens, cost_nano_usd);
CREATE INDEX model_usage_by_person ON model_usage (person, day);
CREATE INDEX model_usage_by_room ON model_usage (room, day);

-- The usage that counts against each limit in a day or month. Rows exist only for configured limits.
CREATE TABLE usage_counter (
    scope TEXT NOT NULL CHECK (scope IN ('person', 'room', 'agent', 'service')),
    name TEXT NOT NULL,
    period TEXT NOT NULL, -- 2026-11-28 or 2026-11
    tokens INTEGER NOT NULL,
    cost_nano_usd INTEGER NOT NULL,
    reserved_tokens INTEGER NOT NULL DEFAULT 0, -- reserved by calls that have not ended
    reserved_nano_usd INTEGER NOT NULL DEFAULT 0,
    is_warned INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (scope, name, period)
) STRICT, WITHOUT ROWID;
CREATE INDEX usage_counter_by_period ON usage_counter (period);

-- Reservations of model calls that have not ended. If a process ends, another one settles its reservations.
CREATE TABLE usage_reservation (
    id TEXT NOT NULL PRIMARY KEY,
    node INTEGER NOT NULL,
    body TEXT NOT NULL -- JSON: the counters, and the row to write if the call never settles it
) STRICT, WITHOUT ROWID;


-- NODES

-- The processes that share a PostgreSQL database. The one process of a SQLite file is node 0 and has no row.
CREATE TABLE node (
    number INTEGER PRIMARY KEY,
    name TEXT NOT NULL,
    started_at REAL NOT NULL,
    is_ready INTEGER NOT NULL DEFAULT 1, -- it receives signals and can take work
    is_leaving INTEGER NOT NULL DEFAULT 0,
    ended_at REAL
) STRICT;

-- The node that answers in each chat.
CREATE TABLE chat_owner (
    channel TEXT NOT NULL,
    workspace TEXT NOT NULL,
    chat TEXT NOT NULL,
    node INTEGER NOT NULL,
    PRIMARY KEY (channel, workspace, chat)
) STRICT, WITHOUT ROWID;
CREATE INDEX chat_owner_by_node ON chat_owner (node);


-- FILES IN A BUCKET

-- Folders that are copied as a whole, such as the folder of a thread.
CREATE TABLE file_area (
    area TEXT NOT NULL PRIMARY KEY,
    version INTEGER NOT NULL -- grows with each change
) STRICT, WITHOUT ROWID;

-- Their files, and the object with the content of each file.
CREATE TABLE stored_file (
    area TEXT NOT NULL,
    path TEXT NOT NULL, -- percent-encoded: file names are bytes
    kind TEXT NOT NULL,
    object TEXT NOT NULL,
    size INTEGER NOT NULL,
    mode INTEGER NOT NULL,
    modified_ns INTEGER NOT NULL,
    target TEXT NOT NULL, -- the target of a link
    PRIMARY KEY (area, path)
) STRICT, WITHOUT ROWID;
