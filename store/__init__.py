"""Storage: inbox, outbox, conversations, threads, runs and checkpoints, in SQLite or PostgreSQL.

Imports no other package of Parley. `Database` wraps the engine. Each store module owns the statements of its tables.
"""
