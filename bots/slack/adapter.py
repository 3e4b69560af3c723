"""The Slack adapter: receives events over Socket Mode or HTTP, and sends through the Web API."""

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

from typing_extensions import override

from bots.common.adapter import BaseAdapter
from bots.common.installation import CredentialVault, InstallationEndpoint, SupportsInstallation
from bots.common.webhooks import WebhookRequest, WebhookResponse
from bots.config import SlackConfig
from bots.slack.api import SlackApi
from bots.slack.attachments import split_installation
from bots.slack.capabilities import SLACK, STREAMING
from bots.slack.connection import SlackTimeouts, check_bot_token
from bots.slack.downloads import SlackDownloader
from bots.slack.errors import SlackError
from bots.slack.files import SlackFileUploader
from bots.slack.format import fits
from bots.slack.indicator import SlackIndicator
from bots.slack.members import is_member
from bots.slack.oauth import SlackInstaller
from bots.slack.outbound import SlackMessages
from bots.slack.payload import split_recipient
from bots.slack.receiver import SlackReceiver
from bots.slack.socket_mode import SocketModeConnection
from bots.slack.streaming import SlackStreamingMessages
from bots.slack.users import SlackUserDirectory
from bots.slack.webhook import SlackWebhook
from bots.text.split_markdown import split_markdown
from bus.locales import messages_for
from bus.messages import Attachment, Button, MessageId, ReplyTarget, Transcript
from bus.platform import (
    Capabilities,
    Clock,
    CommandInfo,
    Intake,
    OutgoingFile,
    SupportsButtons,
    SupportsDeletion,
    SupportsDownloads,
    SupportsEditing,
    SupportsIndicators,
    SupportsMembership,
    SupportsMessageLookup,
    SupportsNotes,
    SupportsPrivateChats,
    SupportsRefusalIndicator,
    SupportsStreaming,
    SupportsTranscripts,
    WorkShown,
)


def build(name: str, config: SlackConfig, commands: Sequence[CommandInfo]) -> "SlackAdapter":  # noqa: ARG001
    """Return the adapter. Slack gets its commands from the app's manifest."""
    return SlackAdapter(config, name=name)


