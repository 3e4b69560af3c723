-- When an outbox row was sent first and last, and how many of its attempts have an unknown outcome.
-- first_sent_at starts the platform's idempotency window. Until now `error` held the text below instead.

ALTER TABLE outbox ADD COLUMN first_sent_at REAL;
ALTER TABLE outbox ADD COLUMN last_sent_at REAL;
ALTER TABLE outbox ADD COLUMN uncertain_attempts INTEGER NOT NULL DEFAULT 0;
UPDATE outbox SET first_sent_at = created_at, last_sent_at = updated_at
WHERE attempts > 0 AND state IN ('pending', 'sending');
UPDATE outbox SET uncertain_attempts = 1, error = 'outcome unknown'
WHERE error = 'in doubt: repeated once' AND state IN ('pending', 'sending');
