"""File uploads to Slack: requests an upload URL, uploads, then shares the file."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PurePath
from typing import Any

import aiohttp
import anyio
import anyio.to_thread

from bots.common.proxy import proxy_url_for
from bots.slack.api import SlackApi
from bots.slack.errors import SlackError, error_from_exception, error_from_status
from bus.bounded import BoundedDict
from bus.characters import clean_outbound
from bus.messages import MessageId, ReplyTarget
from bus.platform import OutgoingFile

_MIN_BYTES_PER_S = 250_000
"""Minimum speed of an upload, bytes a second: 2 Mbit/s."""

_KEYS_KEPT = 1000

MAX_ALT = 1_000
"""Maximum length of an image's description, characters. Slack refuses a longer one (`alt_txt_too_large`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _PendingUpload:
    """A file to upload. `body` opens its bytes."""

    name: str
    size_bytes: int
    body: Callable[[], AbstractAsyncContextManager[Any]]
    alt: str = ""


class SlackFileUploader:
    """Uploads files."""

    def __init__(self, api: SlackApi, *, timeout_s: float) -> None:
        self._api = api
        self._timeout_s = timeout_s
        self._sent = BoundedDict[str, str](_KEYS_KEPT)

    def file_id_for(self, key: str) -> str:
        """Return the ID of the file that this process sent or tried to send with `key`; "" = none."""
        return self._sent.get(key, "")

    async def send_file(self, target: ReplyTarget, file: OutgoingFile, *, key: str) -> MessageId:
        """Share one file at `target`. Return the file's ID.

        Nothing is visible before the last of the three calls, so only that call can be ambiguous.

        Raises:
            SlackError: Slack or the connection refused it, or the file is empty.
        """
        name = clean_outbound(file.name)
        parcel = _PendingUpload(
            name=name,
            size_bytes=file.size_bytes,
            body=partial(_on_disk, file.path),
            alt=_described(name) if file.mime.startswith("image/") else "",
        )
        return await self._share(target, parcel, key=key)

    async def send_text(self, target: ReplyTarget, name: str, text: str, *, key: str) -> MessageId:
        """Like `send_file`, but the content is a text."""
        data = text.encode()
        parcel = _PendingUpload(name=name, size_bytes=len(data), body=partial(_in_memory, data))
        return await self._share(target, parcel, key=key)

    async def _share(self, target: ReplyTarget, parcel: _PendingUpload, *, key: str) -> MessageId:
        if parcel.size_bytes < 1:
            raise SlackError(f"Slack does not accept empty files ({parcel.name}).")
        try:
            ref = await self._upload_unshared(parcel)
        except SlackError as error:
            error.ambiguous = False
            raise
        self._sent[key] = ref
        await self._api.call(
            lambda web: web.files_completeUploadExternal(
                files=[{"id": ref, "title": parcel.name}],
                channel_id=target.chat,
                thread_ts=target.thread or None,
            )
        )
        return MessageId(ref)

    async def _upload_unshared(self, parcel: _PendingUpload) -> str:
        slot = await self._api.call(
            lambda web: web.files_getUploadURLExternal(
                filename=parcel.name, length=parcel.size_bytes, alt_txt=parcel.alt or None
            )
        )
        url, ref = slot.get("upload_url"), slot.get("file_id")
        if not isinstance(url, str) or not isinstance(ref, str):
            raise error_from_status(200, {})
        await self._upload(url, parcel)
        return ref

    async def _upload(self, url: str, parcel: _PendingUpload) -> None:
        """Send the bytes. No error contains the URL, because it is a secret."""
        deadline_s = self._timeout_s + parcel.size_bytes / _MIN_BYTES_PER_S
        headers = {"Content-Type": "application/octet-stream"}
        try:
            with anyio.fail_after(deadline_s):
                async with (
                    self._api.session() as session,
                    parcel.body() as body,
                    session.post(
                        url, data=body, headers=headers, proxy=proxy_url_for(url)
                    ) as answer,
                ):
                    status, answer_headers = answer.status, dict(answer.headers)
        except (aiohttp.ClientError, TimeoutError, ConnectionError) as error:
            raise error_from_exception(error) from None
        except OSError as error:
            raise SlackError(f"The file {parcel.name} can no longer be read.") from error
        if status != 200:  # noqa: PLR2004
            raise error_from_status(status, answer_headers)


@asynccontextmanager
async def _on_disk(path: Path) -> AsyncIterator[Any]:
    # Close the file without awaiting, because a canceled task cannot await and would leave it open.
    with await anyio.to_thread.run_sync(path.open, "rb") as file:
        yield file


@asynccontextmanager
async def _in_memory(data: bytes) -> AsyncIterator[Any]:
    yield data


def _described(name: str) -> str:
    """Return a description of an image for screen readers, which is made of the words in its name.

    >>> _described("sales_by-region.png")
    'sales by region'
    """
    words = " ".join(PurePath(name).stem.replace("_", " ").replace("-", " ").split())
    return (words or name)[:MAX_ALT]
