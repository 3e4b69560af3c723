"""Several nodes that share a PostgreSQL database: who works on which chat, and what happens when a node stops."""
