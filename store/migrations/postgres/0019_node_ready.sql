-- Whether work may be given to a node: it listens. Nodes of earlier versions do not say it.
ALTER TABLE node ADD COLUMN is_ready BIGINT NOT NULL DEFAULT 1;
