"""The Feishu and Lark adapter: receives over the long connection or a webhook, and sends through the REST API."""

import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from typing_extensions import override

from bots.common.adapter import BaseAdapter
from bots.common.connection import ConnectionFailure
from bots.common.indicators import ReactionIndicator
from bots.common.webhooks import RETRY_LATER, WebhookRequest, WebhookResponse
from bots.config import FeishuConfig
from bots.feishu.api import FeishuApi
from bots.feishu.capabilities import FEISHU, STREAMING
from bots.feishu.card_entities import CardEntities
from bots.feishu.cardkit import CardKitApi
from bots.feishu.directory import FeishuDirectory
from bots.feishu.downloads import FeishuDownloader
from bots.feishu.errors import FeishuError
from bots.feishu.files import FeishuFileUploader
from bots.feishu.format import fits
from bots.feishu.long_connection import LongConnection
from bots.feishu.lookups import FeishuLookups
from bots.feishu.outbound import FeishuMessages
from bots.feishu.private_chats import PrivateChats
from bots.feishu.receiver import FeishuReceiver
from bots.feishu.rest import FeishuApp, FeishuRestClient
from bots.feishu.sdk import FrameCodec
from bots.feishu.speech import FeishuSpeech
from bots.feishu.streaming_cards import StreamingCards
from bots.feishu.timeouts import FeishuTimeouts
from bots.text.split_markdown import split_markdown
from bus.config import AUTO
from bus.messages import Attachment, ReplyTarget, Transcript
from bus.platform import (
    Adapter,
    Capabilities,
    Clock,
    CommandInfo,
    ConnectionState,
    Intake,
    SupportsDownloads,
    SupportsMembership,
    SupportsPrivateChats,
    SupportsTranscripts,
)

if TYPE_CHECKING:
    from bots.feishu.webhook import FeishuWebhook


