"""What the bot says unasked: where it is new, and to a click whose chat it does not know."""

import logging
from collections.abc import Callable, Sequence
from typing import Final

from bots.config import FeishuConfig
from bots.feishu import cards
from bots.feishu.api import FeishuApi, MessageContent
from bots.feishu.errors import FeishuError
from bots.feishu.events import ChatEntered, MenuClick
from bots.feishu.format import render
from bots.feishu.outbound import idempotency_uuid
from bus.config import AUTO
from bus.locales import LANGUAGES, Messages, messages_for
from bus.messages import ReplyTarget

_log: Final = logging.getLogger(__name__)


class FeishuGreeting:
    """Says hello. What cannot be said is logged and left: nobody waits for it.

    Args:
        api: Messages.
        config: Who is spoken to, and in which language; where that is open, in all: a new chat told none yet.
    """

    def __init__(self, api: FeishuApi, config: FeishuConfig) -> None:
        self._api = api
        self._config = config

    async def greet(self, arrival: ChatEntered) -> None:
        """Say hello once: to a group that the bot was added to, to a person before their first message."""
        if arrival.private and not (arrival.is_first and self._is_allowed(arrival.person)):
            return
        if not arrival.private and self._config.group_policy == "disabled":
            return
        hello = _hello_private if arrival.private else _hello_group
        # One hello a chat in an hour, whatever events say; a bot that is added again says it again.
        name = "hello" if arrival.private else f"hello {arrival.event_id}"
        await self._send(arrival.chat, self._localized(hello), name)

    async def explain_menu(self, menu: MenuClick) -> None:
        """Tell a person to type what they clicked: where to answer them is known after a message."""
        command = f"`/{menu.entry}`"

        def typed(words: Messages) -> str:
            return words.menu_unplaced.format(command=command)

        await self._send(menu.person, self._localized(typed), menu.event_id)

    def _is_allowed(self, person: str) -> bool:
        listed = self._config.allowed_users
        if listed:
            return person in listed
        return self._config.dm_policy not in ("disabled", "allowlist")

    def _localized(self, said: Callable[[Messages], str]) -> str:
        language = self._config.language
        if language and language != AUTO:
            return said(messages_for(language))
        return "\n\n".join(said(words) for words in _all_languages())

    async def _send(self, chat: str, markdown: str, name: str) -> None:
        card = cards.final_card(render(markdown))
        content = MessageContent(
            type="interactive", value=card, uuid=idempotency_uuid(ReplyTarget(chat=chat), name)
        )
        try:
            await self._api.send(chat, content)
        except FeishuError as error:
            _log.info("a greeting was not sent: %s", error)


def _all_languages() -> Sequence[Messages]:
    return list(LANGUAGES.values())


def _hello_private(words: Messages) -> str:
    return words.hello_private


def _hello_group(words: Messages) -> str:
    return words.hello_group
