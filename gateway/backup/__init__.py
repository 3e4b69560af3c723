"""Backups of the data folder: one archive, written while the service runs, checked before it is restored."""
