"""Base class of platform adapters: health, connection loop, background tasks and greeting, ready to use.

A platform's adapter subclasses `BaseAdapter` and adds `capabilities`, `connect` and `send`, and optional protocols of
`bus.platform`. It uses the other modules of this folder:

- `connection`: calls `connect` again, with backoff, when it returns or raises `ConnectionFailure` or
  `DeliveryError`.
- `health`: `self.tracker` records the state. Call `self.tracker.mark_connected()` when events can arrive.
- `call_limits`: an `AccountLimiter` spaces out calls. Wrap each call in `async with limiter.limit(chat)`.
- `background`: `self.background.start(...)` runs work that must not delay an acknowledgement.
- `greeting`: call `self.greeting.greet_group(...)` when the bot is added to a chat.
- `indicators`: `ReactionIndicator` implements `SupportsIndicators` with reactions.
- `webhooks`: in `mode: webhook`, `handle_request` gets the platform's requests. `SignedWebhook` verifies signed ones.
"""

import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial

import anyio
from anyio.abc import TaskStatus
from typing_extensions import override

from bots.common.background import BackgroundTasks
from bots.common.connection import RECONNECT, ConnectionFailure, ConnectionLoop
from bots.common.greeting import Greeting
from bots.common.health import HealthTracker, describe_refusal
from bots.common.webhooks import (
    RETRY_LATER,
    SupportsWebhook,
    WebhookEndpoint,
    WebhookReceiver,
    WebhookRequest,
    WebhookResponse,
)
from bots.config import PlatformConfig
from bots.text.split_markdown import split_markdown
from bus.errors import DeliveryError
from bus.messages import InboundMessage, MessageId, ReplyTarget
from bus.platform import Adapter, ChannelHealth, Clock, Disposition, Intake, OutgoingFile
from bus.retry import Backoff


class BaseAdapter(Adapter, SupportsWebhook):
    """An adapter that connects, reconnects and reports its health.

    Args:
        name: Instance name: the key of the section in `channels`.
        config: That section.
        backoff: Delays between attempts to connect.
        failed_retry_s: Delay after a failure that needs an operator.
        stable_s: After a connection that lasted this long, the adapter reconnects at once.
        webhook_timeout_s: How long one webhook request may take.
        task_timeout_s: How long one background task may take.
        now: Wall clock, for health.

    Attributes:
        max_chars: Longest message, for `split`.
        webhook_mode: The `mode` in which the platform sends HTTP requests.
    """

    max_chars = 2000
    webhook_mode = "webhook"

    def __init__(
        self,
        name: str,
        config: PlatformConfig,
        *,
        backoff: Backoff = RECONNECT,
        failed_retry_s: float = 60.0,
        stable_s: float = 10.0,
        task_timeout_s: float = 30.0,
        webhook_timeout_s: float = 10.0,
        now: Clock = time.time,
    ) -> None:
        self._name = name
        self._has_webhook = config.mode == self.webhook_mode
        self.tracker = HealthTracker(name, now)
        self.connection = ConnectionLoop(
            self.tracker, backoff=backoff, failed_retry_s=failed_retry_s, stable_s=stable_s
        )
        self.background = BackgroundTasks(name, timeout_s=task_timeout_s)
        self.greeting = Greeting(config, self.send, self.background)
        self.requests = WebhookReceiver(name, timeout_s=webhook_timeout_s)

    @property
    @override
    def name(self) -> str:
        return self._name

    @property
    @override
    def webhook(self) -> WebhookEndpoint | None:
        return self.requests.endpoint if self._has_webhook else None

    @override
    def health(self) -> ChannelHealth:
        return self.tracker.health()

    @override
    async def run(self, intake: Intake, *, task_status: TaskStatus[None]) -> None:
        task_status.started()
        if problem := self.config_problem():
            self.tracker.mark_failed(problem)
            return
        try:
            with self.requests.serving(partial(self.handle_request, intake)):
                async with self.background.running():
                    await self.receive(intake)
        finally:
            self.tracker.mark_stopped()

    def config_problem(self) -> str:
        """Return why the configuration cannot be used and how to fix it; "" = it can be used."""
        return ""

    async def receive(self, intake: Intake) -> None:
        """Receive until canceled. Override to keep resources open across connections."""
        await self.connection.run(partial(self.connect, intake))

    async def connect(self, intake: Intake) -> None:  # noqa: ARG002 - for overrides
        """Make one connection and serve it. See `ConnectionLoop`. Not needed if `receive` is overridden."""
        raise RuntimeError("an adapter overrides `connect` or `receive`")

    @override
    def split(self, markdown: str) -> Sequence[str]:
        """Split a reply into messages of at most `max_chars` characters. Override it for other limits."""
        return split_markdown(markdown, lambda text: len(text) <= self.max_chars)

    @override
    async def send_file(self, target: ReplyTarget, file: OutgoingFile, *, key: str) -> MessageId:
        raise DeliveryError(f"This platform does not support files, so {file.name} cannot be sent.")

    async def handle_request(
        self,
        intake: Intake,  # noqa: ARG002 - for overrides
        request: WebhookRequest,  # noqa: ARG002
    ) -> WebhookResponse:
        """Respond to a webhook request. Override it if the platform can send HTTP requests.

        Raises:
            WebhookRejected: The request does not come from the platform.
        """
        return RETRY_LATER

    async def check_regularly(
        self, check: Callable[[], Awaitable[object]], *, interval_s: float = 60.0
    ) -> None:
        """Stay connected while `check` succeeds. `connect` calls this if the platform sends HTTP requests."""
        while True:
            await check()
            self.tracker.mark_connected()
            await anyio.sleep(interval_s)

    async def hand_over(self, intake: Intake, message: InboundMessage | None) -> None:
        """Pass a message to the bus. Counts None as an ignored event. Acknowledge the event when this returns.

        Raises:
            ConnectionFailure: The bus accepts no messages now. Do not acknowledge the event, and let the loop
                reconnect.
        """
        self.tracker.mark_event()
        if message is None:
            intake.report_ignored(self.name, Disposition.UNSUPPORTED)
            return
        try:
            await intake.receive(message)
        except Exception as error:
            raise ConnectionFailure(describe_refusal(type(error).__name__)) from error
