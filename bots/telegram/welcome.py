"""What the bot says unasked: hello, to a group that it was added to."""

import logging
from typing import Protocol

from anyio.abc import TaskGroup

from bots.config import TelegramConfig
from bus.config import AUTO
from bus.errors import DeliveryError
from bus.locales import messages_for
from bus.messages import MessageId, ReplyTarget

_LOG = logging.getLogger(__name__)


class Send(Protocol):
    """Sends a message, as the adapter does."""

    async def __call__(self, place: ReplyTarget, markdown: str, *, key: str) -> MessageId:
        """Send it. Raises DeliveryError."""
        ...


class Welcome:
    """Says hello once. What cannot be said is logged and left: nobody waits for it.

    Args:
        config: Whether groups are spoken to, and in which language.
        send: Sends.
        tasks: Owns the sending.
    """

    def __init__(self, config: TelegramConfig, send: Send, tasks: TaskGroup) -> None:
        self._config = config
        self._send = send
        self._tasks = tasks

    def greet(self, chat: str, language: str) -> None:
        """Say hello to a group; returns at once.

        Args:
            chat: The group.
            language: Of whoever added the bot; used where the configuration names none.
        """
        if self._config.group_policy == "disabled":
            return
        own = self._config.language
        words = messages_for(own if own and own != AUTO else language)
        self._tasks.start_soon(self._say, chat, words.hello_group)

    async def _say(self, chat: str, hello: str) -> None:
        try:
            await self._send(ReplyTarget(chat=chat), hello, key=f"hello:{chat}")
        except DeliveryError as error:
            _LOG.info("telegram: a greeting was not sent: %s", error.user_message)
