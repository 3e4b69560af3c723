"""The Slack adapter: wires Bolt, the connection and the Web API to the bus' ports."""

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from anyio.abc import TaskStatus
from typing_extensions import override

from bots.common.webhooks import SupportsWebhook, WebhookEndpoint
from bots.config import SlackConfig
from bots.slack.api import SlackApi
from bots.slack.capabilities import SLACK, STREAMING
from bots.slack.connection import SlackTimeouts, SocketModeConnection
from bots.slack.downloads import SlackDownloader as FileDownloads
from bots.slack.errands import Errands
from bots.slack.errors import SlackError
from bots.slack.event_actions import SlackEventActions
from bots.slack.files import SlackFileUploader
from bots.slack.format import fits
from bots.slack.indicator import SlackIndicator as SlackSigns
from bots.slack.link import LinkState
from bots.slack.outbound import SlackMessages
from bots.slack.payload import CHANNEL
from bots.slack.receiver import SlackReceiver
from bots.slack.streaming import SlackStreamingMessages
from bots.slack.users import SlackUserDirectory
from bots.slack.webhook import SlackWebhook
from bots.text.split import split
from bus.locales import messages_for
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
    SupportsDeletion,
    SupportsDownloads,
    SupportsEditing,
    SupportsIndicators,
    SupportsMessageLookup,
    SupportsStreaming,
)


def build(name: str, config: SlackConfig, commands: Sequence[CommandInfo]) -> "SlackAdapter":  # noqa: ARG001
    """Return the adapter. Slack takes its commands from the app's manifest, not from here."""
    return SlackAdapter(config)


