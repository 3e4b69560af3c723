"""Webhooks of runs: allowed addresses and the signing key."""

import errno
import secrets
from pathlib import Path

from agent.network.url_guard import UrlGuard
from gateway.config import WEBHOOK_KEY_FILE, Config
from gateway.runtime.webhooks import RunWebhooks
from store.data_folder import read_or_create_key

MIN_KEY_BYTES = 16
"""Minimum length of the signing key, bytes. Anyone could sign with the key of an empty file."""


def build_webhooks(config: Config) -> RunWebhooks:
    """Return the webhook sender. It creates the key when it sends the first webhook."""
    guard = UrlGuard(allow_private_hosts=config.gateway.webhook_hosts)
    return RunWebhooks(guard, lambda: webhook_key(config.files / WEBHOOK_KEY_FILE))


def webhook_key(file: Path) -> bytes:
    """Return the signing key. Creates the file (mode 0600) if it does not exist.

    Raises:
        OSError: The file cannot be read or written, or its content is too short for a key.
    """
    content, _ = read_or_create_key(file, f"{secrets.token_urlsafe(32)}\n".encode())
    key = content.strip()
    if len(key) < MIN_KEY_BYTES:
        raise OSError(errno.EINVAL, f"it has fewer than {MIN_KEY_BYTES} bytes", str(file))
    return key
