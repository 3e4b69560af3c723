"""A Feishu adapter on the fake platform, with an intake that remembers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio

from bots.config import FeishuConfig
from bots.feishu.adapter import FeishuAdapter
from bots.feishu.timeouts import FeishuTimeouts
from bus.messages import (
    ButtonPress,
    ConversationKey,
    InboundMessage,
    MessageDeletion,
    MessageEdit,
    PressResponse,
    ReplyTarget,
    Sender,
)
from bus.platform import CommandInfo, ConnectionState, Disposition
from bus.retry import Backoff
from tests.eventually import eventually
from tests.fakes.feishu import FakeFeishu, FeishuMessage

COMMANDS = [CommandInfo(name=name, help=name) for name in ("help", "new", "models")]

QUICK = FeishuTimeouts(
    call_s=5,
    upload_s=5,
    connect_s=5,
    backoff=Backoff(first_s=0.02, cap_s=0.05),
    failed_retry_s=0.05,
    close_s=1,
)


@dataclass
class Intake:
    """Keeps what it gets; raises the next of `raises` instead, and waits while `gate` is shut."""

    received: list[InboundMessage] = field(default_factory=list)
    refused: list[tuple[Disposition, str]] = field(default_factory=list)
    raises: list[Exception] = field(default_factory=list)
    gates: dict[str, anyio.Event] = field(default_factory=dict)
    pressed: list[ButtonPress] = field(default_factory=list)
    changed: list[MessageEdit | MessageDeletion] = field(default_factory=list)
    answer: PressResponse = field(default_factory=lambda: PressResponse(text="pressed"))

    async def receive(self, inbound: InboundMessage) -> Disposition:
        if self.raises:
            raise self.raises.pop(0)
        if inbound.text in self.gates:
            await self.gates[inbound.text].wait()
        self.received.append(inbound)
        return Disposition.ACCEPTED

    async def handle_button_press(self, press: ButtonPress) -> PressResponse:
        if self.raises:
            raise self.raises.pop(0)
        if press.token in self.gates:
            await self.gates[press.token].wait()
        self.pressed.append(press)
        return self.answer

    async def migrate_chat(
        self, channel: str, workspace: str, old_chat: str, new_chat: str
    ) -> None:
        raise AssertionError(old_chat)

    async def handle_edit(self, edit: MessageEdit) -> Disposition:
        self.changed.append(edit)
        return Disposition.ACCEPTED

    async def handle_deletion(self, deletion: MessageDeletion) -> Disposition:
        self.changed.append(deletion)
        return Disposition.ACCEPTED

    async def handle_bot_added(self, key: ConversationKey, added_by: Sender) -> None:
        raise AssertionError(key)

    def report_ignored(self, channel: str, reason: Disposition, detail: str = "") -> None:
        assert channel == "feishu"
        self.refused.append((reason, detail))

    @property
    def texts(self) -> list[str]:
        return [inbound.text for inbound in self.received]


def adapter_for(
    feishu: FakeFeishu, *, timeouts: FeishuTimeouts = QUICK, **settings: object
) -> FeishuAdapter:
    """Return an adapter that is configured for the fake."""
    config = FeishuConfig.model_validate(feishu.settings | settings)
    return FeishuAdapter(config, commands=COMMANDS, timeouts=timeouts)


def place_of(message: FeishuMessage) -> ReplyTarget:
    """Return where the answer to a message goes."""
    return ReplyTarget(chat=message.chat, thread=message.thread, reply_to=message.id)


@asynccontextmanager
async def running(
    adapter: FeishuAdapter, intake: Intake, *, link: ConnectionState = ConnectionState.CONNECTED
) -> AsyncIterator[None]:
    """Run the adapter until the block ends; enter it when its link is in the given state."""
    async with anyio.create_task_group() as tasks:

        async def run(*, task_status: anyio.abc.TaskStatus[None]) -> None:
            await adapter.run(intake, task_status=task_status)

        await tasks.start(run)
        await eventually(lambda: adapter.health().state is link)
        yield
        tasks.cancel_scope.cancel()
