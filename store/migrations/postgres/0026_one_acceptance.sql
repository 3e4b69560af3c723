-- store/inbox_accept.py accepts messages on both engines. Retention keeps `last_seq` (store/retention.py).
DROP TRIGGER conversation_count_messages ON conversation;
DROP TRIGGER inbox_keep_last_seq ON inbox;
DROP FUNCTION parley_count_messages, parley_keep_last_seq;
DO $$ DECLARE
    accepting regprocedure;
BEGIN
    FOR accepting IN SELECT oid FROM pg_proc WHERE proname = 'parley_accept' LOOP
        EXECUTE 'DROP FUNCTION ' || accepting;
    END LOOP;
END $$;