class SlackAdapter(
    Adapter,
    SupportsButtons,
    SupportsDownloads,
    SupportsEditing,
    SupportsMessageLookup,
    SupportsStreaming,
    SupportsDeletion,
    SupportsIndicators,
    SupportsWebhook,
):
    """Slack over Socket Mode, or over HTTP.

    Args:
        config: The section `channels.slack`.
        timers: Deadlines and pauses.
        now: The wall clock.
    """

    def __init__(
        self, config: SlackConfig, *, timers: SlackTimeouts | None = None, now: Clock = time.time
    ) -> None:
        timers = timers or SlackTimeouts()
        self._config = config
        self._link = LinkState(now)
        self._api = SlackApi(
            bot_token=config.bot_token,
            app_token=config.app_token,
            base_url=config.base_url,
            timeout_s=timers.call_s,
        )
        self._users = SlackUserDirectory(self._api)
        self._connection = _connection(self._api, self._link, timers, config, now)
        self._files = SlackFileUploader(self._api, timeout_s=timers.call_s)
        self._outbound = SlackMessages(self._api, self._files)
        self._signs = SlackSigns(self._api, messages_for(config.language or ""))
        self._errands = Errands(timers.call_s)
        self._streams = SlackStreamingMessages(
            self._api, self._outbound, timers.streaming, self._halted
        )
        self._deeds = SlackEventActions(
            self._api,
            self._outbound,
            self._streams,
            self._signs,
            self._errands,
            self._connection.reauthenticate,
        )
        self._downloads = FileDownloads(
            self._api,
            base_url=config.base_url,
            token=config.bot_token,
            timeout_s=timers.call_s,
        )

    @property
    @override
    def name(self) -> str:
        return CHANNEL

    @property
    @override
    def capabilities(self) -> Capabilities:
        numbers = STREAMING if self._config.streaming else SLACK
        name = self._api.known_identity.name
        # Slack takes a line that begins with "/" for a command of its own, and has none in threads.
        return replace(numbers, command_prefix=f"@{name} /") if name else numbers

    @property
    @override
    def webhook(self) -> WebhookEndpoint | None:
        return self._connection.webhook if isinstance(self._connection, SlackWebhook) else None

    @override
    async def run(self, intake: Intake, *, task_status: TaskStatus[None]) -> None:
        task_status.started()
        if problem := _problem(self._config):
            self._link.failed(problem)
            return
        receiver = SlackReceiver(
            intake=intake,
            actions=self._deeds,
            identity=lambda: self._api.known_identity,
            users=self._users,
            bot_token=self._config.bot_token,
            hears_everything=self._config.group_policy == "open",
        )

        async def connected() -> None:
            async with self._api.shared_session() as session:
                await self._connection.run(session, receiver.app(), intake)

        self._deeds.intake = intake
        try:
            await self._errands.run(connected)
        finally:
            self._link.stopped()

    @override
    def health(self) -> ChannelHealth:
        return self._link.health()

    @override
    def split(self, markdown: str) -> Sequence[str]:
        return split(markdown, fits, as_file=lambda _: True)

    @override
    async def send(self, place: ReplyTarget, markdown: str, *, key: str) -> MessageId:
        async with self._watched():
            return await self._outbound.send(place, markdown, key=key)

    @override
    async def send_with_buttons(
        self, place: ReplyTarget, markdown: str, buttons: Sequence[Button], *, key: str
    ) -> MessageId:
        async with self._watched():
            return await self._outbound.send(place, markdown, key=key, buttons=buttons)

    @override
    async def send_file(self, place: ReplyTarget, file: OutgoingFile, *, key: str) -> MessageId:
        async with self._watched():
            return await self._files.send_file(place, file, key=key)

    @override
    async def edit_message(
        self,
        place: ReplyTarget,
        message: MessageId,
        markdown: str,
        *,
        buttons: Sequence[Button] = (),
    ) -> None:
        async with self._watched():
            await self._streams.end_stream(place, message)
            await self._outbound.edit(place, message, markdown, buttons)

    @override
    async def delete_message(self, place: ReplyTarget, message: MessageId) -> None:
        async with self._watched():
            await self._streams.end_stream(place, message)
            await self._outbound.remove(place, message)

    @override
    async def start_streaming(
        self, place: ReplyTarget, markdown: str, *, key: str, buttons: Sequence[Button] = ()
    ) -> MessageId:
        async with self._watched():
            return await self._streams.start(place, markdown, key=key, buttons=buttons)

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
        async with self._watched():
            show = self._streams.finish if final else self._streams.update
            await show(place, message, markdown, buttons)

    @override
    @asynccontextmanager
    async def download(
        self, attachment: Attachment, *, max_bytes: int
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        async with (
            self._watched(),
            self._downloads.open(attachment, max_bytes=max_bytes) as chunks,
        ):
            yield chunks

    @override
    async def find_message(self, place: ReplyTarget, *, key: str, since: float) -> MessageId | None:
        async with self._watched():
            return await self._outbound.find(place, key=key, since=since)

    @override
    async def show_working(self, place: ReplyTarget) -> None:
        async with self._watched():
            await self._signs.working(place)

    @override
    async def show_finished(self, place: ReplyTarget, *, ok: bool) -> None:
        async with self._watched():
            await self._signs.finished(place, ok=ok)

    async def _halted(self, place: ReplyTarget, message: MessageId, token: str) -> None:
        await self._deeds.on_stream_stopped(place, message, token)

    @asynccontextmanager
    async def _watched(self) -> AsyncIterator[None]:
        """Check the connection when a call is refused because of the token."""
        try:
            yield
        except SlackError as error:
            if error.token_refused:
                self._connection.reauthenticate()
            raise


def _connection(
    api: SlackApi, link: LinkState, timers: SlackTimeouts, config: SlackConfig, now: Clock
) -> SocketModeConnection | SlackWebhook:
    if config.mode == "http":
        return SlackWebhook(api, link, timers, secret=config.signing_secret or "", now=now)
    return SocketModeConnection(api, link, timers)


def _problem(config: SlackConfig) -> str:
    """Return what is wrong with the settings, or ""."""
    if not config.bot_token:
        return "channels.slack.bot_token is not set: it takes the Bot User OAuth Token (xoxb-...)."
    if config.mode == "http":
        if (config.signing_secret or "").strip():
            return ""
        return "channels.slack.signing_secret is not set: mode http takes the app's Signing Secret."
    if not config.app_token:
        return "channels.slack.app_token is not set: it takes an app-level token (xapp-...)."
    return ""
