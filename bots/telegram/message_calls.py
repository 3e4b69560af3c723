"""Calls for one message: send, edit, delete, show "typing", answer a press. Leaves out refused formatting."""

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import anyio
from telegram import (
    Bot,
    ChatMemberRestricted,
    LinkPreviewOptions,
    Message,
    MessageEntity,
    ReplyParameters,
)
from telegram.constants import ChatAction, ChatMemberStatus
from telegram.error import BadRequest, InvalidToken, TelegramError

from bots.telegram.api import MALFORMED
from bots.telegram.entities import FormattedText, TextEntity, hide_mentions
from bots.telegram.errors import (
    cause_name,
    delivery_error,
    is_deleted,
    is_entity_error,
    is_not_modified,
    is_query_too_old,
    is_unknown_method,
)
from bots.telegram.keyboard import keyboard
from bus.errors import DeliveryError
from bus.messages import Button, MessageId, PressResponse, ReplyTarget

log = logging.getLogger(__name__)

T = TypeVar("T")

_MAX_CALLBACK_CHARS = 200
"""Maximum length of an answer to a press, characters (Bot API: answerCallbackQuery)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TelegramTarget:
    """A `ReplyTarget` as Bot API arguments.

    Attributes:
        chat_id: A number, negative for groups, or a public channel's @name.
        thread_id: Forum topic, or None.
        reply_to: Message to reply to; None in private chats, because they have no other people.
    """

    chat_id: int | str
    thread_id: int | None = None
    reply_to: int | None = None

    @property
    def reply_parameters(self) -> ReplyParameters | None:
        """The reply parameters. The message is sent even if the original was deleted."""
        if self.reply_to is None:
            return None
        return ReplyParameters(self.reply_to, allow_sending_without_reply=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutgoingMessage:
    """The content of a message to send or edit.

    Attributes:
        text: Text and entities.
        rich: The same as a rich message (InputRichMessage); None = not rich.
        buttons: The buttons below the message.
        silent: Whether to send it without a notification sound.
    """

    text: FormattedText
    rich: Mapping[str, Any] | None = None
    buttons: Sequence[Button] = ()
    silent: bool = False


def target_of(reply_target: ReplyTarget) -> TelegramTarget:
    """Return the Bot API arguments of a reply target.

    >>> target_of(ReplyTarget(chat="-100200", thread="7", reply_to="12"))
    TelegramTarget(chat_id=-100200, thread_id=7, reply_to=12)
    >>> target_of(ReplyTarget(chat="42", reply_to="12"))
    TelegramTarget(chat_id=42, thread_id=None, reply_to=None)

    Raises:
        DeliveryError: It is not a Telegram chat.
    """
    try:
        chat_id = reply_target.chat if reply_target.chat.startswith("@") else int(reply_target.chat)
        private = isinstance(chat_id, int) and chat_id > 0
        return TelegramTarget(
            chat_id=chat_id,
            thread_id=int(reply_target.thread) if reply_target.thread else None,
            reply_to=int(reply_target.reply_to) if reply_target.reply_to and not private else None,
        )
    except ValueError:
        raise DeliveryError("The reply target is not a Telegram chat") from None


async def call_api(
    request: Callable[[TelegramTarget], Awaitable[T]], target: TelegramTarget, *, within_s: float
) -> T:
    """Make one call that concerns a chat.

    Raises:
        ChatMigratedError: The group became a supergroup. Nothing happened.
        DeliveryError: The call failed, or its outcome is unknown.
    """
    try:
        with anyio.fail_after(within_s):
            return await request(target)
    except (TelegramError, *MALFORMED) as error:
        # Not chained, because aiohttp's exceptions may contain the URL, which contains the token.
        raise delivery_error(error) from None


async def send_classic(bot: Bot, target: TelegramTarget, content: OutgoingMessage) -> MessageId:
    """Send text with entities, or plain text if they are refused. Raises TelegramError."""
    try:
        return await _send(bot, target, content)
    except BadRequest as error:
        if not content.text.entities or not is_entity_error(error):
            raise
        return await _send(bot, target, _without_entities(content))


async def edit_classic(
    bot: Bot, target: TelegramTarget, message_id: int, content: OutgoingMessage
) -> None:
    """Edit a message in the same way. Does nothing if the text does not change. Raises TelegramError."""
    try:
        await _edit(bot, target, message_id, content)
    except BadRequest as error:
        if is_not_modified(error):
            return
        if not content.text.entities or not is_entity_error(error):
            raise
        await _edit(bot, target, message_id, _without_entities(content))
    except InvalidToken as error:
        raise _edit_error(error) from None


async def delete_message(
    bot: Bot, reply_target: ReplyTarget, message: MessageId, *, within_s: float
) -> None:
    """Delete one of our messages. Does nothing if it is gone. Raises DeliveryError."""

    async def request(target: TelegramTarget) -> None:
        try:
            await bot.delete_message(target.chat_id, message_id_of(message))
        except BadRequest as error:
            if not is_deleted(error):
                raise
        except InvalidToken as error:
            raise _edit_error(error) from None

    await call_api(request, target_of(reply_target), within_s=within_s)


async def send_typing(bot: Bot, reply_target: ReplyTarget, *, within_s: float) -> None:
    """Show "typing" for 5 seconds, or until a message arrives. Raises DeliveryError."""

    async def request(target: TelegramTarget) -> bool:
        return await bot.send_chat_action(
            target.chat_id, ChatAction.TYPING, message_thread_id=target.thread_id
        )

    await call_api(request, target_of(reply_target), within_s=within_s)


async def answer_callback_query(
    bot: Bot, query_id: str, response: PressResponse, *, timeout_s: float
) -> None:
    """Answer one callback query, which expires after some seconds. Logs failures."""
    try:
        with anyio.fail_after(timeout_s):
            await bot.answer_callback_query(
                query_id,
                response.text[:_MAX_CALLBACK_CHARS] or None,
                show_alert=response.urgent or None,
            )
    except (TelegramError, TimeoutError, *MALFORMED) as error:
        level = logging.WARNING
        if isinstance(error, BadRequest) and is_query_too_old(error):
            # The button was pressed while the service was down, or pressed twice.
            level = logging.INFO
        log.log(level, "telegram: answerCallbackQuery failed: %s", cause_name(error))


async def _send(bot: Bot, target: TelegramTarget, content: OutgoingMessage) -> MessageId:
    message = await bot.send_message(
        target.chat_id,
        content.text.text,
        entities=sdk_entities(content.text),
        message_thread_id=target.thread_id,
        reply_parameters=target.reply_parameters,
        link_preview_options=LinkPreviewOptions(is_disabled=True),
        reply_markup=keyboard(content.buttons),
        disable_notification=content.silent or None,
    )
    return MessageId(str(message.message_id))


async def _edit(
    bot: Bot, target: TelegramTarget, message_id: int, content: OutgoingMessage
) -> Message | bool:
    return await bot.edit_message_text(
        content.text.text,
        target.chat_id,
        message_id,
        entities=sdk_entities(content.text),
        link_preview_options=LinkPreviewOptions(is_disabled=True),
        reply_markup=keyboard(content.buttons),
    )


def sdk_entities(formatted: FormattedText) -> list[MessageEntity] | None:
    """Return the SDK's entities for a text; None if there are none."""
    return [_entity(entity) for entity in formatted.entities] or None


