"""The agent's tool `schedule`: requests that it refuses, and the state after a kill."""

from pathlib import Path

import anyio
import pytest

from agent.tools.schedule import ScheduleArgs, ScheduleCall, ScheduleRefused
from gateway.chat_schedules import ChatSchedules
from store.config import StoreConfig
from store.database import Database
from tests.bus.harness import BusHarness, running_bus
from tests.bus.test_schedule_places import MemberPlatform
from tests.eventually import eventually
from tests.fakes.database import LateDatabase
from tests.fakes.langgraph import FakeLangGraph


async def call(harness: BusHarness, **fields: object) -> str:
    """Call the tool in a run of the only conversation."""
    backend = ChatSchedules()
    backend.bus = harness.bus
    thread_id = harness.server.runs[-1].thread_id
    arguments = ScheduleArgs.model_validate(fields)
    return await backend.call(ScheduleCall(thread_id=thread_id, arguments=arguments))


@pytest.mark.parametrize(
    "fields",
    [
        {"when": "every 999999w"},
        {"when": "every 999999w", "active_hours": "09:00-18:00"},
        {"when": "in 999999w"},
        {"when": "in 99999999999999999999d"},
        {"when": "0001-01-01T00:00"},
        {"when": "9999-12-31T23:59:59-12:00"},
        {"when": "every 1d", "until": "9999-12-31"},
        {"when": "every 1d", "until": "0001-01-01"},
    ],
)
async def test_times_outside_of_the_years_of_schedules_are_refused(
    tmp_path: Path, fields: dict[str, str]
) -> None:
    async with running_bus(tmp_path) as harness:
        gate = harness.hold_next_run("done")
        await harness.send("remind me")
        await harness.wait_for_runs(1)
        zone = {"timezone": "America/New_York"}
        with pytest.raises(ScheduleRefused):
            await call(harness, action="create", prompt="news", **zone, **fields)
        assert await call(harness, action="list") == "This chat has no schedules."
        await call(harness, action="create", prompt="news", when="every 1d", **zone)
        listed = await call(harness, action="list")
        with pytest.raises(ScheduleRefused):
            await call(harness, action="change", number=1, **fields)
        assert await call(harness, action="list") == listed
        gate.set()
        await harness.expect_replies("done")


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_a_kill_after_the_commit_of_a_schedule_elsewhere_loses_no_notice(
    tmp_path: Path, request: pytest.FixtureRequest, engine: str
) -> None:
    store = StoreConfig(url=request.getfixturevalue("url")) if engine == "postgres" else None
    platform, late = MemberPlatform(), []
    platform.members = {"g1": {"u"}}

    def wrap(database: Database) -> Database:
        late.append(LateDatabase(database))
        return late[-1]

    async with FakeLangGraph() as server:
        async with running_bus(
            tmp_path, platform=platform, server=server, store=store, wrap=wrap
        ) as harness:
            sent = {"chat": "g1", "chat_title": "Sales", "is_private": False, "user": "bob"}
            await harness.send("hello", **sent)
            await harness.expect_replies("Hello you")
            gate = harness.hold_next_run("done")
            await harness.send("post the news in sales")
            await harness.wait_for_runs(2)
            late[0].held = "INSERT INTO schedule ("
            fields = {"prompt": "news", "when": "every 1d", "chat": "sales", "timezone": "UTC"}
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(lambda: call(harness, action="create", **fields))
                await late[0].committed.wait()
                tasks.cancel_scope.cancel()
        assert [text for text in platform.texts if "set up a schedule" in text] == []
        gate.set()
        async with running_bus(tmp_path, platform=platform, server=server, store=store) as again:
            [schedule] = await again.bus.schedules.list_all(limit=9, offset=0)
            assert schedule.key is not None
            assert schedule.key.chat == "g1"
            await eventually(lambda: "set up a schedule for this chat" in " ".join(platform.texts))
            await again.wait_until_finished()
        assert sum("set up a schedule" in text for text in platform.texts) == 1
