"""Several nodes that share a PostgreSQL database: which node works on which chat, and what happens when one stops."""
