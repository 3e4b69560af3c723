-- While a snapshot is held open, PostgreSQL keeps each version of a row that was changed since, and whatever reads the row
-- passes all of them. So a message no longer changes the row of its conversation, nor that of its chat's owner: it locks
-- them. The place of a message follows that of the last one in the inbox, or `last_seq`, if that is higher; `pending` is
-- not counted any more; `updated_at` is set once a minute. Deletion raises `last_seq`, so that no place is given twice.

-- As 0022, which nodes with the version before go on calling.
CREATE FUNCTION parley_accept(
    its_channel text, its_workspace text, its_chat text, its_topic text, its_event_id text, its_message_id text,
    its_kind text, its_body text, at double precision, replies_to text, is_remembered bigint, may_start bigint,
    cap bigint, me bigint, preferred bigint, known_conversation bigint, known_open_from bigint,
    OUT outcome text, OUT accepted_id bigint, OUT in_conversation bigint, OUT place bigint, OUT found_topic text,
    OUT bound_thread_id text, OUT has_new_thread boolean, OUT follows_question boolean, OUT is_started boolean,
    OUT owner_node bigint, OUT earlier_ids text, OUT open_from bigint
) LANGUAGE plpgsql AS $$
DECLARE
    stored bigint;
    waiting bigint;
    is_known boolean;
    used_at double precision;
BEGIN
    outcome := 'declined';
    owner_node := me;
    IF preferred IS NOT NULL THEN
        PERFORM 1 FROM chat_migration
        WHERE channel = its_channel AND workspace = its_workspace AND old_chat = its_chat;
        IF FOUND THEN
            RETURN;
        END IF;
        SELECT node INTO owner_node FROM chat_owner
        WHERE channel = its_channel AND workspace = its_workspace AND chat = its_chat
        AND EXISTS (SELECT 1 FROM node WHERE number = chat_owner.node AND ended_at IS NULL)
        FOR NO KEY UPDATE OF chat_owner;
        IF NOT FOUND THEN
            INSERT INTO chat_owner (channel, workspace, chat, node)
            VALUES (its_channel, its_workspace, its_chat, preferred)
            ON CONFLICT (channel, workspace, chat) DO UPDATE SET node = CASE
                WHEN EXISTS (SELECT 1 FROM node WHERE number = chat_owner.node AND ended_at IS NULL)
                THEN chat_owner.node ELSE excluded.node END
            RETURNING node INTO owner_node;
        END IF;
    END IF;

    INSERT INTO received_id (channel, workspace, kind, chat, external_id, received_at)
    SELECT its_channel, its_workspace, 'event', '', its_event_id, at
    UNION ALL SELECT its_channel, its_workspace, 'message', its_chat, its_message_id, at WHERE its_message_id <> ''
    ON CONFLICT (channel, workspace, kind, chat, external_id) DO NOTHING;
    GET DIAGNOSTICS stored = ROW_COUNT;
    IF stored < 1 + CAST(its_message_id <> '' AS integer) THEN
        outcome := 'duplicate';
        RETURN;
    END IF;

    found_topic := its_topic;
    IF replies_to <> '[]' THEN
        SELECT message_topic.topic INTO found_topic
        FROM json_array_elements_text(replies_to::json) WITH ORDINALITY AS replied (id, distance)
        JOIN message_topic ON message_topic.message_id = replied.id
        WHERE channel = its_channel AND workspace = its_workspace AND chat = its_chat
        ORDER BY distance LIMIT 1;
        IF NOT FOUND THEN
            found_topic := its_topic;
        END IF;
    END IF;

    SELECT id, thread_id, last_seq, updated_at INTO in_conversation, bound_thread_id, place, used_at FROM conversation
    WHERE channel = its_channel AND workspace = its_workspace AND chat = its_chat AND topic = found_topic
    FOR NO KEY UPDATE;
    is_known := FOUND;
    IF NOT is_known THEN
        PERFORM 1 FROM chat_migration
        WHERE channel = its_channel AND workspace = its_workspace AND old_chat = its_chat;
        is_known := NOT FOUND;
        IF is_known THEN
            INSERT INTO conversation (channel, workspace, chat, topic, created_at, updated_at)
            VALUES (its_channel, its_workspace, its_chat, found_topic, at, at)
            ON CONFLICT (channel, workspace, chat, topic) DO UPDATE SET updated_at = conversation.updated_at
            RETURNING id, thread_id, last_seq, updated_at INTO in_conversation, bound_thread_id, place, used_at;
        END IF;
    END IF;

    -- After the row is locked: what others have just committed is seen.
    SELECT count(*) FILTER (WHERE state = 'new' AND kind = 'chat'), coalesce(string_agg(id::text, ','), ''), min(seq)
    INTO waiting, earlier_ids, open_from
    FROM inbox WHERE conversation_id = in_conversation AND state IN ('new', 'running')
    AND seq >= CASE WHEN in_conversation = known_conversation THEN known_open_from ELSE 0 END;
    IF NOT is_known OR (its_kind = 'chat' AND waiting >= cap) THEN
        DELETE FROM received_id WHERE channel = its_channel AND workspace = its_workspace AND (
            (kind = 'event' AND chat = '' AND external_id = its_event_id)
            OR (kind = 'message' AND chat = its_chat AND external_id = its_message_id));
        RETURN;
    END IF;
    IF is_remembered = 1 AND its_message_id <> '' THEN
        INSERT INTO message_topic (channel, workspace, chat, message_id, topic, created_at)
        VALUES (its_channel, its_workspace, its_chat, its_message_id, found_topic, at)
        ON CONFLICT (channel, workspace, chat, message_id) DO UPDATE SET topic = excluded.topic;
    END IF;

    is_started := may_start = 1 AND earlier_ids = '' AND owner_node = me;
    has_new_thread := is_started AND bound_thread_id IS NULL;
    follows_question := is_started AND EXISTS (
        SELECT 1 FROM inbox WHERE conversation_id = in_conversation AND question IS NOT NULL);
    place := greatest(place, (SELECT max(seq) FROM inbox WHERE conversation_id = in_conversation)) + 1;
    IF has_new_thread THEN
        bound_thread_id := gen_random_uuid();
    END IF;
    IF has_new_thread OR used_at < at - 60 THEN
        UPDATE conversation SET thread_id = bound_thread_id, updated_at = at WHERE id = in_conversation;
    END IF;
    INSERT INTO inbox (conversation_id, seq, event_id, message_id, kind, body, received_at, state, attempts, thread_id)
    VALUES (in_conversation, place, its_event_id, its_message_id, its_kind, its_body, at,
        CASE WHEN is_started THEN 'running' ELSE 'new' END, CAST(is_started AS integer),
        CASE WHEN is_started THEN bound_thread_id END)
    RETURNING id INTO accepted_id;
    open_from := coalesce(open_from, place);
    outcome := 'accepted';
