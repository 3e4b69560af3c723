"""Messages as they go out: rich where that is wanted and the server takes it, classic otherwise."""

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

from telegram.error import BadRequest, InvalidToken, TelegramError

from bots.telegram.api import TelegramBot
from bots.telegram.errors import is_not_modified, is_unknown_method
from bots.telegram.format import render
from bots.telegram.keyboard import keyboard
from bots.telegram.outbound import (
    OutgoingMessage,
    TelegramTarget,
    call_api,
    edit_classic,
    message_id_of,
    send_classic,
    target_of,
)
from bots.telegram.rich_blocks import rich_blocks
from bus.messages import Button, MessageId, ReplyTarget

_LOG = logging.getLogger(__name__)

_REFUSALS = 3
"""Messages refused in a row after which the server is not asked any more."""

_PLACE = re.compile(
    "chat not found|thread|topic|rights|upgraded|replied|to edit|can't be edited|message_id",
    re.IGNORECASE,
)
"""Refusals that concern the place: a classic message would be refused as well."""


class TelegramSender:
    """Writes, sends and changes messages, and learns whether the server takes rich ones.

    Only a clear no leads to a classic message instead. Where nobody knows what became of a call, the error goes to
    the bus: the same answer in two forms would be said twice.

    Args:
        rich: Whether rich messages are wanted.
    """

    def __init__(self, *, rich: bool) -> None:
        self.takes_rich = rich
        self._refusals = 0

    def compose(
        self, markdown: str, buttons: Sequence[Button] = (), *, silent: bool = False
    ) -> OutgoingMessage:
        """Return a message of Markdown."""
        return OutgoingMessage(
            text=render(markdown),
            blocks=rich_blocks(markdown) if self.takes_rich else None,
            buttons=buttons,
            silent=silent,
        )

    async def send(
        self, bot: TelegramBot, place: ReplyTarget, content: OutgoingMessage, *, within_s: float
    ) -> MessageId:
        """Send one message. Raises DeliveryError."""

        async def request(target: TelegramTarget) -> MessageId:
            where = {
                "chat_id": target.chat_id,
                "message_thread_id": target.thread_id,
                "reply_parameters": target.reply_parameters,
                "disable_notification": content.silent or None,
            }
            answer = await self._rich(bot, "sendRichMessage", content, where)
            if answer is None:
                return await send_classic(bot, target, content)
            return MessageId(str(int(answer["message_id"])))

        return await call_api(request, target_of(place), within_s=within_s)

    async def edit(
        self,
        bot: TelegramBot,
        place: ReplyTarget,
        message: MessageId,
        content: OutgoingMessage,
        *,
        within_s: float,
    ) -> None:
        """Replace a message of ours. Raises DeliveryError; repeating it is harmless."""

        async def request(target: TelegramTarget) -> None:
            message_id = message_id_of(message)
            where = {"chat_id": target.chat_id, "message_id": message_id}
            try:
                if await self._rich(bot, "editMessageText", content, where) is not None:
                    return
            except BadRequest as error:
                if is_not_modified(error):
                    return
                raise
            await edit_classic(bot, target, message_id, content)

        await call_api(request, target_of(place), within_s=within_s)

    async def _rich(
        self, bot: TelegramBot, method: str, content: OutgoingMessage, where: Mapping[str, object]
    ) -> Mapping[str, Any] | None:
        """Return the answer to a rich call; None if there is nothing rich, or the server does not take it.

        Raises:
            TelegramError: it failed otherwise, or nobody knows.
        """
        if not content.blocks or not self.takes_rich:
            return None
        arguments = {
            "rich_message": {"blocks": content.blocks},
            "reply_markup": keyboard(content.buttons),
        }
        try:
            answer = await bot.ask(method, {**where, **arguments})
        except InvalidToken as error:
            if not is_unknown_method(error):
                raise
            self._give_up("does not know them")
            return None
        except BadRequest as error:
            if is_not_modified(error) or _PLACE.search(error.message):
                raise
            self._refusals += 1
            if self._refusals >= _REFUSALS:
                self._give_up("refuses them")
            return None
        if not isinstance(answer, Mapping):
            raise TelegramError("The answer is no message")
        self._refusals = 0
        return answer

    def _give_up(self, why: str) -> None:
        self.takes_rich = False
        _LOG.info("telegram: no rich messages, the server %s", why)
