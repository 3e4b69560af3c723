"""The Telegram adapter: connect, receive, send."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.abc import TaskGroup, TaskStatus
from typing_extensions import override

from bots.common.webhooks import SupportsWebhook, WebhookEndpoint
from bots.config import TelegramConfig
from bots.telegram.api import (
    ALLOWED_UPDATES,
    DRAFT_UPDATES,
    TelegramBot,
    TelegramConnections,
    TelegramTimeouts,
    redact_sdk_logs,
)
from bots.telegram.callbacks import Queries
from bots.telegram.capabilities import CHANNEL, capabilities
from bots.telegram.downloads import open_download
from bots.telegram.drafts import TelegramDrafts
from bots.telegram.errors import ChatMigratedError
from bots.telegram.failures import State
from bots.telegram.files import send_file
from bots.telegram.format import FormattedText, fits, render
from bots.telegram.keyboard import is_silent
from bots.telegram.limits import PATCHES, TYPING, TYPING_BESIDE_PATCHES, Pace, is_group
from bots.telegram.outbound import OutgoingMessage, delete_message, send_typing
from bots.telegram.polling import UpdatePoller
from bots.telegram.sender import TelegramSender
from bots.telegram.updates import Around, UpdateHandler
from bots.telegram.webhook import TelegramWebhook, webhook_problem
from bots.telegram.welcome import Welcome
from bots.text.markdown import close_open
from bots.text.split import split
from bus.errors import DeliveryError
from bus.messages import Attachment, Button, MessageId, ReplyTarget
from bus.platform import (
    Adapter,
    Capabilities,
    ChannelHealth,
    Clock,
    CommandInfo,
    ConnectionState,
    Intake,
    OutgoingFile,
    SupportsButtons,
    SupportsDeletion,
    SupportsDownloads,
    SupportsDrafts,
    SupportsEditing,
    SupportsIndicators,
    SupportsStreaming,
)


def build(config: TelegramConfig, commands: Sequence[CommandInfo]) -> Adapter:
    """Return the adapter of `channels.telegram`.

    Args:
        config: The section, secrets resolved.
        commands: What Telegram's clients list, and what addresses us in groups.
    """
    return TelegramAdapter(config, commands)


class TelegramAdapter(
    Adapter,
    SupportsButtons,
    SupportsDownloads,
    SupportsEditing,
    SupportsStreaming,
    SupportsDrafts,
    SupportsDeletion,
    SupportsIndicators,
    SupportsWebhook,
):
    """A Telegram bot that polls, or has a webhook. Sends also work while `run` does not.

    Answers grow only where `streaming` is on: as drafts in private chats, as edited messages in groups.
    """

    def __init__(
        self,
        config: TelegramConfig,
        commands: Sequence[CommandInfo],
        *,
        timing: TelegramTimeouts | None = None,
        now: Clock = time.time,
    ) -> None:
        redact_sdk_logs()
        self._config = config
        self._commands = tuple(commands)
        self._timing = timing or TelegramTimeouts()
        self._state = State(now)
        self._line = TelegramConnections(config, self._timing)
        self._capabilities = capabilities(
            streaming=config.streaming,
            notice_s=self._timing.notice_s,
            patch_s=self._timing.patch_s,
        )
        self._allowed = ALLOWED_UPDATES + (DRAFT_UPDATES if config.streaming else ())
        self._intake: Intake | None = None
        self._drafts = TelegramDrafts()
        self._letters = TelegramSender(rich=config.rich_messages == "auto")
        self._pace = Pace()
        self._pushed = (
            TelegramWebhook(
                self._state,
                config,
                self._commands,
                timing=self._timing,
                allowed=self._allowed,
            )
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
        return self._capabilities

    @property
    @override
    def webhook(self) -> WebhookEndpoint | None:
        return self._pushed.webhook if self._pushed else None

    @override
    async def run(self, intake: Intake, *, task_status: TaskStatus[None]) -> None:
        task_status.started()
        problem = _unusable(self._config)
        if problem:
            self._state.set(ConnectionState.FAILED, problem)
            return
        self._state.set(ConnectionState.CONNECTING)
        self._intake = intake
        try:
            async with self._line.open() as bot, anyio.create_task_group() as tasks:
                updates = self._updates(bot, intake, tasks)
                if self._pushed is not None:
                    await self._pushed.run(bot, intake, updates)
                else:
                    await self._polling(bot).run(updates)
        finally:
            self._state.set(ConnectionState.STOPPED)

    @override
    def health(self) -> ChannelHealth:
        return self._state.health

    @override
    def split(self, markdown: str) -> Sequence[str]:
        return split(markdown, fits)

    @override
    async def send(self, place: ReplyTarget, markdown: str, *, key: str) -> MessageId:
        return await self._sent(place, markdown, (), silent=False)

    @override
    async def send_with_buttons(
        self, place: ReplyTarget, markdown: str, buttons: Sequence[Button], *, key: str
    ) -> MessageId:
        return await self._sent(place, markdown, buttons, silent=is_silent(buttons))

    @override
    async def start_streaming(
        self, place: ReplyTarget, markdown: str, *, key: str, buttons: Sequence[Button] = ()
    ) -> MessageId:
        return await self._sent(place, markdown, buttons, silent=False)

    @override
    async def edit_message(
        self,
        place: ReplyTarget,
        message: MessageId,
        markdown: str,
        *,
        buttons: Sequence[Button] = (),
    ) -> None:
        letter = self._letters.write(markdown, buttons)
        async with self._calling(place) as bot:
            within_s = 2 * self._timing.total_s()
            await self._letters.edit(bot, place, message, letter, within_s=within_s)

    @override
    async def update_streaming(
        self,
        place: ReplyTarget,
        message: MessageId,
        markdown: str,
        *,
        final: bool,
        buttons: Sequence[Button] = (),
    ) -> None:
        if final:
            letter = self._letters.write(markdown, buttons)
        else:
            letter = OutgoingMessage(text=render(close_open(markdown)), buttons=buttons)
        async with self._calling(place, most=None if final else PATCHES) as bot:
            within_s = 2 * self._timing.total_s()
            await self._letters.edit(bot, place, message, letter, within_s=within_s)

    @override
    async def delete_message(self, place: ReplyTarget, message: MessageId) -> None:
        # What a group said before it became a supergroup can no longer be taken away.
        with suppress(ChatMigratedError):
            async with self._calling(place) as bot:
                await delete_message(bot, place, message, within_s=self._timing.total_s())

    @override
    def uses_drafts(self, place: ReplyTarget) -> bool:
        return self._config.streaming and self._drafts.available and not is_group(place.chat)

    @override
    async def send_draft(
        self, place: ReplyTarget, markdown: str, *, key: str, stop: Button
    ) -> None:
        text = FormattedText(text="", entities=())
        if markdown.strip():
            text = render(close_open(markdown))
        number = self._drafts.begin(place, key, stop)
        # Shielded: a draft that is out must have arrived before the answer is sent, or it would stand below it.
        with anyio.CancelScope(shield=True):
            async with self._calling(place, most=PATCHES) as bot:
                within_s = self._timing.sign_s
                await self._drafts.show(bot, place, text, number, within_s=within_s)

    @override
    async def send_file(self, place: ReplyTarget, file: OutgoingFile, *, key: str) -> MessageId:
        async def request(to: ReplyTarget) -> MessageId:
            async with self._calling(to) as bot:
                return await send_file(bot, to, file, timing=self._timing)

        return await self._followed(request, place)

    @override
    @asynccontextmanager
    async def download(
        self, attachment: Attachment, *, max_bytes: int
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        async with (
            self._line.open() as bot,
            open_download(bot, attachment, max_bytes=max_bytes, timing=self._timing) as chunks,
        ):
            yield chunks

    @override
    async def show_working(self, place: ReplyTarget) -> None:
        most = TYPING_BESIDE_PATCHES if self._capabilities.streaming else TYPING
        # Shielded: "typing" that is out must have arrived before the answer, which ends it.
        with anyio.CancelScope(shield=True):
            async with self._calling(place, most=most) as bot:
                await send_typing(bot, place, within_s=self._timing.sign_s)

    @override
    async def show_finished(self, place: ReplyTarget, *, ok: bool) -> None:
        """Do nothing: typing ends by itself, with the answer or after 5 seconds."""

    async def _sent(
        self, place: ReplyTarget, markdown: str, buttons: Sequence[Button], *, silent: bool
    ) -> MessageId:
        letter = self._letters.write(markdown, buttons, silent=silent)

        async def request(to: ReplyTarget) -> MessageId:
            async with self._calling(to) as bot:
                within_s = 2 * self._timing.total_s()
                return await self._letters.send(bot, to, letter, within_s=within_s)

        return await self._followed(request, place)

    async def _followed(
        self, request: Callable[[ReplyTarget], Awaitable[MessageId]], place: ReplyTarget
    ) -> MessageId:
        """Send; if the group became a supergroup, tell so, and send there. Nothing is replied to there."""
        try:
            return await request(place)
        except ChatMigratedError as moved:
            bot_id, _, _ = self._config.bot_token.partition(":")
            if self._intake is not None:
                # Before the message is out: a reply to it finds its conversation under the new id.
                await self._intake.migrate_chat(CHANNEL, bot_id, place.chat, moved.new_chat)
            return await request(ReplyTarget(chat=moved.new_chat))

    @asynccontextmanager
    async def _calling(
        self, place: ReplyTarget, *, most: int | None = None
    ) -> AsyncIterator[TelegramBot]:
        """Lend the bot for one call about a chat. Raises DeliveryError; `most` as in `Pace.turn`."""
        await self._pace.turn(place.chat, most=most)
        try:
            async with self._line.open() as bot:
                yield bot
        except DeliveryError as error:
            if error.retry_after_s:
                self._pace.flooded(place.chat, error.retry_after_s)
            raise

    def _updates(self, bot: TelegramBot, intake: Intake, tasks: TaskGroup) -> UpdateHandler:
        queries = Queries(bot, tasks, within_s=self._timing.total_s())
        return UpdateHandler(
            intake,
            frozenset(command.name for command in self._commands),
            Around(
                reply=queries.reply,
                stop_token=self._drafts.stop_token,
                greet=Welcome(self._config, self.send, tasks).greet,
            ),
        )

    def _polling(self, bot: TelegramBot) -> UpdatePoller:
        return UpdatePoller(
            bot,
            self._state,
            commands=self._commands,
            timing=self._timing,
            allowed=self._allowed,
        )


def _unusable(config: TelegramConfig) -> str:
    """Return what is wrong with a section before anything is tried; "" if nothing is."""
    token = config.bot_token
    if not token:
        return "channels.telegram.bot_token is not set: @BotFather gives one to every bot."
    if not (token.isascii() and token.isprintable()) or set(token) & set(" /?#%"):
        return (
            "channels.telegram.bot_token is not a bot token: @BotFather shows it as 123456:ABC..."
        )
    return webhook_problem(config) if config.mode == "webhook" else ""
