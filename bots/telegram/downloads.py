"""Files in: ask Telegram where one lies, and stream it. The address holds the token, so it is in no error."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import httpx
from telegram import Bot
from telegram.error import BadRequest, TelegramError

from bots.common.downloads import limit_size
from bots.telegram.api import MALFORMED, TelegramTimeouts, TelegramTransport
from bots.telegram.capabilities import MAX_DOWNLOAD_BYTES
from bots.telegram.errors import delivery_error
from bus.errors import DeliveryError, FileTooLarge
from bus.messages import Attachment

CHUNK_BYTES = 64 * 1024

_BREAKS = (httpx.HTTPError, OSError)
_TOO_BIG = f"Telegram gives bots no files larger than {MAX_DOWNLOAD_BYTES // 1_000_000} MB"
_ELSEWHERE = "the Bot API server keeps files on its own disk: run it without --local"


@asynccontextmanager
async def open_download(
    bot: Bot, attachment: Attachment, *, max_bytes: int, timing: TelegramTimeouts
) -> AsyncIterator[AsyncIterator[bytes]]:
    """Stream a file's bytes, at most `max_bytes`.

    Raises:
        DeliveryError: it is not there, too large, or the connection broke.
    """
    if (attachment.size_bytes or 0) > MAX_DOWNLOAD_BYTES:
        raise DeliveryError(_TOO_BIG)
    url = await _address(bot, attachment.ref, timing)
    transport = bot.request
    if not isinstance(transport, TelegramTransport):
        raise TypeError("the bot does not speak through its own transport")
    async with AsyncExitStack() as stack:
        answer = await _requested(stack, transport, url, timing)
        _check(answer, max_bytes)
        pieces = answer.aiter_bytes(CHUNK_BYTES)
        yield limit_size(pieces, max_bytes, errors=_BREAKS, convert=_broken)


async def _address(bot: Bot, ref: str, timing: TelegramTimeouts) -> str:
    try:
        with anyio.fail_after(timing.total_s()):
            file = await bot.get_file(ref)
    except BadRequest as error:
        if "too big" in error.message:
            raise DeliveryError(_TOO_BIG) from None
        raise _harmless(delivery_error(error)) from None
    except (TelegramError, *MALFORMED) as error:
        raise _harmless(delivery_error(error)) from None
    url = file.file_path or ""
    if not url.startswith(("http://", "https://")):
        raise DeliveryError(_ELSEWHERE if url else "Telegram does not give the file any more")
    return url


async def _requested(
    stack: AsyncExitStack, transport: TelegramTransport, url: str, timing: TelegramTimeouts
) -> httpx.Response:
    try:
        return await stack.enter_async_context(transport.streamed(url, silence_s=timing.upload_s))
    except (*_BREAKS, httpx.InvalidURL) as error:
        raise _broken(error) from None


def _check(answer: httpx.Response, max_bytes: int) -> None:
    if answer.status_code == httpx.codes.TOO_MANY_REQUESTS:
        after = answer.headers.get("Retry-After", "")
        wait_s = float(after) if after.isdecimal() else None
        raise DeliveryError("Telegram asks to wait (429)", retryable=True, retry_after_s=wait_s)
    if answer.status_code >= httpx.codes.INTERNAL_SERVER_ERROR:
        raise DeliveryError(f"Telegram answered HTTP {answer.status_code}", retryable=True)
    if answer.status_code != httpx.codes.OK:
        raise DeliveryError(f"Telegram does not give the file (HTTP {answer.status_code})")
    length = answer.headers.get("Content-Length", "")
    if length.isdecimal() and int(length) > max_bytes:
        raise FileTooLarge(max_bytes)


def _broken(error: Exception) -> DeliveryError:
    return DeliveryError(
        f"the connection to Telegram broke ({type(error).__name__})", retryable=True
    )


def _harmless(error: DeliveryError) -> DeliveryError:
    """Asking for a file changes nothing: what is uncertain can simply be asked again."""
    error.retryable = error.retryable or error.ambiguous
    error.ambiguous = False
    return error
