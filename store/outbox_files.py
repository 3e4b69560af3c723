"""Files of notifications. They are stored in parts, so that no transaction is long, and once for all chats."""

import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path

from anyio import to_thread

from store.database import Database, Params

PART_BYTES = 256 * 1024
"""Size of a part, bytes. Storing one takes a few milliseconds."""

_INSERT = """
INSERT INTO outbox_file (file_id, part, channel, key, content, created_at)
VALUES (:file_id, :part, :channel, :key, :content, :created_at)
"""
_READ = "SELECT content FROM outbox_file WHERE file_id = :file_id AND part = :part"


class OutboxFiles:
    """The table outbox_file. Retention deletes a file once no chat of its notification needs it."""

    def __init__(self, database: Database, *, now: Callable[[], float]) -> None:
        self._database = database
        self._now = now

    async def put(self, path: Path, *, channel: str, key: str) -> str:
        """Store a file of the notification with this channel and key, which may not exist yet. Return the file's ID.

        Raises:
            OSError: The file cannot be read.
            StoreError: The file is not stored completely. Retention deletes the stored parts.
        """
        file_id, created_at = uuid.uuid4().hex, self._now()
        with await to_thread.run_sync(path.open, "rb") as file:
            part = 0
            while content := await to_thread.run_sync(file.read, PART_BYTES):
                params: Params = {
                    "file_id": file_id,
                    "part": part,
                    "channel": channel,
                    "key": key,
                    "content": content,
                    "created_at": created_at,
                }
                await self._database.execute(_INSERT, params)
                part += 1
        return file_id

    async def read(self, file_id: str) -> AsyncIterator[bytes]:
        """Yield the parts of a file; none if it is unknown. Raises StoreError."""
        part = 0
        while rows := await self._database.read(_READ, {"file_id": file_id, "part": part}):
            yield bytes(rows[0]["content"])
            part += 1
