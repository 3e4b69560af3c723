"""What the runtime is given of the world outside: where webhooks may go and how they are signed, threads' files."""

import logging
import os
import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio.to_thread

from agent.network.url_guard import UrlGuard
from agent.thread_storage import ThreadStorage
from gateway.config import Config
from gateway.runtime.webhooks import RunWebhooks

KEY_FILE = "webhook_key"

log = logging.getLogger(__name__)


def build_webhooks(config: Config) -> RunWebhooks:
    """Return what sends webhooks; the key is made when the first is sent."""
    guard = UrlGuard(allow_private_hosts=config.gateway.webhook_hosts)
    return RunWebhooks(guard, lambda: webhook_key(config.home / KEY_FILE))


def webhook_key(file: Path) -> bytes:
    """Return the key of the signatures, making the file (mode 0600) where there is none. Raises OSError."""
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except FileExistsError:
        return file.read_bytes().strip()
    key = secrets.token_urlsafe(32)
    with os.fdopen(descriptor, "w", encoding="ascii") as target:
        target.write(f"{key}\n")
    return key.encode()


def thread_file_deleter(folders: ThreadStorage) -> Callable[[str], Awaitable[None]]:
    """Return what deletes the files of a thread. One that is stuck is left and logged."""

    async def discard(thread_id: str) -> None:
        try:
            await anyio.to_thread.run_sync(folders.delete, thread_id)
        except OSError:
            log.exception("the files of thread %s could not be deleted", thread_id)

    return discard
