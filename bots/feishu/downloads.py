"""File downloads from Feishu: streams files from messages."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import httpx
from anyio import to_thread

from bots.feishu.api import FeishuApi
from bots.feishu.content import FORWARDED_REF, forwarded_text
from bots.feishu.directory import FeishuDirectory
from bots.feishu.errors import TOKEN_CODES, FeishuError, FeishuResponse, error_from
from bots.feishu.json_node import parse_json
from bots.feishu.rest import FeishuRestClient
from bus.errors import FileTooLarge
from bus.messages import Attachment

_CHUNK_BYTES = 64 * 1024


class FeishuDownloader:
    """Fetches the files of messages.

    Args:
        rest: Calls to the platform.
        api: Returns forwarded messages.
        directory: Names of their authors.
        silence_s: Longest pause in a download, seconds.
    """

    def __init__(
        self,
        rest: FeishuRestClient,
        api: FeishuApi,
        directory: FeishuDirectory,
        *,
        silence_s: float,
    ) -> None:
        self._rest = rest
        self._api = api
        self._directory = directory
        self._silence_s = silence_s

    @asynccontextmanager
    async def open(
        self, attachment: Attachment, *, max_bytes: int
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Stream a file's bytes, at most `max_bytes`. The platform offers no files above 100 MB.

        Raises:
            FeishuError: The file is missing or too large, or the connection broke.
        """
        if attachment.ref.startswith(FORWARDED_REF):
            message = attachment.ref.removeprefix(FORWARDED_REF)
            yield await self._forwarded(message, max_bytes)
            return
        path = f"/open-apis/im/v1/{attachment.ref}"
        for is_last in (False, True):
            async with self._rest.stream(path, silence_s=self._silence_s) as (token, response):
                # Chunks are large enough for a whole refusal, so that the first chunk contains all of it.
                chunks = response.aiter_bytes(_CHUNK_BYTES)
                head, refusal = await _read_refusal(response, chunks)
                if refusal is None:
                    _require_size(response, max_bytes)
                    yield _file(head, chunks, max_bytes)
                    return
                if refusal.code not in TOKEN_CODES or is_last:
                    raise _unambiguous(error_from(refusal))
                self._rest.discard_token(token)

    async def _forwarded(self, message: str, max_bytes: int) -> AsyncIterator[bytes]:
        """Yield the text of the messages inside a forwarded message."""
        try:
            items = await self._api.get_messages(message)
        except FeishuError as error:
            raise _unambiguous(error) from error
        names = dict(self._directory.names)
        text = await to_thread.run_sync(forwarded_text, items, names)
        if not text:
            raise FeishuError("Feishu does not show the forwarded messages")
        whole = text.encode("utf-8", "replace")
        if len(whole) > max_bytes:
            raise FileTooLarge(max_bytes)
        return _once(whole)


async def _once(data: bytes) -> AsyncIterator[bytes]:
    yield data


async def _read_refusal(
    response: httpx.Response, chunks: AsyncIterator[bytes]
) -> tuple[bytes, FeishuResponse | None]:
    """Return the bytes read so far, and the refusal, if the response is one."""
    is_json = response.headers.get("content-type", "").startswith("application/json")
    is_refused = response.status_code >= httpx.codes.BAD_REQUEST
    if not is_refused and (not is_json or "content-disposition" in response.headers):
        return b"", None
    head = await _next(chunks) or b""
    body = _json_object(head)
    code = body.get("code")
    if not is_refused and (not isinstance(code, int) or code == 0):
        return head, None  # The file itself is JSON.
    return b"", FeishuResponse(
        status=response.status_code,
        code=code if isinstance(code, int) else None,
        msg=str(body.get("msg") or ""),
        headers=response.headers,
    )


async def _file(head: bytes, chunks: AsyncIterator[bytes], max_bytes: int) -> AsyncIterator[bytes]:
    received, chunk = 0, head or await _next(chunks)
    while chunk:
        received += len(chunk)
        if received > max_bytes:
            raise FileTooLarge(max_bytes)
        yield chunk
        chunk = await _next(chunks)


async def _next(chunks: AsyncIterator[bytes]) -> bytes | None:
    """Return the next chunk, or None at the end. Raises FeishuError."""
    try:
        return await anext(chunks, None)
    except httpx.HTTPError as error:
        raise _unambiguous(error_from(error)) from error


def _require_size(response: httpx.Response, max_bytes: int) -> None:
    length = response.headers.get("content-length", "")
    if length.isdecimal() and int(length) > max_bytes:
        raise FileTooLarge(max_bytes)


def _unambiguous(error: FeishuError) -> FeishuError:
    """Mark an error as unambiguous. A download changes nothing, so it can be repeated."""
    error.ambiguous = False
    return error


def _json_object(data: bytes) -> Mapping[str, Any]:
    body = parse_json(data)
    return body if isinstance(body, dict) else {}
