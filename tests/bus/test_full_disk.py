"""On a full disk, nothing new is accepted, nothing accepted is lost, and work continues once there is space."""

from pathlib import Path

import anyio
import pytest
from typing_extensions import override

from bus.errors import DeliveryError
from bus.messages import MessageId, ReplyTarget
from store.database import Database
from store.errors import StoreUnavailable
from tests.bus.harness import running_bus
from tests.bus.test_turn import turn_harness
from tests.eventually import eventually
from tests.fakes.langgraph import Script
from tests.fakes.platform import FakePlatform


async def fill(database: Database) -> None:
    """Keep the database from growing, and use up its free pages."""
    pages = await database.transaction(lambda tx: tx.run("PRAGMA page_count")[0]["page_count"])
    await database.transaction(lambda tx: tx.run("CREATE TABLE padding (bytes BLOB)"))
    await database.transaction(lambda tx: tx.run(f"PRAGMA max_page_count = {pages + 4}"))
    insert = "INSERT INTO padding VALUES (zeroblob(:size))"
    for size in (4000, 1000, 200, 20):
        while True:
            try:
                await database.transaction(lambda tx, size=size: tx.run(insert, {"size": size}))  # type: ignore[misc]
            except StoreUnavailable:
                break


async def make_room(database: Database) -> None:
    await database.transaction(lambda tx: tx.run("PRAGMA max_page_count = 1000000"))


class HeldSendPlatform(FakePlatform):
    """Responds when the test permits it."""

    def __init__(self) -> None:
        super().__init__()
        self.is_sending, self.may_answer = anyio.Event(), anyio.Event()

    @override
    async def send(self, place: ReplyTarget, markdown: str, *, key: str) -> MessageId:
        self.is_sending.set()
        await self.may_answer.wait()
        return await super().send(place, markdown, key=key)


async def test_a_full_disk_refuses_messages_and_holds_answers_back_until_there_is_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    platform = FakePlatform()
    async with running_bus(tmp_path, platform=platform) as harness:
        gate = anyio.Event()
        harness.server.scripts.append(Script(words=("long ", "x" * 3000), gate=gate))
        await harness.send("first")
        await harness.wait_for_runs(1)
        await fill(harness.database)
        with pytest.raises(StoreUnavailable, match="full"):
            await harness.send("refused " * 2000, event="refused")
        gate.set()
        await eventually(lambda: "turns (finish): waiting for the store" in caplog.text)
        assert not any(text.startswith("long") for text in platform.texts)
        await make_room(harness.database)
        await eventually(lambda: any(text.startswith("long") for text in platform.texts))
        await harness.send("refused " * 2000, event="refused")  # the platform repeats it
        await eventually(lambda: "Hello you" in platform.texts)
        assert [row.state for row in await harness.bus.inbox.list_recent()] == ["done", "done"]
        assert harness.bus.health()["fake"].state == "connected"


async def test_a_delivery_that_fails_on_a_full_disk_is_sent_once_when_there_is_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    platform = HeldSendPlatform()
    platform.fail("send", DeliveryError("unwell " * 2000, retryable=True))
    async with running_bus(tmp_path, platform=platform) as harness:
        await harness.send("first")
        await platform.is_sending.wait()
        await fill(harness.database)
        platform.may_answer.set()
        await eventually(lambda: "delivery: waiting for the store" in caplog.text)
        await make_room(harness.database)
        await harness.expect_replies("Hello you")
    assert platform.calls == ["send", "send"]


async def test_a_message_that_was_accepted_waits_for_its_run_as_long_as_the_disk_is_full(
    tmp_path: Path,
) -> None:
    """The gateway uses the same database and starts no run until there is space."""
    patience_s = 4.0
    async with (
        turn_harness(tmp_path, patience_s=patience_s) as h,
        anyio.create_task_group() as tasks,
    ):
        h.server.refusals.extend([503] * 1000)
        turn = await h.accept_turn("one")
        tasks.start_soon(turn.run)
        await eventually(lambda: len(h.server.refusals) < 1000)
        await fill(h.database)
        await anyio.sleep(patience_s)
        tried = len(h.server.refusals)
        await eventually(
            lambda: turn.control.finished.is_set() or len(h.server.refusals) < tried - 1
        )
        assert not turn.control.finished.is_set()
        h.server.refusals.clear()
        await make_room(h.database)
        await turn.control.finished.wait()
        await h.platform.until(1)
    assert h.platform.texts == ["Hello you"]
