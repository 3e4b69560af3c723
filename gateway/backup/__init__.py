"""Backups of the data folder: one archive, written while the service runs, and checked before a restore."""
