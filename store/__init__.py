"""Storage: inbox, outbox, conversations, threads, runs and checkpoints, in SQLite.

Imports no other package of Parley. `Database` wraps SQLite; each store module owns the statements of its tables.
"""
