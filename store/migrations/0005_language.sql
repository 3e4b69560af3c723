-- Which language people chose for a chat, or for themselves. NULL = as configured.

ALTER TABLE choice ADD COLUMN language TEXT;
