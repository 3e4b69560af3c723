"""The Feishu and Lark channel: connect, receive, send. Thin: the work is in the modules beside it."""

import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskStatus
from typing_extensions import override

from bots.common.webhooks import SupportsWebhook, WebhookEndpoint
from bots.config import FeishuConfig
from bots.feishu.api import FeishuApi, FeishuBot
from bots.feishu.capabilities import FEISHU, STREAMING
from bots.feishu.card_entities import CardEntities
from bots.feishu.cardkit import CardKitApi
from bots.feishu.downloads import FeishuDownloader as FileDownloads
from bots.feishu.errors import FeishuError
from bots.feishu.events import CHANNEL
from bots.feishu.files import FeishuFileUploader
from bots.feishu.format import fits
from bots.feishu.greeting import FeishuGreeting
from bots.feishu.long_connection import LongConnection
from bots.feishu.outbound import FeishuMessages
from bots.feishu.private_chats import PrivateChats
from bots.feishu.receiver import FeishuReceiver, ReceiverContext
from bots.feishu.rest import FeishuApp, FeishuRestClient
from bots.feishu.sdk import FrameCodec
from bots.feishu.streaming_cards import StreamingCards
from bots.feishu.timeouts import Backoff, FeishuTimeouts
from bots.feishu.vitals import Vitals
from bots.text.split import split
from bus.config import AUTO
from bus.messages import Attachment, Button, MessageId, ReplyTarget
from bus.platform import (
    Adapter,
    Capabilities,
    ChannelHealth,
    Clock,
    CommandInfo,
    Intake,
    OutgoingFile,
    SupportsButtons,
    SupportsDownloads,
    SupportsEditing,
    SupportsIndicators,
    SupportsStreaming,
)

if TYPE_CHECKING:
    from bots.feishu.webhook import FeishuWebhook


