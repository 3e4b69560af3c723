"""A full disk: nothing new is accepted, nothing accepted is lost, and everything goes on when there is room."""

from pathlib import Path

import anyio
import pytest
from typing_extensions import override

from bus.errors import DeliveryError
from bus.messages import MessageId, ReplyTarget
from store.errors import StoreUnavailable
from tests.bus.rig import House, house, until
from tests.fakes.langgraph import Script
from tests.fakes.platform import FakePlatform


async def fill(home: House) -> None:
    """Let the database grow no further, and use up what is free in it."""
    database = home.database
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


async def make_room(home: House) -> None:
    await home.database.transaction(lambda tx: tx.run("PRAGMA max_page_count = 1000000"))


class SlowPlatform(FakePlatform):
    """Answers when it may."""

    def __init__(self) -> None:
        super().__init__()
        self.is_sending, self.may_answer = anyio.Event(), anyio.Event()

    @override
    async def send(self, place: ReplyTarget, markdown: str, *, key: str) -> MessageId:
        self.is_sending.set()
        await self.may_answer.wait()
        return await super().send(place, markdown, key=key)


async def test_a_full_disk_refuses_messages_and_holds_answers_back_until_there_is_room(
    tmp_path: Path,
) -> None:
    platform = FakePlatform()
    async with house(tmp_path, platform=platform) as home:
        gate = anyio.Event()
        home.server.scripts.append(Script(words=("long ", "x" * 3000), gate=gate))
        await home.say("first")
        await home.runs(1)
        await fill(home)
        with pytest.raises(StoreUnavailable, match="full"):
            await home.say("refused " * 2000, event="refused")
        gate.set()
        await anyio.sleep(0.3)
        assert not any(text.startswith("long") for text in platform.texts)
        await make_room(home)
        await until(lambda: any(text.startswith("long") for text in platform.texts))
        await home.say("refused " * 2000, event="refused")  # the platform repeats it
        await until(lambda: "Hello you" in platform.texts)
        assert [row.state for row in await home.bus.inbox.list_recent()] == ["done", "done"]
        assert home.bus.health()["fake"].state == "connected"


async def test_a_delivery_that_fails_on_a_full_disk_is_sent_once_when_there_is_room(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    platform = SlowPlatform()
    platform.fail("send", DeliveryError("unwell " * 2000, retryable=True))
    async with house(tmp_path, platform=platform) as home:
        await home.say("first")
        await platform.is_sending.wait()
        await fill(home)
        platform.may_answer.set()
        await until(lambda: "delivery: waiting for the store" in caplog.text)
        await make_room(home)
        await home.reads("Hello you")
    assert platform.calls == ["send", "send"]
