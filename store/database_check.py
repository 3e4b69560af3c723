"""Checks whether the database can be opened, without changing it; a service may be using it. Blocking calls."""

import importlib
from pathlib import Path

from store.config import CHECKPOINTS_FILE, StoreConfig
from store.errors import StoreError, StoreUnavailable
from store.sqlite_file import inspect


def find_database_problem(config: StoreConfig, home: Path) -> str:
    """Return why a service could not open the database; "" if it could open or create it.

    Args:
        config: The `database` section.
        home: The data folder.
    """
    try:
        if config.is_postgres:
            parameters = importlib.import_module("store.postgres.connection").parse_url(config.url)
            importlib.import_module("store.postgres.schema").check_version(parameters)
        else:
            if (file := config.file(home)).exists():
                inspect(file)
            if (file := home / CHECKPOINTS_FILE).exists():
                inspect(file, "checkpoints")
    except (StoreError, OSError) as error:
        return str(error)
    return ""


def find_eavesdroppers(config: StoreConfig) -> list[str]:
    """Return the PostgreSQL roles that can read and send signals between nodes but should not."""
    if not config.is_postgres:
        return []
    try:
        parameters = importlib.import_module("store.postgres.connection").parse_url(config.url)
        found: list[str] = importlib.import_module(
            "store.postgres.schema"
        ).list_roles_without_rights(parameters)
    except StoreUnavailable:
        return []
    return found