class FeishuAdapter(
    Adapter,
    SupportsButtons,
    SupportsDownloads,
    SupportsEditing,
    SupportsStreaming,
    SupportsIndicators,
    SupportsWebhook,
):
    """A Feishu or Lark app over the long connection, or with a webhook."""

    def __init__(
        self,
        config: FeishuConfig,
        *,
        commands: Sequence[CommandInfo] = (),
        timings: FeishuTimeouts | None = None,
        now: Clock = time.time,
    ) -> None:
        """Connect nothing yet; import the SDK's frame (0.2 s), or for a webhook the cipher (0.1 s).

        Args:
            config: `channels.feishu`.
            commands: What entries of the bot's menu may call.
            timings: Bounds and waits; tests pass short ones.
            now: The wall clock, for `health`.
        """
        self._config = config
        self._timings = timings or FeishuTimeouts()
        self._app = FeishuApp(
            app_id=config.app_id, app_secret=config.app_secret, domain=config.domain.rstrip("/")
        )
        self._rest = FeishuRestClient(self._app, self._timings)
        self._api = FeishuApi(self._rest)
        self._vitals = Vitals(now)
        self._chats = PrivateChats()
        self._commands = frozenset(command.name for command in commands)
        kit = CardKitApi(self._rest)
        wanted = config.streaming is not False
        self._entities = CardEntities(kit, wanted=wanted, given_up=self._vitals.noted)
        self._outbound = FeishuMessages(
            self._api,
            FeishuFileUploader(self._api, limit_s=self._timings.upload_s),
            entities=self._entities,
            streams=StreamingCards(kit),
            chats=self._chats,
        )
        self._downloads = FileDownloads(self._rest, silence_s=self._timings.upload_s)
        self._webhook = self._build_webhook(now) if config.mode == "webhook" else None
        self._codec = None if self._webhook else FrameCodec()

    @property
    @override
    def name(self) -> str:
        return CHANNEL

    @property
    @override
    def capabilities(self) -> Capabilities:
        return STREAMING if self._entities.usable else FEISHU

    @property
    @override
    def webhook(self) -> WebhookEndpoint | None:
        return self._webhook.webhook if self._webhook else None

    @override
    async def run(self, intake: Intake, *, task_status: TaskStatus[None]) -> None:
        task_status.started()
        if problem := _problem(self._config):
            self._vitals.failed(problem)
            return
        self._vitals.trying()
        try:
            async with self._rest.shared_pool():
                await self._receive(intake, self._receiver(intake, await self._fetch_bot()))
        finally:
            self._vitals.stopped()

    @override
    def health(self) -> ChannelHealth:
        return self._vitals.health()

    @override
    def split(self, markdown: str) -> Sequence[str]:
        return split(markdown, fits, as_file=lambda _: True)

    @override
    async def send(self, place: ReplyTarget, markdown: str, *, key: str) -> MessageId:
        return await self._outbound.send(place, markdown, key=key)

    @override
    async def send_file(self, place: ReplyTarget, file: OutgoingFile, *, key: str) -> MessageId:
        return await self._outbound.send_file(place, file, key=key)

    @override
    @asynccontextmanager
    async def download(
        self, attachment: Attachment, *, max_bytes: int
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        async with self._downloads.open(attachment, max_bytes=max_bytes) as chunks:
            yield chunks

    @override
    async def start_streaming(
        self, place: ReplyTarget, markdown: str, *, key: str, buttons: Sequence[Button] = ()
    ) -> MessageId:
        return await self._outbound.open_card(place, markdown, key=key, buttons=buttons)

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
        await self._outbound.patch(place, message, markdown, final=final, buttons=buttons)

    @override
    async def send_with_buttons(
        self, place: ReplyTarget, markdown: str, buttons: Sequence[Button], *, key: str
    ) -> MessageId:
        return await self._outbound.send(place, markdown, key=key, buttons=buttons)

    @override
    async def edit_message(
        self,
        place: ReplyTarget,
        message: MessageId,
        markdown: str,
        *,
        buttons: Sequence[Button] = (),
    ) -> None:
        await self._outbound.edit(place, message, markdown, buttons=buttons)

    @override
    async def show_working(self, place: ReplyTarget) -> None:
        await self._outbound.working(place)

    @override
    async def show_finished(self, place: ReplyTarget, *, ok: bool) -> None:
        await self._outbound.finished(place, ok=ok)

    async def _receive(self, intake: Intake, receiver: FeishuReceiver) -> None:
        """Take events in, the way that is configured, until cancelled."""
        if self._webhook is not None:
            await self._webhook.run(receiver, intake)
        elif self._codec is not None:
            connection = LongConnection(
                app=self._app, rest=self._rest, vitals=self._vitals, timings=self._timings
            )
            await connection.run(self._codec, receiver.handle)

    def _receiver(self, intake: Intake, bot: FeishuBot) -> FeishuReceiver:
        language = self._config.language
        around = ReceiverContext(
            private_chats=self._chats,
            greeting=FeishuGreeting(self._api, self._config),
            commands=self._commands,
            language=language if language and language != AUTO else "",
            press_s=self._timings.press_s,
        )
        return FeishuReceiver(intake, bot, around)

    def _build_webhook(self, now: Clock) -> "FeishuWebhook":
        from bots.feishu.webhook import FeishuWebhook, FeishuWebhookSecrets  # noqa: PLC0415 - the cipher

        secrets = FeishuWebhookSecrets(
            encrypt_key=self._config.encrypt_key,
            verification_token=self._config.verification_token,
        )
        return FeishuWebhook(self._api, self._vitals, self._timings, secrets=secrets, now=now)

    async def _fetch_bot(self) -> FeishuBot:
        """Ask for the bot's own id, for as long as it takes: without it no mention can be recognised."""
        backoff = Backoff(self._timings)
        while True:
            try:
                return await self._api.get_bot()
            except FeishuError as error:
                refused = error.refused or not error.retryable
                wait_s = self._timings.refused_s if refused else backoff.next_s()
                report = self._vitals.failed if refused else self._vitals.trying
                report(f"{error}; trying again in {wait_s:.0f} s")
            await anyio.sleep(wait_s)


def _problem(config: FeishuConfig) -> str:
    """Return what is wrong with the settings, or ""."""
    if config.mode != "webhook":
        return ""
    keys = [
        key for key in ("encrypt_key", "verification_token") if not getattr(config, key).strip()
    ]
    if not keys:
        return ""
    named = " and ".join(f"channels.feishu.{key}" for key in keys)
    return (
        f"{named} {'are' if len(keys) > 1 else 'is'} not set: mode webhook believes only deliveries that are"
        " encrypted and carry the token (developer console, Events & Callbacks, Encryption Strategy)"
    )


def build(name: str, config: FeishuConfig, commands: Sequence[CommandInfo]) -> Adapter:  # noqa: ARG001
    """Return the adapter of `channels.feishu`. Feishu has no list of commands to register them in."""
    logging.getLogger("httpx").setLevel(logging.WARNING)  # one INFO line a request, else
    return FeishuAdapter(config, commands=commands)
