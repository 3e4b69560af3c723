"""Rows that cannot be decoded are given up, with a notice if possible, and do not stop other rows."""

from pathlib import Path

import pytest

from bus.locales.en import ENGLISH
from store.config import StoreConfig
from store.database import Database
from tests.bus.harness import BusHarness, running_bus
from tests.bus.test_bus_approvals import review
from tests.eventually import eventually
from tests.fakes.langgraph import FakeLangGraph, Script
from tests.fakes.platform import FakePlatform

DAMAGED = '{"reply_target": {"chat": "c"}, "sender": 7}'


async def damage(home_folder: Path, event_id: str, body: str) -> None:
    """Change the body of an inbox row while nothing runs."""
    async with Database.open(StoreConfig(), home_folder) as database:
        sql = "UPDATE inbox SET body = :body WHERE event_id = :event_id"
        await database.transaction(lambda tx: tx.run(sql, {"body": body, "event_id": event_id}))


async def states(harness: BusHarness) -> list[str]:
    return [row.state for row in reversed(await harness.bus.inbox.list_recent())]


@pytest.mark.parametrize(
    ("body", "texts"), [(DAMAGED, [ENGLISH.failed, "Hello you"]), ("{", ["Hello you"])]
)
async def test_a_damaged_row_is_given_up_at_the_start_and_the_next_is_answered(
    tmp_path: Path, body: str, texts: list[str]
) -> None:
    async with FakeLangGraph() as server:
        async with running_bus(tmp_path, server=server) as harness:
            server.scripts.append(Script(hang_after=0))
            await harness.send("one")
            await harness.wait_for_runs(1)
            await harness.send("two", event="e2")
        await damage(tmp_path, "e1", body)
        async with running_bus(tmp_path, server=server, platform=FakePlatform()) as harness:
            await harness.expect_replies(*texts)
            await eventually(lambda: len(server.runs) == 2)
            assert await states(harness) == ["dead", "done"]


async def test_a_question_whose_asker_cannot_be_decoded_is_closed(tmp_path: Path) -> None:
    async with FakeLangGraph() as server:
        async with running_bus(tmp_path, server=server) as harness:
            server.scripts.append(Script(words=("Let me.",), interrupts=(review(command="ls"),)))
            await harness.send("one")
            await eventually(lambda: len(harness.platform.texts) == 1)
        await damage(tmp_path, "e1", DAMAGED)
        async with running_bus(tmp_path, server=server, platform=FakePlatform()) as harness:
            await harness.send("approve", event="e2")
            await harness.expect_replies("Hello you")
            assert harness.server.runs[1].body["input"]["messages"][0]["content"] == "approve"
