"""File downloads from Telegram: gets a file's URL and streams the file.

The URL contains the token, so no error quotes it.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from http import HTTPStatus

import aiohttp
import anyio
from telegram import Bot
from telegram.error import BadRequest, TelegramError

from bots.common.downloads import limit_size
from bots.telegram.api import MALFORMED, TelegramTimeouts, TelegramTransport
from bots.telegram.capabilities import MAX_DOWNLOAD_BYTES
from bots.telegram.errors import delivery_error
from bus.errors import DeliveryError, FileTooLarge
from bus.messages import Attachment

CHUNK_BYTES = 64 * 1024

_CONNECTION_ERRORS = (aiohttp.ClientError, OSError)
_LOCAL_FILES = "the Bot API server stores files on its own disk: run it without --local"


@asynccontextmanager
async def open_download(
    bot: Bot, attachment: Attachment, *, max_bytes: int, timeouts: TelegramTimeouts
) -> AsyncIterator[AsyncIterator[bytes]]:
    """Stream a file's bytes, at most `max_bytes`.

    Raises:
        DeliveryError: The file is missing or too large (`FileTooLarge`), or the connection broke.
    """
    if (attachment.size_bytes or 0) > MAX_DOWNLOAD_BYTES:
        raise FileTooLarge(MAX_DOWNLOAD_BYTES)
    url = await _file_url(bot, attachment.ref, timeouts)
    transport = bot.request
    if not isinstance(transport, TelegramTransport):
        raise TypeError("the bot does not use its own transport")
    async with AsyncExitStack() as stack:
        answer = await _request(stack, transport, url, timeouts)
        _check_response(answer, max_bytes)
        pieces = answer.content.iter_chunked(CHUNK_BYTES)
        yield limit_size(pieces, max_bytes, errors=_CONNECTION_ERRORS, convert=_connection_error)


async def _file_url(bot: Bot, ref: str, timeouts: TelegramTimeouts) -> str:
    try:
        with anyio.fail_after(timeouts.total_s()):
            file = await bot.get_file(ref)
    except BadRequest as error:
        if "too big" in error.message:
            raise FileTooLarge(MAX_DOWNLOAD_BYTES) from None
        raise _unambiguous(delivery_error(error)) from None
    except (TelegramError, *MALFORMED) as error:
        raise _unambiguous(delivery_error(error)) from None
    url = file.file_path or ""
    if not url.startswith(("http://", "https://")):
        raise DeliveryError(_LOCAL_FILES if url else "Telegram no longer provides the file")
    return url


async def _request(
    stack: AsyncExitStack, transport: TelegramTransport, url: str, timeouts: TelegramTimeouts
) -> aiohttp.ClientResponse:
    try:
        return await stack.enter_async_context(
            transport.stream(url, read_timeout_s=timeouts.upload_s)
        )
    except _CONNECTION_ERRORS as error:
        raise _connection_error(error) from None


def _check_response(answer: aiohttp.ClientResponse, max_bytes: int) -> None:
    if answer.status == HTTPStatus.TOO_MANY_REQUESTS:
        after = answer.headers.get("Retry-After", "")
        wait_s = float(after) if after.isdecimal() else None
        raise DeliveryError("Telegram asks to wait (429)", retryable=True, retry_after_s=wait_s)
    if answer.status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        raise DeliveryError(f"Telegram answered HTTP {answer.status}", retryable=True)
    if answer.status != HTTPStatus.OK:
        raise DeliveryError(f"Telegram does not provide the file (HTTP {answer.status})")
    length = answer.headers.get("Content-Length", "")
    if length.isdecimal() and int(length) > max_bytes:
        raise FileTooLarge(max_bytes)


def _connection_error(error: Exception) -> DeliveryError:
    return DeliveryError(
        f"the connection to Telegram broke ({type(error).__name__})", retryable=True
    )


def _unambiguous(error: DeliveryError) -> DeliveryError:
    """Mark an error as unambiguous, because a download changes nothing and can be repeated."""
    error.retryable = error.retryable or error.ambiguous
    error.ambiguous = False
    return error
