"""Moves all rows of an installation that is stopped between SQLite and PostgreSQL."""
