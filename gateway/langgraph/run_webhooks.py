"""Webhooks of runs: allowed addresses and the signing key."""

import os
import secrets
from pathlib import Path

from agent.network.url_guard import UrlGuard
from gateway.config import Config
from gateway.runtime.webhooks import RunWebhooks

KEY_FILE = "webhook_key"


def build_webhooks(config: Config) -> RunWebhooks:
    """Return the webhook sender; it creates the key when it sends the first webhook."""
    guard = UrlGuard(allow_private_hosts=config.gateway.webhook_hosts)
    return RunWebhooks(guard, lambda: webhook_key(config.home / KEY_FILE))


def webhook_key(file: Path) -> bytes:
    """Return the signing key; creates the file (mode 0600) if there is none. Raises OSError."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        return file.read_bytes().strip()
    key = secrets.token_urlsafe(32)
    with os.fdopen(descriptor, "w", encoding="ascii") as target:
        target.write(f"{key}\n")
    return key.encode()
