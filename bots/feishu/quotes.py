"""What a group message replies to: Feishu's event names it, the API has its words and files."""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import anyio

from bots.feishu.api import FeishuApi
from bots.feishu.errors import FeishuError
from bots.feishu.forwarded import parse_item
from bots.feishu.json_node import JsonNode
from bots.text.quotations import quotation
from bus.bounded import BoundedDict
from bus.messages import InboundMessage

_log: Final = logging.getLogger(__name__)

_KEPT: Final = 2_000


class FeishuQuotes:
    """Adds the words and files of another person's message to the message that replies to it, once.

    In a private chat there is nobody else, and what the conversation has already is not quoted: the bot's cards, and
    messages that this process accepted or quoted there.

    Args:
        api: Messages.
        app_id: Who wrote the bot's cards.
        timeout_s: How long the words are waited for: an event is to be acknowledged within 3 s.
    """

    def __init__(self, api: FeishuApi, app_id: str, *, timeout_s: float) -> None:
        self._api = api
        self._app_id = app_id
        self._timeout_s = timeout_s
        self._known = BoundedDict[tuple[str, str, str], None](_KEPT)
        self._names = BoundedDict[str, str](_KEPT)

    def learn_names(self, people: Mapping[str, str]) -> None:
        """Note the names of people whom somebody mentioned: messages tell their authors by id alone."""
        for user, name in people.items():
            self._names[user] = name

    async def add(self, message: InboundMessage, replied: str) -> InboundMessage:
        """Return the message with what it replies to; unchanged if that cannot be had. Raises nothing."""
        is_chat = message.is_addressed and not message.is_private
        if not is_chat or message.text.startswith("/") or not replied:
            return message
        if self._name(message, replied) in self._known:
            return message
        try:
            with anyio.fail_after(self._timeout_s):
                item = JsonNode(await self._api.get_message(replied))
        except (FeishuError, TimeoutError) as error:
            _log.info("what a message replies to cannot be read: %s", error)
            return message
        if item["sender"].text("id") == self._app_id or item.flag("deleted"):
            return message
        quoted = parse_item(item)
        author = self._names.get(item["sender"].text("id"), "")
        return replace(
            message,
            quoted=quotation(quoted.text, author),
            attachments=(*message.attachments, *quoted.attachments),
        )

    def remember(self, message: InboundMessage, replied: str) -> None:
        """Note that the conversation of a message has it, and what it replies to."""
        if message.is_addressed and not message.is_private:
            for message_id in filter(None, (message.message_id, replied)):
                self._known[self._name(message, message_id)] = None

    @staticmethod
    def _name(message: InboundMessage, message_id: str) -> tuple[str, str, str]:
        return message.key.chat, message.key.topic, message_id
