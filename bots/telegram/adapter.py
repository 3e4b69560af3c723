"""The Telegram adapter: connect, receive, send."""

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from anyio.abc import TaskStatus
from typing_extensions import override

from bots.config import TelegramConfig
from bots.telegram.api import Line, PollingBot, Timing, quiet_loggers
from bots.telegram.capabilities import CAPABILITIES, CHANNEL
from bots.telegram.downloads import opened
from bots.telegram.files import send_file
from bots.telegram.format import fits, render
from bots.telegram.outbound import send_text, send_typing
from bots.telegram.polling import Polling
from bots.telegram.state import State
from bots.telegram.webhook import WebhookUpdates, fault
from bots.text.split import split
from bots.webhooks import Webhook, Webhooks
from bus.messages import Attachment, MessageId, Place
from bus.ports import (
    Adapter,
    Capabilities,
    CommandInfo,
    Downloads,
    Health,
    Intake,
    Link,
    Now,
    OutgoingFile,
    Signs,
)


def build(config: TelegramConfig, commands: Sequence[CommandInfo]) -> Adapter:
    """Return the adapter of `channels.telegram`.

    Args:
        config: The section, secrets resolved.
        commands: What Telegram's clients list, and what addresses us in groups.
    """
    return TelegramAdapter(config, commands)


class TelegramAdapter(Adapter, Downloads, Signs, Webhooks):
    """A Telegram bot that polls, or has a webhook. Sends also work while `run` does not."""

    def __init__(
        self,
        config: TelegramConfig,
        commands: Sequence[CommandInfo],
        *,
        timing: Timing | None = None,
        now: Now = time.time,
    ) -> None:
        quiet_loggers()
        self._config = config
        self._commands = tuple(commands)
        self._timing = timing or Timing()
        self._state = State(now)
        self._line = Line(config, self._timing)
        self._pushed = (
            WebhookUpdates(self._state, config, self._commands, timing=self._timing)
            if config.mode == "webhook"
            else None
        )

    @property
    @override
    def name(self) -> str:
        return CHANNEL

    @property
    @override
    def capabilities(self) -> Capabilities:
        return CAPABILITIES

    @property
    @override
    def webhook(self) -> Webhook | None:
        return self._pushed.webhook if self._pushed else None

    @override
    async def run(self, intake: Intake, *, task_status: TaskStatus[None]) -> None:
        task_status.started()
        problem = _unusable(self._config)
        if problem:
            self._state.set(Link.FAILED, problem)
            return
        self._state.set(Link.CONNECTING)
        try:
            async with self._line.open() as bot:
                if self._pushed is not None:
                    await self._pushed.run(bot, intake)
                else:
                    await self._polling(bot).run(intake)
        finally:
            self._state.set(Link.STOPPED)

    @override
    def health(self) -> Health:
        return self._state.health

    @override
    def split(self, markdown: str) -> Sequence[str]:
        return split(markdown, fits)

    @override
    async def send(self, place: Place, markdown: str, *, key: str) -> MessageId:
        async with self._line.open() as bot:
            return await send_text(
                bot, place, render(markdown), within_s=2 * self._timing.total_s()
            )

    @override
    async def send_file(self, place: Place, file: OutgoingFile, *, key: str) -> MessageId:
        async with self._line.open() as bot:
            return await send_file(bot, place, file, timing=self._timing)

    @override
    @asynccontextmanager
    async def download(
        self, attachment: Attachment, *, max_bytes: int
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        async with (
            self._line.open() as bot,
            opened(bot, attachment, max_bytes=max_bytes, timing=self._timing) as chunks,
        ):
            yield chunks

    @override
    async def working(self, place: Place) -> None:
        async with self._line.open() as bot:
            await send_typing(bot, place, within_s=self._timing.total_s())

    @override
    async def finished(self, place: Place, *, ok: bool) -> None:
        """Do nothing: typing ends by itself, with the answer or after 5 seconds."""

    def _polling(self, bot: PollingBot) -> Polling:
        return Polling(bot, self._state, commands=self._commands, timing=self._timing)


def _unusable(config: TelegramConfig) -> str:
    """Return what is wrong with a section before anything is tried; "" if nothing is."""
    token = config.bot_token
    if not token:
        return "channels.telegram.bot_token is not set: @BotFather gives one to every bot."
    if not (token.isascii() and token.isprintable()) or set(token) & set(" /?#%"):
        return (
            "channels.telegram.bot_token is not a bot token: @BotFather shows it as 123456:ABC..."
        )
    return fault(config) if config.mode == "webhook" else ""
