-- What a turn ended with asking: options of a question, approvals that the agent waits for (JSON, bus/asking.py).
ALTER TABLE inbox ADD COLUMN asks TEXT;
CREATE INDEX inbox_asking ON inbox (conversation_id, seq) WHERE asks IS NOT NULL;