class SlackAdapter(
    BaseAdapter,
    SupportsButtons,
    SupportsDownloads,
    SupportsEditing,
    SupportsMessageLookup,
    SupportsNotes,
    SupportsPrivateChats,
    SupportsRefusalIndicator,
    SupportsStreaming,
    SupportsDeletion,
    SupportsIndicators,
    SupportsMembership,
    SupportsInstallation,
    SupportsTranscripts,
):
    """A Slack app, connected over Socket Mode or HTTP.

    Args:
        config: The section of the channel.
        name: Instance name: the key of the section in `channels`.
        timeouts: Deadlines and delays.
        now: Wall clock.
    """

    webhook_mode = "http"

    def __init__(
        self,
        config: SlackConfig,
        *,
        name: str = "slack",
        timeouts: SlackTimeouts | None = None,
        now: Clock = time.time,
    ) -> None:
        self._timeouts = timeouts = timeouts or SlackTimeouts()
        super().__init__(
            name,
            config,
            backoff=timeouts.backoff,
            failed_retry_s=timeouts.failed_retry_s,
            stable_s=timeouts.stable_s,
            task_timeout_s=timeouts.call_s,
            webhook_timeout_s=timeouts.ack_s,
            now=now,
        )
        self._config = config
        self._api = SlackApi(config, timeout_s=timeouts.call_s, channel=name)
        self._users = SlackUserDirectory(self._api)
        self._files = SlackFileUploader(self._api, timeout_s=timeouts.call_s)
        self._messages = SlackMessages(self._api, self._files)
        self._indicator = SlackIndicator(self._api, messages_for(config.language or ""))
        self._streaming = SlackStreamingMessages(
            self._api, self._messages, timeouts.streaming, self._stop_turn
        )
        self._downloads = SlackDownloader(
            self._api, base_url=config.base_url, timeout_s=timeouts.call_s
        )
        self._socket_mode = SocketModeConnection(
            self._api, self.tracker, channel=name, timeouts=timeouts
        )
        self._webhook = SlackWebhook(
            self._api,
            self.tracker,
            self.requests,
            channel=name,
            secret=config.signing_secret or "",
            now=now,
        )
        self._receiver: SlackReceiver | None = None
        self._installer: SlackInstaller | None = None
        self._now = now

    @override
    def enable_installation(self, vault: CredentialVault) -> InstallationEndpoint | None:
        if not (self._config.client_id and self._config.client_secret):
            return None
        self._installer = SlackInstaller(
            self._api,
            self._config,
            channel=self.name,
            vault=vault,
            on_installed=self.connection.reconnect,
            now=self._now,
        )
        return self._installer.endpoint

    @property
    @override
    def capabilities(self) -> Capabilities:
        name = next((bot.name for bot in self._api.bots if bot.name), "")
        return _capabilities(name, streaming=self._config.streaming)

    @override
    def config_problem(self) -> str:
        config, section = self._config, f"channels.{self.name}"
        has_oauth = bool(config.client_id and config.client_secret)
        if not (config.bot_token or has_oauth):
            return f"{section}.bot_token is not set: set it to the Bot User OAuth Token (xoxb-...)."
        if config.mode == "http":
            if (config.signing_secret or "").strip():
                return ""
            return f"{section}.signing_secret is not set: mode http needs the app's Signing Secret."
        if not config.app_token:
            return f"{section}.app_token is not set: set it to an app-level token (xapp-...)."
        return ""

    @override
    async def receive(self, intake: Intake) -> None:
        self._receiver = SlackReceiver(
            intake,
            health=self.tracker,
            api=self._api,
            users=self._users,
            timeouts=self._timeouts,
            messages=self._messages,
            streaming=self._streaming,
            indicator=self._indicator,
            background=self.background,
            reauthenticate=self.connection.reconnect,
            forget=self._forget,
            hears_everything=self._config.group_policy == "open",
        )
        app = self._webhook.app = self._receiver.app()
        if self._installer is not None:
            await self._installer.load()
        try:
            async with self._api.shared_session() as http:
                if self._config.mode == "http":
                    await self.connection.run(self._check_regularly)
                else:
                    await self.connection.run(partial(self._socket_mode.serve, http, app))
        finally:
            self._receiver = None

    @override
    def split(self, markdown: str) -> Sequence[str]:
        return split_markdown(markdown, fits, as_file=lambda _: True)

    @override
    async def send(self, target: ReplyTarget, markdown: str, *, key: str) -> MessageId:
        async with self._calling(target):
            return await self._messages.send(target, markdown, key=key)

    @override
    async def send_with_buttons(
        self, target: ReplyTarget, markdown: str, buttons: Sequence[Button], *, key: str
    ) -> MessageId:
        async with self._calling(target):
            return await self._messages.send(target, markdown, key=key, buttons=buttons)

    @override
    async def send_note(self, target: ReplyTarget, text: str, *, key: str) -> MessageId:
        async with self._calling(target):
            return await self._messages.send_note(target, text, key=key)

    @override
    async def find_transcript(self, attachment: Attachment, audio: Path) -> Transcript | None:
        """Return Slack's transcript of a clip. Waits up to `TRANSCRIPT_S` for it."""
        installation, ref = split_installation(attachment.ref)
        async with self._in_workspace(installation):
            return await self._downloads.find_transcript(ref)

    @override
    async def send_file(self, target: ReplyTarget, file: OutgoingFile, *, key: str) -> MessageId:
        async with self._calling(target):
            return await self._messages.send_file(target, file, key=key)

    @override
    async def edit_message(
        self,
        target: ReplyTarget,
        message: MessageId,
        markdown: str,
        *,
        buttons: Sequence[Button] = (),
    ) -> None:
        async with self._calling(target):
            await self._streaming.end_stream(target, message)
            await self._messages.edit(target, message, markdown, buttons)

    @override
    async def delete_message(self, target: ReplyTarget, message: MessageId) -> None:
        async with self._calling(target):
            await self._streaming.end_stream(target, message)
            await self._messages.remove(target, message)

    @override
    async def start_streaming(
        self, target: ReplyTarget, markdown: str, *, key: str, buttons: Sequence[Button] = ()
    ) -> MessageId:
        async with self._calling(target):
            return await self._streaming.start(target, markdown, key=key, buttons=buttons)

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
        async with self._calling(target):
            show = self._streaming.finish if final else self._streaming.update
            await show(target, message, markdown, buttons)

    @override
    @asynccontextmanager
    async def download(
        self, attachment: Attachment, *, max_bytes: int
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        installation, ref = split_installation(attachment.ref)
        async with (
            self._in_workspace(installation),
            self._downloads.open(replace(attachment, ref=ref), max_bytes=max_bytes) as chunks,
        ):
            yield chunks

    @override
    async def private_target(self, target: ReplyTarget) -> ReplyTarget | None:
        async with self._calling(target):
            return await self._messages.private_target(target)

    @override
    async def is_member(self, target: ReplyTarget, person: str) -> bool | None:
        async with self._calling(target):
            return await is_member(self._api, target.chat, person)

    @override
    async def find_message(
        self, target: ReplyTarget, *, key: str, since: float
    ) -> MessageId | None:
        async with self._calling(target):
            return await self._messages.find(target, key=key, since=since)

    @override
    async def show_working(self, target: ReplyTarget) -> None:
        async with self._calling(target):
            await self._indicator.working(target)

    @override
    async def show_finished(
        self, target: ReplyTarget, *, ok: bool, was_shown: WorkShown = WorkShown.UNKNOWN
    ) -> None:
        async with self._calling(target):
            await self._indicator.finished(target, ok=ok, was_shown=was_shown)

    @override
    async def show_refused(self, target: ReplyTarget) -> None:
        async with self._calling(target):
            await self._indicator.refused(target)

    @override
    async def handle_request(self, intake: Intake, request: WebhookRequest) -> WebhookResponse:
        return await self._webhook.handle(intake, request)

    async def _check_regularly(self) -> None:
        check = partial(check_bot_token, self._api, self.tracker, channel=self.name)
        await self._webhook.check_regularly(check, interval_s=self._timeouts.check_s)

    async def _forget(self, workspace: str) -> None:
        if self._installer is not None:
            await self._installer.remove(workspace)
            self.connection.reconnect()

    async def _stop_turn(self, target: ReplyTarget, message: MessageId, token: str) -> None:
        if token and self._receiver is not None:
            await self._receiver.stop_turn(target, message, token)

    def _calling(self, target: ReplyTarget) -> AbstractAsyncContextManager[None]:
        installation = split_recipient(target.user)[0]
        return self._in_workspace(installation or self._api.default_installation)

    @asynccontextmanager
    async def _in_workspace(self, installation: str) -> AsyncIterator[None]:
        """Use an installation's token. Reconnect if Slack refuses a call because of the token."""
        try:
            with self._api.in_workspace(installation):
                yield
        except SlackError as error:
            if error.token_refused:
                self.connection.reconnect()
            raise


@cache
def _capabilities(name: str, *, streaming: bool) -> Capabilities:
    """Return the capabilities of a bot with this name. Cached, because each turn asks for them seven times."""
    numbers = STREAMING if streaming else SLACK
    # Slack takes a line that begins with "/" for one of its own commands, and has no commands in threads.
    return replace(numbers, command_prefix=f"@{name} /") if name else numbers
