"""Sends files: images as photos if Telegram accepts them, and everything else as documents."""

from collections.abc import Awaitable, Callable

import anyio
from telegram import Bot, InputFile, Message
from telegram.error import BadRequest

from bots.telegram.api import TelegramTimeouts
from bots.telegram.capabilities import MAX_FILE_BYTES, MAX_PHOTO_BYTES, PHOTO_MIMES
from bots.telegram.errors import is_photo_error
from bots.telegram.message_calls import TelegramTarget, call_api, target_of
from bus.characters import clean_outbound
from bus.errors import DeliveryError
from bus.messages import MessageId, ReplyTarget
from bus.platform import OutgoingFile


async def send_file(
    bot: Bot, reply_target: ReplyTarget, file: OutgoingFile, *, timeouts: TelegramTimeouts
) -> MessageId:
    """Send one file of at most `MAX_FILE_BYTES`. Reads it into memory.

    Raises:
        DeliveryError: The file was not sent, or the outcome is unknown.
    """
    content = await _read(file)
    upload = InputFile(content, filename=" ".join(clean_outbound(file.name).split()) or "file")
    is_photo = file.mime in PHOTO_MIMES and len(content) <= MAX_PHOTO_BYTES

    async def request(target: TelegramTarget) -> MessageId:
        if is_photo:
            try:
                return await _upload(bot.send_photo, target, upload, timeouts)
            except BadRequest as error:
                if not is_photo_error(error):
                    raise
        return await _upload(bot.send_document, target, upload, timeouts)

    return await call_api(request, target_of(reply_target), within_s=timeouts.file_s)


async def _upload(
    send: Callable[..., Awaitable[Message]],
    target: TelegramTarget,
    upload: InputFile,
    timeouts: TelegramTimeouts,
) -> MessageId:
    message = await send(
        target.chat_id,
        upload,
        message_thread_id=target.thread_id,
        reply_parameters=target.reply_parameters,
        read_timeout=timeouts.upload_s,
    )
    return MessageId(str(message.message_id))


async def _read(file: OutgoingFile) -> bytes:
    """Return the file's content. Raises DeliveryError for files that Telegram refuses."""
    path = anyio.Path(file.path)
    try:
        size = (await path.stat()).st_size
        if size > MAX_FILE_BYTES:
            raise DeliveryError(
                f"{file.name} is larger than Telegram accepts ({MAX_FILE_BYTES // 1_000_000} MB)"
            )
        if not size:
            raise DeliveryError(f"{file.name} is empty, and Telegram refuses empty files")
        return await path.read_bytes()
    except OSError as error:
        raise DeliveryError(f"{file.name} cannot be read ({type(error).__name__})") from None