class FeishuAdapter(
    FeishuMessages,
    ReactionIndicator,
    BaseAdapter,
    SupportsDownloads,
    SupportsMembership,
    SupportsPrivateChats,
    SupportsTranscripts,
):
    """A Feishu or Lark app, connected through the long connection or a webhook.

    `FeishuMessages` sends messages, and `ReactionIndicator` shows work in progress.

    The constructor does not connect. It imports the SDK's frame (0.2 s) or, for a webhook, the cipher (0.1 s).

    Args:
        config: The section of the channel.
        name: Instance name: the key of the section in `channels`.
        commands: The commands that the bot's menu may run.
        timeouts: Time limits and delays. Tests pass short ones.
        now: Wall clock.
    """

    def __init__(
        self,
        config: FeishuConfig,
        *,
        name: str = "feishu",
        commands: Sequence[CommandInfo] = (),
        timeouts: FeishuTimeouts | None = None,
        now: Clock = time.time,
    ) -> None:
        self._timeouts = timeouts = timeouts or FeishuTimeouts()
        BaseAdapter.__init__(
            self,
            name,
            config,
            backoff=timeouts.backoff,
            failed_retry_s=timeouts.failed_retry_s,
            task_timeout_s=timeouts.call_s,
            webhook_timeout_s=timeouts.ack_s,
            now=now,
        )
        self._config = config
        app = FeishuApp(
            app_id=config.app_id,
            app_secret=config.app_secret,
            domain=config.domain.rstrip("/"),
            channel=name,
        )
        self._rest = FeishuRestClient(app, timeouts)
        self._rest.on_refused = self._check_credentials
        api = FeishuApi(self._rest)
        self._private_chats = PrivateChats()
        self._commands = frozenset(command.name for command in commands)
        kit = CardKitApi(self._rest)
        entities = CardEntities(
            kit, enabled=config.streaming is not False, on_disabled=self.tracker.set_warning
        )
        FeishuMessages.__init__(
            self,
            api,
            FeishuFileUploader(api, limit_s=timeouts.upload_s),
            entities=entities,
            streams=StreamingCards(kit),
            chats=self._private_chats,
        )
        ReactionIndicator.__init__(
            self,
            lambda target, emoji: api.add_reaction(target.reply_to, emoji),
            lambda target, reaction: api.remove_reaction(target.reply_to, reaction),
            working="OK",
            done="DONE",
            failed="CrossMark",
            find=lambda target, emoji: api.find_reactions(
                target.reply_to, emoji, app_id=config.app_id
            ),
        )
        self._directory = FeishuDirectory(api, config.app_id)
        self._downloads = FeishuDownloader(
            self._rest, api, self._directory, silence_s=timeouts.upload_s
        )
        self._speech = FeishuSpeech(self._rest)
        self._long_connection = LongConnection(
            app=app, rest=self._rest, health=self.tracker, timeouts=timeouts
        )
        self._webhook = self._build_webhook(now) if config.mode == "webhook" else None
        self._codec = None if self._webhook else FrameCodec()

    @property
    @override
    def capabilities(self) -> Capabilities:
        return STREAMING if self._entities.usable else FEISHU

    @override
    def config_problem(self) -> str:
        config, section = self._config, f"channels.{self.name}"
        if not FeishuApp(app_id="", app_secret="", domain=config.domain).host:
            return f"{section}.domain is not a URL such as https://open.feishu.cn"
        names = ("encrypt_key", "verification_token") if config.mode == "webhook" else ()
        keys = [f"{section}.{name}" for name in names if not getattr(config, name).strip()]
        if not keys:
            return ""
        return (
            f"{' and '.join(keys)} {'are' if len(keys) > 1 else 'is'} not set: mode webhook accepts only requests that"
            " are encrypted and contain the token (developer console, Events & Callbacks, Encryption Strategy)"
        )

    @override
    async def receive(self, intake: Intake) -> None:
        self._rest.divide_limit = intake.divide_limit
        receiver = self._receiver(intake)
        async with self._rest.shared_pool():
            await self.connection.run(partial(self._connect, receiver))

    @override
    def split(self, markdown: str) -> Sequence[str]:
        return split_markdown(markdown, fits, as_file=lambda _: True)

    @override
    def download(
        self, attachment: Attachment, *, max_bytes: int
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        return self._downloads.open(attachment, max_bytes=max_bytes)

    @override
    async def find_transcript(self, attachment: Attachment, audio: Path) -> Transcript | None:
        """Return Feishu's transcript of a voice message."""
        return await self._speech.find_transcript(attachment, audio)

    @override
    async def private_target(self, target: ReplyTarget) -> ReplyTarget | None:
        """Return the private chat with a person: their open_id. Feishu finds or creates the chat."""
        if not target.user.startswith("ou_") or self._private_chats.is_private(target.chat):
            return None
        return replace(target, chat=target.user, thread="", reply_to="", thread_root="")

    @override
    async def is_member(self, target: ReplyTarget, person: str) -> bool | None:
        return await self._directory.is_member(target.chat, person)

    async def _connect(self, receiver: FeishuReceiver) -> None:
        if self._webhook is not None:
            self._webhook.receiver = receiver
            identify = partial(self._identify, receiver)
            await self._webhook.check_regularly(identify, interval_s=self._timeouts.check_s)
        if self._codec is not None:
            # Check each time, because Feishu may give a long connection to an app whose secret it otherwise refuses.
            await self._identify(receiver)
            await self._long_connection.serve(self._codec, receiver.handle)

    @override
    async def handle_request(self, intake: Intake, request: WebhookRequest) -> WebhookResponse:
        return await self._webhook.handle(intake, request) if self._webhook else RETRY_LATER

    def _check_credentials(self) -> None:
        """Reconnect because Feishu refuses the secret. Until Feishu accepts it again, health reports the refusal.

        A long connection stays open after its secret is revoked, but the bot could not answer the messages that arrive.
        """
        if self.tracker.state is ConnectionState.CONNECTED:
            self.connection.reconnect()

    async def _identify(self, receiver: FeishuReceiver) -> None:
        """Get the bot's own ID, which is needed to recognize mentions. Raises ConnectionFailure."""
        try:
            receiver.bot = await self._api.get_bot()
        except FeishuError as error:
            detail = error.user_message
            if error.refused:
                detail += f": check channels.{self.name}.app_id, app_secret and domain"
            raise ConnectionFailure(
                detail,
                retryable=error.retryable and not error.refused,
                retry_after_s=None if error.refused else error.retry_after_s,
            ) from error

    def _receiver(self, intake: Intake) -> FeishuReceiver:
        language = self._config.language
        return FeishuReceiver(
            intake,
            channel=self.name,
            health=self.tracker,
            private_chats=self._private_chats,
            greeting=self.greeting,
            lookups=FeishuLookups(self._api, self._directory, timeout_s=self._timeouts.lookup_s),
            answers_all=self._config.group_policy == "open",
            commands=self._commands,
            language=language if language and language != AUTO else "",
            press_s=self._timeouts.press_s,
        )

    def _build_webhook(self, now: Clock) -> "FeishuWebhook":
        from bots.feishu.webhook import FeishuWebhook, FeishuWebhookSecrets  # noqa: PLC0415 - the cipher

        secrets = FeishuWebhookSecrets(
            encrypt_key=self._config.encrypt_key,
            verification_token=self._config.verification_token,
            section=f"channels.{self.name}",
        )
        return FeishuWebhook(
            self.tracker, self.requests, channel=self.name, secrets=secrets, now=now
        )


def build(name: str, config: FeishuConfig, commands: Sequence[CommandInfo]) -> Adapter:
    """Return the adapter. Feishu has no list to register commands in."""
    logging.getLogger("httpx").setLevel(logging.WARNING)  # Otherwise it logs every request.
    return FeishuAdapter(config, name=name, commands=commands)
