"""Sends and edits messages, as rich messages if these are enabled and supported, or else as text with entities."""

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

from telegram.error import BadRequest, InvalidToken, TelegramError

from bots.telegram.api import TelegramBot, redact_tokens
from bots.telegram.errors import is_not_modified, is_unknown_method
from bots.telegram.format import render
from bots.telegram.keyboard import keyboard
from bots.telegram.message_calls import (
    OutgoingMessage,
    TelegramTarget,
    call_api,
    edit_classic,
    message_id_of,
    send_classic,
    target_of,
)
from bots.telegram.rich_blocks import rich_message
from bus.bounded import BoundedDict
from bus.messages import Button, MessageId, ReplyTarget

log = logging.getLogger(__name__)

_MAX_REFUSALS = 3
"""Number of consecutive refusals after which a chat gets no more rich messages."""

_MAX_CHATS = 1_000
"""Maximum number of chats to remember that refuse rich messages."""

_CHAT_ERRORS = re.compile(
    "chat not found|thread|topic|rights|upgraded|replied|to edit|can't be edited|message_id",
    re.IGNORECASE,
)
"""Refusals that concern the chat, so that text with entities would be refused too."""


class TelegramMessages:
    """Composes, sends and edits messages, and finds out whether the server supports rich ones.

    Only a clear refusal leads to text with entities. If the outcome of a call is unknown, an error is raised, because
    otherwise the same answer could appear in two forms.

    Args:
        rich: Whether to use rich messages.
        timeout_s: Time limit for sending or editing one message, seconds.
    """

    def __init__(self, *, rich: bool, timeout_s: float) -> None:
        self.takes_rich = rich
        self._timeout_s = timeout_s
        self._refusals = BoundedDict[object, int](_MAX_CHATS)

    def compose(
        self, markdown: str, buttons: Sequence[Button] = (), *, silent: bool = False
    ) -> OutgoingMessage:
        """Return the content of a Markdown message."""
        return OutgoingMessage(
            text=render(markdown),
            rich=rich_message(markdown) if self.takes_rich else None,
            buttons=buttons,
            silent=silent,
        )

    async def send(
        self, bot: TelegramBot, reply_target: ReplyTarget, content: OutgoingMessage
    ) -> MessageId:
        """Send one message. Raises DeliveryError."""

        async def request(target: TelegramTarget) -> MessageId:
            where = {
                "chat_id": target.chat_id,
                "message_thread_id": target.thread_id,
                "reply_parameters": target.reply_parameters,
                "disable_notification": content.silent or None,
            }
            answer = await self._call_rich(bot, "sendRichMessage", content, where)
            if answer is None:
                return await send_classic(bot, target, content)
            return MessageId(str(int(answer["message_id"])))

        return await call_api(request, target_of(reply_target), within_s=self._timeout_s)

    async def edit(
        self,
        bot: TelegramBot,
        reply_target: ReplyTarget,
        message: MessageId,
        content: OutgoingMessage,
    ) -> None:
        """Replace one of our messages. May be repeated. Raises DeliveryError."""

        async def request(target: TelegramTarget) -> None:
            message_id = message_id_of(message)
            where = {"chat_id": target.chat_id, "message_id": message_id}
            try:
                if await self._call_rich(bot, "editMessageText", content, where) is not None:
                    return
            except BadRequest as error:
                if is_not_modified(error):
                    return
                raise
            await edit_classic(bot, target, message_id, content)

        await call_api(request, target_of(reply_target), within_s=self._timeout_s)

    async def _call_rich(
        self, bot: TelegramBot, method: str, content: OutgoingMessage, where: Mapping[str, object]
    ) -> Mapping[str, Any] | None:
        """Return the response to a rich call; None if the message is not rich or rich messages are not supported.

        Raises:
            TelegramError: The call failed for another reason, or its outcome is unknown.
        """
        chat = where["chat_id"]
        refusals = self._refusals.get(chat, 0)
        if not content.rich or not self.takes_rich or refusals >= _MAX_REFUSALS:
            return None
        arguments = {
            "rich_message": content.rich,
            "reply_markup": keyboard(content.buttons),
        }
        try:
            answer = await bot.call_method(method, {**where, **arguments})
        except InvalidToken as error:
            if not is_unknown_method(error):
                raise
            self.takes_rich = False
            log.info("telegram: rich messages are off, because the server does not support them")
            return None
        except BadRequest as error:
            if is_not_modified(error) or _CHAT_ERRORS.search(error.message):
                raise
            self._refusals[chat] = refusals + 1
            log.info(
                "telegram: a rich message was refused in chat %s: %s",
                chat,
                redact_tokens(error.message),
            )
            return None
        if not isinstance(answer, Mapping):
            raise TelegramError("The answer is not a message")
        self._refusals.pop(chat, None)
        return answer
