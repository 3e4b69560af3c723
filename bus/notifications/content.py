"""The content of notifications: a hash that identifies repeated requests, and files, which are stored until sent."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from anyio import to_thread
from pydantic import TypeAdapter

from bus.platform import OutgoingFile
from store.outbox_files import OutboxFiles


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationFile:
    """A file that the journal stores as `file_id`."""

    name: str
    mime: str
    file_id: str


_FILES: TypeAdapter[Sequence[NotificationFile]] = TypeAdapter(list[NotificationFile])


def encode_files(files: Sequence[NotificationFile]) -> str:
    """Return files as JSON; "" = none.

    >>> encode_files([NotificationFile(name="a.csv", mime="text/csv", file_id="f1")])
    '[{"name":"a.csv","mime":"text/csv","file_id":"f1"}]'
    """
    return _FILES.dump_json(list(files)).decode() if files else ""


def decode_files(encoded: str) -> Sequence[NotificationFile]:
    """Return the files of `encode_files`."""
    return _FILES.validate_json(encoded) if encoded else []


async def store_files(
    journal: OutboxFiles, files: Iterable[OutgoingFile], *, channel: str, key: str
) -> Sequence[NotificationFile]:
    """Store the files of a notification, before it is accepted. Raises OSError, StoreError."""
    return [
        NotificationFile(
            name=file.name,
            mime=file.mime,
            file_id=await journal.put(file.path, channel=channel, key=key),
        )
        for file in files
    ]


async def hash_request(words: Sequence[str], files: Sequence[OutgoingFile]) -> str:
    """Return a hash of a client's request, the same if the request is repeated. Raises OSError."""
    return await to_thread.run_sync(_hash, words, files)


def _hash(words: Sequence[str], files: Sequence[OutgoingFile]) -> str:
    hashed = hashlib.sha256()
    for part in _hashed_parts(words, files):
        hashed.update(len(part).to_bytes(8, "big"))
        hashed.update(part)
    return hashed.hexdigest()


def _hashed_parts(words: Sequence[str], files: Sequence[OutgoingFile]) -> Iterable[bytes]:
    for word in words:
        yield word.encode()
    for file in files:
        yield file.name.encode()
        with file.path.open("rb") as content:
            yield hashlib.file_digest(content, "sha256").digest()
