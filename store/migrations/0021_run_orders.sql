-- What was accepted for a run and may not be carried out when its process ends.
-- Empty: nobody canceled it.
ALTER TABLE run_request ADD COLUMN cancel_action TEXT;
-- Injected messages, each one line of JSON.
ALTER TABLE run_request ADD COLUMN messages TEXT NOT NULL DEFAULT '';
