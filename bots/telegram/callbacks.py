"""Answers to pressed buttons: what the presser reads at once. Sent beside everything else, never repeated."""

import logging

import anyio
from anyio.abc import TaskGroup
from telegram import Bot
from telegram.error import BadRequest, TelegramError

from bots.telegram.api import MALFORMED
from bots.telegram.errors import cause_name, is_query_too_old
from bus.messages import PressResponse

_LOG = logging.getLogger(__name__)

_TEXT_CHARACTERS = 200
"""Longest answer (Bot API: answerCallbackQuery)."""


class Queries:
    """Answers the queries of pressed buttons; one that cannot be answered is let go.

    Args:
        tasks: Owns the calls.
        within_s: Bound of one call, seconds. A query waits for some seconds only.
    """

    def __init__(self, bot: Bot, tasks: TaskGroup, *, within_s: float) -> None:
        self._bot = bot
        self._tasks = tasks
        self._within_s = within_s

    def reply(self, query_id: str, answer: PressResponse) -> None:
        """Answer one query; returns at once."""
        self._tasks.start_soon(self._answer, query_id, answer)

    async def _answer(self, query_id: str, answer: PressResponse) -> None:
        try:
            with anyio.fail_after(self._within_s):
                await self._bot.answer_callback_query(
                    query_id,
                    answer.text[:_TEXT_CHARACTERS] or None,
                    show_alert=answer.urgent or None,
                )
        except (TelegramError, TimeoutError, *MALFORMED) as error:
            level = logging.WARNING
            if isinstance(error, BadRequest) and is_query_too_old(error):
                level = logging.INFO  # Pressed while we were away, or pressed twice.
            _LOG.log(level, "telegram: a button was not answered: %s", cause_name(error))
