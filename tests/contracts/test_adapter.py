"""The adapter contract for the terminal, Slack, Telegram and Feishu against their servers."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from typing_extensions import override

from bots.terminal.adapter import TerminalAdapter
from bots.terminal.session import TerminalMessage, TerminalSession
from bus.errors import BusError
from bus.platform import Adapter
from store.errors import StoreError
from tests.contracts.adapter import AdapterContract, RemoteContract
from tests.contracts.adapter_rig import RemoteRig, Rig
from tests.contracts.rigs import FeishuRig, SlackRig, TelegramRig
from tests.contracts.webhook_rig import FeishuWebhookRig, SlackHttpRig, TelegramWebhookRig
from tests.fakes.intake import RecordingIntake


class TerminalRig(Rig):
    """One terminal in this process. If a line is refused, the person sees an error and types it again."""

    name = "terminal"
    rooms = False

    def __init__(self, folder: Path) -> None:
        self._adapter = TerminalAdapter(files=folder)
        self._said = self._taken = 0
        self._seen: dict[str, str] = {}

    @override
    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        with self._adapter.attach("s1") as session:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(self._watch, session)
                yield
                tasks.cancel_scope.cancel()

    @override
    def adapter(self) -> Adapter:
        return self._adapter

    @override
    async def say(self, text: str) -> None:
        self._said += 1
        event_id = f"e{self._said}"
        while True:
            try:
                await self._adapter.say("s1", text, event_id=event_id)
            except (BusError, StoreError):
                await anyio.sleep(0.01)
            else:
                self._taken += 1
                return

    @override
    def unacknowledged(self) -> int:
        return self._said - self._taken

    @override
    async def overtake(self, recorder: RecordingIntake) -> None:
        await self.say("later")

    @override
    def seen(self) -> list[str]:
        return list(self._seen.values())

    @override
    def violations(self) -> list[str]:
        return []

    async def _watch(self, session: TerminalSession) -> None:
        async for event in session.events():
            if isinstance(event, TerminalMessage):
                self._seen[event.id] = event.text


class TestTerminal(AdapterContract):
    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path

    @override
    def make_rig(self) -> Rig:
        return TerminalRig(self.folder)


class TestSlack(RemoteContract):
    @override
    def make_rig(self) -> RemoteRig:
        return SlackRig()


class TestTelegram(RemoteContract):
    @override
    def make_rig(self) -> RemoteRig:
        return TelegramRig()


class TestFeishu(RemoteContract):
    @override
    def make_rig(self) -> RemoteRig:
        return FeishuRig()


class TestSlackHttp(RemoteContract):
    @override
    def make_rig(self) -> RemoteRig:
        return SlackHttpRig()


class TestTelegramWebhook(RemoteContract):
    @override
    def make_rig(self) -> RemoteRig:
        return TelegramWebhookRig()


class TestFeishuWebhook(RemoteContract):
    @override
    def make_rig(self) -> RemoteRig:
        return FeishuWebhookRig()