def message_id_of(message: MessageId) -> int:
    """Return the Bot API's message ID. Raises DeliveryError."""
    try:
        return int(message)
    except ValueError:
        raise DeliveryError("This is not a Telegram message") from None


def _edit_error(error: InvalidToken) -> Exception:
    """Return the error for a failed edit or deletion. It is final if the server does not know the method."""
    if not is_unknown_method(error):
        return error
    return DeliveryError("This Bot API server cannot edit or delete messages", target_gone=True)


def _without_entities(content: OutgoingMessage) -> OutgoingMessage:
    """Return the text without entities. Disguises names, because names in code would become mentions."""
    text = FormattedText(text=hide_mentions(content.text.text), entities=())
    return replace(content, text=text)


def _entity(entity: TextEntity) -> MessageEntity:
    return MessageEntity(
        entity.type,
        entity.offset,
        entity.length,
        url=entity.url or None,
        language=entity.language or None,
    )


async def is_member(
    bot: Bot, reply_target: ReplyTarget, person: int, *, within_s: float
) -> bool | None:
    """Return whether a person is in a group; None = the group hides its members.

    Raises DeliveryError; `place_gone` is `chat` only if the group or the bot's place in it is gone.
    """

    async def request(target: TelegramTarget) -> bool:
        found = await bot.get_chat_member(target.chat_id, person)
        if isinstance(found, ChatMemberRestricted):
            return found.is_member  # A person may be restricted and no longer a member.
        return found.status not in {ChatMemberStatus.LEFT, ChatMemberStatus.BANNED}

    try:
        return await call_api(request, target_of(reply_target), within_s=within_s)
    except DeliveryError as error:
        if error.place_gone == "chat" and "admin" in str(error).lower():
            return None
        raise
