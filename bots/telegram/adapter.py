"""The Telegram adapter: connects, receives updates, and sends messages."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from functools import partial

import anyio
from telegram.error import TelegramError
from typing_extensions import override

from bots.common.adapter import BaseAdapter
from bots.common.call_limits import AccountLimiter
from bots.common.webhooks import RETRY_LATER, WebhookRequest, WebhookResponse
from bots.config import TelegramConfig
from bots.telegram.api import (
    ALLOWED_UPDATES,
    DRAFT_UPDATES,
    MALFORMED,
    TelegramBot,
    TelegramConnections,
    TelegramTimeouts,
    redact_sdk_logs,
)
from bots.telegram.capabilities import (
    CALLS_PER_S,
    GROUP_CALLS_PER_MINUTE,
    PATCH_SHARE,
    TYPING_SHARE,
    TYPING_SHARE_BESIDE_PATCHES,
    capabilities,
)
from bots.telegram.connection_failures import connection_failure
from bots.telegram.downloads import open_download
from bots.telegram.drafts import TelegramDrafts
from bots.telegram.errors import ChatMigratedError
from bots.telegram.files import send_file
from bots.telegram.format import FormattedText, fits, render, render_note
from bots.telegram.keyboard import is_silent
from bots.telegram.message_calls import (
    OutgoingMessage,
    answer_callback_query,
    delete_message,
    is_member,
    send_typing,
)
from bots.telegram.outbound import TelegramMessages
from bots.telegram.polling import UpdatePoller
from bots.telegram.receiver import TelegramReceiver
from bots.telegram.setup import get_identity, register_commands
from bots.telegram.update_queue import UpdateQueue
from bots.telegram.webhook import TelegramWebhook, webhook_problem
from bots.text.markdown import close_open
from bots.text.split_markdown import split_markdown
from bots.text.worker import process_text
from bus.messages import Attachment, Button, MessageId, PressResponse, ReplyTarget
from bus.platform import (
    Adapter,
    Capabilities,
    Clock,
    CommandInfo,
    Intake,
    OutgoingFile,
    SupportsButtons,
    SupportsDeletion,
    SupportsDownloads,
    SupportsDrafts,
    SupportsEditing,
    SupportsIndicators,
    SupportsMembership,
    SupportsNotes,
    SupportsPrivateChats,
    SupportsStreaming,
    WorkShown,
)
from bus.retry import Backoff

_MAX_WAIT_S = 30.0
"""How long a required call waits for the rate limit, seconds. After that, the delivery worker retries it."""


def build(name: str, config: TelegramConfig, commands: Sequence[CommandInfo]) -> Adapter:
    """Return the adapter of a section with `platform: telegram`.

    Args:
        name: The section's name.
        config: The section, with resolved secrets.
        commands: The commands that Telegram's apps list. In groups, they address the bot.
    """
    return TelegramAdapter(config, commands, name=name)


class TelegramAdapter(
    BaseAdapter,
    SupportsButtons,
    SupportsDownloads,
    SupportsEditing,
    SupportsStreaming,
    SupportsDrafts,
    SupportsDeletion,
    SupportsIndicators,
    SupportsMembership,
    SupportsNotes,
    SupportsPrivateChats,
):
    """A Telegram bot that uses polling or a webhook. It can send even while `run` is not active.

    If `streaming` is on, answers grow: as drafts in private chats, and as edited messages in groups.
    """

    def __init__(
        self,
        config: TelegramConfig,
        commands: Sequence[CommandInfo],
        *,
        name: str = "telegram",
        timeouts: TelegramTimeouts | None = None,
        now: Clock = time.time,
    ) -> None:
        redact_sdk_logs()
        self._config = config
        self._commands = tuple(commands)
        self._timeouts = timeouts or TelegramTimeouts()
        self._backoff = Backoff(
            first_s=self._timeouts.retry_min_s, cap_s=self._timeouts.retry_max_s, jitter=0.25
        )
        super().__init__(
            name,
            config,
            backoff=self._backoff,
            failed_retry_s=self._timeouts.failed_retry_s,
            task_timeout_s=2 * self._timeouts.total_s(),
            webhook_timeout_s=self._timeouts.ack_s,
            now=now,
        )
        self._connections = TelegramConnections(config, self._timeouts)
        self._capabilities = capabilities(
            streaming=config.streaming,
            notice_s=self._timeouts.notice_s,
            patch_s=self._timeouts.patch_s,
        )
        self._allowed = ALLOWED_UPDATES + (DRAFT_UPDATES if config.streaming else ())
        self._intake: Intake | None = None
        self._drafts = TelegramDrafts()
        self._messages = TelegramMessages(
            rich=config.rich_messages == "auto", timeout_s=2 * self._timeouts.total_s()
        )
        self._limiter = call_limiter(divide_limit=self._divide_limit)
        self._registered = False
        self._hook: TelegramWebhook | None = None

    @property
    @override
    def capabilities(self) -> Capabilities:
        return self._capabilities

    @override
    def config_problem(self) -> str:
        token = self._config.bot_token
        key = f"channels.{self.name}.bot_token"
        if not token:
            return f"{key} is not set: @BotFather gives one to every bot."
        if not (token.isascii() and token.isprintable()) or set(token) & set(" /?#%"):
            return f"{key} is not a bot token: @BotFather shows it as 123456:ABC..."
        return webhook_problem(self.name, self._config) if self._config.mode == "webhook" else ""

    @override
    async def receive(self, intake: Intake) -> None:
        self._intake = intake
        async with self._connections.open() as bot:
            receiver = self._build_receiver(bot, intake)
            if self._config.mode == "webhook":
                self._hook = TelegramWebhook(
                    self.name,
                    self._config,
                    receiver,
                    self.tracker,
                    timeouts=self._timeouts,
                    allowed=self._allowed,
                )
                await self.connection.run(partial(self._connect, bot, receiver, self._hook))
                return
            queue = UpdateQueue(receiver.handle, self._backoff)
            poller = UpdatePoller(
                queue, intake, self.tracker, timeouts=self._timeouts, allowed=self._allowed
            )
            async with queue.running():
                await self.connection.run(partial(self._connect, bot, receiver, poller))

    async def _connect(
        self, bot: TelegramBot, receiver: TelegramReceiver, updates: UpdatePoller | TelegramWebhook
    ) -> None:
        try:
            with anyio.fail_after(3 * self._timeouts.total_s()):
                receiver.identity = await get_identity(bot, self.name)
                await updates.prepare(bot)
                if not self._registered:
                    self._registered = await register_commands(bot, self._commands)
            await updates.receive(bot)
        except (TelegramError, TimeoutError, *MALFORMED) as error:
            base_url = self._config.base_url
            raise connection_failure(error, channel=self.name, base_url=base_url) from None

    @override
    async def handle_request(self, intake: Intake, request: WebhookRequest) -> WebhookResponse:
        return await self._hook.handle(request) if self._hook else RETRY_LATER

    @override
    def split(self, markdown: str) -> Sequence[str]:
        return split_markdown(markdown, fits)

    @override
    async def send(self, target: ReplyTarget, markdown: str, *, key: str) -> MessageId:
        return await self._send_text(target, markdown, (), silent=False)

    @override
    async def send_with_buttons(
        self, target: ReplyTarget, markdown: str, buttons: Sequence[Button], *, key: str
    ) -> MessageId:
        return await self._send_text(target, markdown, buttons, silent=is_silent(buttons))

    @override
    async def start_streaming(
        self, target: ReplyTarget, markdown: str, *, key: str, buttons: Sequence[Button] = ()
    ) -> MessageId:
        return await self._send_text(target, markdown, buttons, silent=False)

    @override
    async def edit_message(
        self,
        target: ReplyTarget,
        message: MessageId,
        markdown: str,
        *,
        buttons: Sequence[Button] = (),
    ) -> None:
        content = await process_text(self._messages.compose, markdown, buttons)
        async with self._calling(target) as bot:
            await self._messages.edit(bot, target, message, content)

    @override
    async def update_streaming(
        self,
        target: ReplyTarget,
        message: MessageId,
        markdown: str,
        *,
        final: bool,
        buttons: Sequence[Button] = (),
    ) -> None:
        if final:
            content = await process_text(self._messages.compose, markdown, buttons)
        else:
            content = OutgoingMessage(
                text=await process_text(_render_partial, markdown), buttons=buttons
            )
        async with self._calling(target, share=None if final else PATCH_SHARE) as bot:
            await self._messages.edit(bot, target, message, content)

    @override
    async def delete_message(self, target: ReplyTarget, message: MessageId) -> None:
        # Messages from before a group became a supergroup can no longer be deleted.
        with suppress(ChatMigratedError):
            async with self._calling(target) as bot:
                await delete_message(bot, target, message, within_s=self._timeouts.total_s())

    @override
    def uses_drafts(self, target: ReplyTarget) -> bool:
        return self._config.streaming and self._drafts.available and not is_group(target.chat)

    @override
    async def send_draft(
        self, target: ReplyTarget, markdown: str, *, key: str, stop: Button
    ) -> None:
        text = FormattedText(text="", entities=())
        if markdown.strip():
            text = await process_text(_render_partial, markdown)
        number = self._drafts.begin(target, key, stop)
        # Shielded, so that a sent draft arrives before the answer. Otherwise it would appear below it.
        with anyio.CancelScope(shield=True):
            async with self._calling(target, share=PATCH_SHARE) as bot:
                await self._drafts.show(
                    bot, target, text, number, within_s=self._timeouts.indicator_s
                )

    @override
    async def send_note(self, target: ReplyTarget, text: str, *, key: str) -> MessageId:
        """Send a plain text as a quotation, which is collapsed if it is long."""
        content = OutgoingMessage(text=render_note(text), silent=True)
        return await self._send_content(target, content)

    @override
    async def private_target(self, target: ReplyTarget) -> ReplyTarget | None:
        """Return the private chat with a person. Its ID is theirs, and it exists once they have written to the bot."""
        if not target.user.isdigit():
            return None
        return replace(target, chat=target.user, thread="", reply_to="")

    @override
    async def is_member(self, target: ReplyTarget, person: str) -> bool | None:
        if not person.isdigit():
            return None
        async with self._calling(target) as bot:
            return await is_member(bot, target, int(person), within_s=self._timeouts.total_s())

    @override
    async def send_file(self, target: ReplyTarget, file: OutgoingFile, *, key: str) -> MessageId:
        async def request(to: ReplyTarget) -> MessageId:
            async with self._calling(to) as bot:
                return await send_file(bot, to, file, timeouts=self._timeouts)

        return await self._follow_migration(request, target)

    @override
    @asynccontextmanager
    async def download(
        self, attachment: Attachment, *, max_bytes: int
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        async with (
            self._connections.open() as bot,
            open_download(bot, attachment, max_bytes=max_bytes, timeouts=self._timeouts) as chunks,
        ):
            yield chunks

    @override
    async def show_working(self, target: ReplyTarget) -> None:
        share = TYPING_SHARE_BESIDE_PATCHES if self._capabilities.streaming else TYPING_SHARE
        # Shielded, so that "typing" arrives before the answer. The answer ends it.
        with anyio.CancelScope(shield=True):
            async with self._calling(target, share=share) as bot:
                await send_typing(bot, target, within_s=self._timeouts.indicator_s)

    @override
    async def show_finished(
        self, target: ReplyTarget, *, ok: bool, was_shown: WorkShown = WorkShown.UNKNOWN
    ) -> None:
        """Do nothing, because typing ends with the answer or after 5 seconds."""

    async def _send_text(
        self, target: ReplyTarget, markdown: str, buttons: Sequence[Button], *, silent: bool
    ) -> MessageId:
        content = await process_text(self._messages.compose, markdown, buttons, silent=silent)
        return await self._send_content(target, content)

    async def _send_content(self, target: ReplyTarget, content: OutgoingMessage) -> MessageId:
        async def request(to: ReplyTarget) -> MessageId:
            async with self._calling(to) as bot:
                return await self._messages.send(bot, to, content)

        return await self._follow_migration(request, target)

    async def _follow_migration(
        self, request: Callable[[ReplyTarget], Awaitable[MessageId]], target: ReplyTarget
    ) -> MessageId:
        """Send. If the group became a supergroup, tell the bus, and send there without replying to a message."""
        try:
            return await request(target)
        except ChatMigratedError as migrated:
            bot_id, _, _ = self._config.bot_token.partition(":")
            if self._intake is not None:
                # Tell the bus before sending, so that a reply to the message finds its conversation under the new ID.
                await self._intake.migrate_chat(self.name, bot_id, target.chat, migrated.new_chat)
            return await request(ReplyTarget(chat=migrated.new_chat))

    def _divide_limit(self, limit: int) -> int:
        return limit if self._intake is None else self._intake.divide_limit(limit)

    @asynccontextmanager
    async def _calling(
        self, target: ReplyTarget, *, share: float | None = None
    ) -> AsyncIterator[TelegramBot]:
        """Yield the bot for one call to a chat. Raises DeliveryError. `share` as in `AccountLimiter.acquire`."""
        async with self._limiter.limit(target.chat, share=share), self._connections.open() as bot:
            yield bot

    def _build_receiver(self, bot: TelegramBot, intake: Intake) -> TelegramReceiver:
        timeout_s = self._timeouts.total_s()

        def answer(query_id: str, response: PressResponse) -> None:
            self.background.start(
                "answering a button",
                lambda: answer_callback_query(bot, query_id, response, timeout_s=timeout_s),
            )

        return TelegramReceiver(
            intake,
            frozenset(command.name for command in self._commands),
            answer=answer,
            stop_token=self._drafts.stop_token,
            greeting=self.greeting,
        )


def call_limiter(*, divide_limit: Callable[[int], int] = lambda limit: limit) -> AccountLimiter:
    """Return the limiter of one bot's calls.

    Args:
        divide_limit: As in `AccountLimiter`.
    """
    group_windows = {60.0: GROUP_CALLS_PER_MINUTE}
    return AccountLimiter(
        {1.0: CALLS_PER_S},
        chat_windows=lambda chat: group_windows if is_group(chat) else {},
        max_wait_s=_MAX_WAIT_S,
        divide_limit=divide_limit,
    )


def is_group(chat: str) -> bool:
    """Return whether a chat ID belongs to a group.

    >>> is_group("-100200"), is_group("42")
    (True, False)
    """
    return chat.startswith("-")


def _render_partial(markdown: str) -> FormattedText:
    """Render an unfinished text."""
    return render(close_open(markdown))
