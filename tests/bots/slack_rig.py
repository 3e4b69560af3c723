"""What the tests of the Slack adapter share: a recording intake, a running adapter, short timeouts."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace

import anyio
from typing_extensions import override

from bots.config import SlackConfig
from bots.slack.adapter import SlackAdapter
from bots.slack.connection import SlackTimeouts
from bus.errors import IntakeFull
from bus.messages import (
    ButtonPress,
    ConversationKey,
    InboundMessage,
    MessageDeletion,
    MessageEdit,
    PressResponse,
    Sender,
)
from bus.platform import ConnectionState, Disposition, Intake
from bus.retry import Backoff
from tests.fakes.slack import FakeSlack

FAST = SlackTimeouts(
    call_s=2.0,
    hello_s=1.0,
    ping_s=5.0,
    drain_s=0.5,
    overlap_s=2.0,
    backoff=Backoff(first_s=0.02, cap_s=0.1),
    failed_retry_s=0.05,
    stable_s=0.0,
)


QUICK = replace(FAST, call_s=0.3)
"""For calls that are meant to time out."""


class Recorder(Intake):
    """Keeps what an adapter hands over; refuses the first `refuse` messages, waits at `gate`."""

    def __init__(self, refuse: int = 0) -> None:
        self.refuse = refuse
        self.taken: list[InboundMessage] = []
        self.refused: list[InboundMessage] = []
        self.skipped: list[tuple[Disposition, str]] = []
        self.pressed: list[ButtonPress] = []
        self.changed: list[MessageEdit | MessageDeletion] = []
        self.crash = 0
        self.refuse_presses = 0
        self.says = "pressed"
        self.gate: anyio.Event | None = None
        self.waiting = False

    @override
    async def receive(self, inbound: InboundMessage) -> Disposition:
        if self.gate is not None:
            self.waiting = True
            await self.gate.wait()
        if self.crash > 0:
            self.crash -= 1
            raise RuntimeError("a defect")
        if self.refuse > 0:
            self.refuse -= 1
            self.refused.append(inbound)
            raise IntakeFull
        self.taken.append(inbound)
        return Disposition.ACCEPTED

    @override
    async def handle_button_press(self, press: ButtonPress) -> PressResponse:
        if self.refuse_presses > 0:
            self.refuse_presses -= 1
            raise IntakeFull
        self.pressed.append(press)
        return PressResponse(text=self.says)

    @override
    async def migrate_chat(
        self, channel: str, workspace: str, old_chat: str, new_chat: str
    ) -> None:
        raise AssertionError(old_chat)

    @override
    async def handle_edit(self, edit: MessageEdit) -> Disposition:
        self.changed.append(edit)
        return Disposition.ACCEPTED

    @override
    async def handle_deletion(self, deletion: MessageDeletion) -> Disposition:
        self.changed.append(deletion)
        return Disposition.ACCEPTED

    @override
    async def handle_bot_added(self, key: ConversationKey, added_by: Sender) -> None:
        raise AssertionError(key)

    @override
    def report_ignored(self, channel: str, reason: Disposition, detail: str = "") -> None:
        assert channel == "slack"
        self.skipped.append((reason, detail))

    def texts(self) -> list[str]:
        return [inbound.text for inbound in self.taken]


def config(slack: FakeSlack, given: Mapping[str, object] | None = None) -> SlackConfig:
    known = {
        "enabled": True,
        "base_url": slack.base_url,
        "bot_token": slack.bot_token,
        "app_token": slack.app_token,
    }
    return SlackConfig.model_validate(known | dict(given or {}))


@asynccontextmanager
async def running(
    slack: FakeSlack,
    intake: Recorder | None = None,
    *,
    timeouts: SlackTimeouts = FAST,
    connected: bool = True,
    given: Mapping[str, object] | None = None,
    name: str = "slack",
) -> AsyncIterator[SlackAdapter]:
    adapter = SlackAdapter(config(slack, given), name=name, timeouts=timeouts)
    async with anyio.create_task_group() as tasks:
        await tasks.start(
            lambda task_status: adapter.run(intake or Recorder(), task_status=task_status)
        )
        if connected:
            await slack.wait_for(lambda: adapter.health().state is ConnectionState.CONNECTED)
        yield adapter
        tasks.cancel_scope.cancel()
    assert adapter.health().state in {ConnectionState.STOPPED, ConnectionState.FAILED}


def fast_slack(*, ack_window_s: float = 0.3) -> FakeSlack:
    """Return a Slack that repeats events soon."""
    return FakeSlack(ack_window_s=ack_window_s, retries_s=(0.02, 0.05, 0.1))
