"""Rows on disk: the journal of what was accepted, what is owed, and which thread belongs to which chat.

Imports nobody else of the house. `Database` is the one door to SQLite; each repository module owns the
statements of its tables.
"""
