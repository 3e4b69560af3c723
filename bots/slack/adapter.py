"""The Slack adapter: wires Bolt, the connection and the Web API to the bus' ports."""

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from anyio.abc import TaskStatus
from typing_extensions import override

from bots.config import SlackConfig
from bots.slack.api import Api
from bots.slack.capabilities import SLACK
from bots.slack.connection import Connection, Timers
from bots.slack.downloads import Downloads as FileDownloads
from bots.slack.errors import SlackError
from bots.slack.files import Files
from bots.slack.format import fits
from bots.slack.inbound import CHANNEL
from bots.slack.link import LinkState
from bots.slack.outbound import Outbound
from bots.slack.receiver import build_app
from bots.slack.webhook import HttpEvents
from bots.text.split import split
from bots.webhooks import Webhook, Webhooks
from bus.messages import Attachment, MessageId, Place
from bus.ports import (
    Adapter,
    Capabilities,
    CommandInfo,
    Downloads,
    Finds,
    Health,
    Intake,
    Now,
    OutgoingFile,
    Signs,
)


def build(config: SlackConfig, commands: Sequence[CommandInfo]) -> "SlackAdapter":  # noqa: ARG001
    """Return the adapter. Slack takes its commands from the app's manifest, not from here."""
    return SlackAdapter(config)


class SlackAdapter(Adapter, Downloads, Finds, Signs, Webhooks):
    """Slack over Socket Mode, or over HTTP.

    Args:
        config: The section `channels.slack`.
        timers: Deadlines and pauses.
        now: The wall clock.
    """

    def __init__(
        self, config: SlackConfig, *, timers: Timers | None = None, now: Now = time.time
    ) -> None:
        timers = timers or Timers()
        self._config = config
        self._link = LinkState(now)
        self._api = Api(
            bot_token=config.bot_token,
            app_token=config.app_token,
            base_url=config.base_url,
            timeout_s=timers.call_s,
        )
        self._connection = _connection(self._api, self._link, timers, config, now)
        self._files = Files(self._api, timeout_s=timers.call_s)
        self._outbound = Outbound(self._api, self._files)
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
        return SLACK

    @property
    @override
    def webhook(self) -> Webhook | None:
        return self._connection.webhook if isinstance(self._connection, HttpEvents) else None

    @override
    async def run(self, intake: Intake, *, task_status: TaskStatus[None]) -> None:
        task_status.started()
        if problem := _problem(self._config):
            self._link.failed(problem)
            return
        app = build_app(
            intake, me=lambda: self._api.known_identity, bot_token=self._config.bot_token
        )
        try:
            async with self._api.pooled() as session:
                await self._connection.run(session, app, intake)
        finally:
            self._link.stopped()

    @override
    def health(self) -> Health:
        return self._link.health()

    @override
    def split(self, markdown: str) -> Sequence[str]:
        return split(markdown, fits)

    @override
    async def send(self, place: Place, markdown: str, *, key: str) -> MessageId:
        async with self._watched():
            return await self._outbound.send(place, markdown, key=key)

    @override
    async def send_file(self, place: Place, file: OutgoingFile, *, key: str) -> MessageId:
        async with self._watched():
            return await self._files.send(place, file, key=key)

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
    async def find(self, place: Place, *, key: str, since: float) -> MessageId | None:
        async with self._watched():
            return await self._outbound.find(place, key=key, since=since)

    @override
    async def working(self, place: Place) -> None:
        async with self._watched():
            await self._outbound.working(place)

    @override
    async def finished(self, place: Place, *, ok: bool) -> None:
        async with self._watched():
            await self._outbound.finished(place, ok=ok)

    @asynccontextmanager
    async def _watched(self) -> AsyncIterator[None]:
        """Check the connection when a call is refused because of the token."""
        try:
            yield
        except SlackError as error:
            if error.token_refused:
                self._connection.recheck()
            raise


def _connection(
    api: Api, link: LinkState, timers: Timers, config: SlackConfig, now: Now
) -> Connection | HttpEvents:
    if config.mode == "http":
        return HttpEvents(api, link, timers, secret=config.signing_secret or "", now=now)
    return Connection(api, link, timers)


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
