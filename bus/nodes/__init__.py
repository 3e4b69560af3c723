"""Several nodes that share a PostgreSQL database: which node works on a chat, and what it hands to others."""
