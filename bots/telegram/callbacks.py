"""Answers to callback queries: what the person who pressed a button sees at once. Sent once, never repeated."""

import logging

import anyio
from telegram import Bot
from telegram.error import BadRequest, TelegramError

from bots.telegram.api import MALFORMED
from bots.telegram.errors import cause_name, is_query_too_old
from bus.messages import PressResponse

log = logging.getLogger(__name__)

_MAX_TEXT_CHARS = 200
"""Longest answer (Bot API: answerCallbackQuery)."""


async def answer_callback_query(
    bot: Bot, query_id: str, response: PressResponse, *, timeout_s: float
) -> None:
    """Answer one query, which waits for some seconds only; failures are logged."""
    try:
        with anyio.fail_after(timeout_s):
            await bot.answer_callback_query(
                query_id,
                response.text[:_MAX_TEXT_CHARS] or None,
                show_alert=response.urgent or None,
            )
    except (TelegramError, TimeoutError, *MALFORMED) as error:
        level = logging.WARNING
        if isinstance(error, BadRequest) and is_query_too_old(error):
            level = logging.INFO  # Pressed while we were away, or pressed twice.
        log.log(level, "telegram: answerCallbackQuery failed: %s", cause_name(error))