END $$;

CREATE FUNCTION parley_keep_last_seq() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE conversation SET last_seq = last.seq
    FROM (SELECT conversation_id, max(seq) AS seq FROM deleted GROUP BY conversation_id) AS last
    WHERE id = last.conversation_id AND last_seq < last.seq;
    RETURN NULL;
END $$;
CREATE TRIGGER inbox_keep_last_seq AFTER DELETE ON inbox REFERENCING OLD TABLE AS deleted
    FOR EACH STATEMENT EXECUTE FUNCTION parley_keep_last_seq();

-- With the ID, which searches for what is newer compare without a look at the rows.
DROP INDEX inbox_unfinished;
CREATE INDEX inbox_unfinished ON inbox (conversation_id, seq, id) WHERE state IN ('new', 'running');

-- Nodes with the version before still count in the row: they get what they would if all nodes did.
CREATE FUNCTION parley_count_messages() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.last_seq = OLD.last_seq + 1 THEN
        NEW.last_seq := greatest(OLD.last_seq, (SELECT max(seq) FROM inbox WHERE conversation_id = NEW.id)) + 1;
    END IF;
    NEW.pending := greatest(NEW.pending - OLD.pending, 0) + (
        SELECT count(*) FROM inbox
        WHERE conversation_id = NEW.id AND state IN ('new', 'running') AND kind = 'chat');
    RETURN NEW;
END $$;
CREATE TRIGGER conversation_count_messages BEFORE UPDATE OF last_seq, pending ON conversation
    FOR EACH ROW WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION parley_count_messages();
