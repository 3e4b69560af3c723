-- Chats that got another id: a Telegram group that became a supergroup. What is still known by the old id is found.

CREATE TABLE moved_chat (
    channel TEXT NOT NULL,
    workspace TEXT NOT NULL,
    chat TEXT NOT NULL,
    now_chat TEXT NOT NULL,
    PRIMARY KEY (channel, workspace, chat)
) STRICT, WITHOUT ROWID;
