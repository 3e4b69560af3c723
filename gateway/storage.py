"""Prepares the storage of `storage.url` for a service, so that all nodes have the same key files. Blocking."""

import importlib
import secrets

from gateway.config import TOKEN_FILE, WEBHOOK_KEY_FILE, Config

OPENING_MODULE = "store.files.opening"
"""Imported only if files are in a bucket."""


def prepare_storage(config: Config) -> str | None:
    """Return why the storage cannot be used, in one line. None = it is ready."""
    if not config.storage.is_bucket:
        return config.storage.find_folder_problem()
    tokens = [WEBHOOK_KEY_FILE]
    if config.gateway.auth != "none" and not config.gateway.admin_token:
        tokens.append(TOKEN_FILE)
    keys = {name: f"{secrets.token_urlsafe(32)}\n".encode() for name in tokens}
    problem: str | None = importlib.import_module(OPENING_MODULE).share_keys(
        config.storage, config.home, keys
    )
    return problem
