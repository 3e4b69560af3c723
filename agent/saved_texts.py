"""Saves texts that a thread's requests omit to its files: long tool results and summarized messages."""

import logging
import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, TypeVar

from langchain_core.messages import BaseMessage, ToolMessage

from agent.errors import AgentError
from agent.paths import OUTPUTS
from agent.sandbox.protocol import SandboxProvider
from store.errors import StoreError
from store.files.mirror import FileMirror, thread_area

log = logging.getLogger(__name__)

RESULTS = f"{OUTPUTS}/.tool-results"
"""The folder for long texts. Listings omit it; the model reads its files by path."""

CONVERSATION = f"{OUTPUTS}/.conversation"
"""The folder for messages that a summary replaces. Listings omit it too."""

SAVED_TO = "saved_to"
"""Key in `additional_kwargs` of a tool message. Its value is the path of the file with the full result."""

QUOTA_SHARE = 0.1
"""The share of a thread's disk quota that each folder may use. Beyond it, the oldest files are deleted."""

Message = TypeVar("Message", bound=BaseMessage)

_FILE_NAME = re.compile(r"[A-Za-z0-9_-]{1,40}-(?:[0-9a-f]{12}|\d{4,})\.txt")


class SavedTexts:
    """Writes texts to files of a thread.

    Args:
        sandboxes: Where to write the files.
        disk_quota_mb: The disk quota of a thread.
        mirror: Uploads the files to the bucket; None = the caller uploads them, or there is no bucket.
    """

    def __init__(
        self, sandboxes: SandboxProvider, disk_quota_mb: float, mirror: FileMirror | None = None
    ) -> None:
        self._sandboxes = sandboxes
        self._max_bytes = round(disk_quota_mb * 1024 * 1024 * QUOTA_SHARE)
        self._mirror = mirror

    async def save(self, thread_id: str, path: str, text: str) -> None:
        """Write a file. Delete the oldest files of its folder beyond the quota.

        Raises:
            AgentError, OSError: The file cannot be written.
        """
        sandbox = await self._sandboxes.acquire(thread_id)
        room = max(0, self._max_bytes - len(text.encode("utf-8", "replace")))
        await sandbox.delete_oldest(path.rpartition("/")[0], _FILE_NAME, max_bytes=room)
        await sandbox.write_file(path, text)

    async def current(self, thread_id: str, path: str) -> tuple[str, str] | None:
        """Return a file's full path and current text; None if it cannot be read or was saved by this class."""
        try:
            sandbox = await self._sandboxes.acquire(thread_id)
            path = await sandbox.check_file(path)
            if path.startswith((f"{RESULTS}/", f"{CONVERSATION}/")):
                return None  # it may be deleted to make room
            return path, (await sandbox.read_file(path)).text
        except (AgentError, OSError):
            return None

    async def save_all(self, thread_id: str, texts: Mapping[str, str]) -> set[str]:
        """Write files by their paths. Return the paths that could not be written."""
        failed: set[str] = set()
        for path, text in texts.items():
            try:
                await self.save(thread_id, path, text)
            except (AgentError, OSError) as error:
                log.warning("Could not save text that a request omits: %s", error)
                failed.add(path)
        if self._mirror is not None and self._mirror.is_remote and len(failed) < len(texts):
            try:
                await self._mirror.store(thread_area(thread_id))
            except StoreError as error:
                log.warning("Could not upload text that a request omits: %s", error)
                return set(texts)
        return failed


def message_text(message: BaseMessage) -> str:
    """Return the text of a message. Avoids `message.text`, which copies a text of up to 50 MB."""
    return message.content if isinstance(message.content, str) else str(message.text)


def with_text(message: Message, text: str) -> Message:
    """Replace the text of a message; other blocks, like images, stay."""
    content: str | list[str | dict[Any, Any]] = text
    if not isinstance(message.content, str):
        others = [b for b in message.content if isinstance(b, dict) and b.get("type") != "text"]
        content = [{"type": "text", "text": text}, *others]
    return message.model_copy(update={"content": content})


def text_path(message: BaseMessage) -> str:
    """Return the path of the file with a message's full text. It depends only on the message.

    >>> text_path(ToolMessage("found", name="bash", tool_call_id="1", id="m"))
    '/mnt/user-data/outputs/.tool-results/bash-f993fcd1c90b.txt'
    """
    saved: object = message.additional_kwargs.get(SAVED_TO)
    if isinstance(saved, str):
        return saved
    is_result = isinstance(message, ToolMessage)
    name = re.sub(r"[^A-Za-z0-9_-]", "_", (message.name or "tool") if is_result else "message")
    key = f"{message.id} {message.tool_call_id if isinstance(message, ToolMessage) else ''}"
    digest = blake2b(key.encode("utf-8", "replace"), digest_size=6).hexdigest()
    return f"{RESULTS}/{name[:40]}-{digest}.txt"


def part_path(thread_key: str, part: int) -> str:
    """Return the path of the file with one part of a thread's earlier messages.

    Args:
        thread_key: The ID of the thread's first message. Subagents share the files of their parent.
        part: The number of the part, from 1.

    >>> part_path("m", 1)
    '/mnt/user-data/outputs/.conversation/6158dde9-0001.txt'
    """
    digest = blake2b(thread_key.encode("utf-8", "replace"), digest_size=4).hexdigest()
    return f"{CONVERSATION}/{digest}-{part:04}.txt"
