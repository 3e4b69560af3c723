"""The schema of PostgreSQL: numbered like that of SQLite, whose versions 1 to 12 it never had."""
