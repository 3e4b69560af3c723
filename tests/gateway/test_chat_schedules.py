"""The agent's tool `schedule`: what it refuses."""

from pathlib import Path

import pytest

from agent.tools.schedule import ScheduleArgs, ScheduleCall, ScheduleRefused
from gateway.chat_schedules import ChatSchedules
from tests.bus.harness import BusHarness, running_bus


async def call(harness: BusHarness, **fields: object) -> str:
    """Call the tool in the run that answers the only conversation."""
    backend = ChatSchedules()
    backend.bus = harness.bus
    [thread_id] = harness.server.threads
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
