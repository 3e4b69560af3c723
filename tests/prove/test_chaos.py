"""Overlapping faults end as often as they begin."""

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from tests.prove.chaos import Chaos
from tests.prove.clock import MovableClock
from tests.prove.databases import SqliteDatabase
from tests.prove.model import ProofModel
from tests.prove.plan import Fault, FaultKind
from tests.prove.platforms import SimulatedPlatform
from tests.prove.service import Timeline
from tests.prove.slack import SlackPlatform
from tests.prove.telegram import TelegramPlatform


def make_telegram() -> SimulatedPlatform:
    return TelegramPlatform("bot", people=1, token="700700:fake-token")


def make_slack() -> SimulatedPlatform:
    return SlackPlatform("bot", people=1)


@pytest.mark.parametrize("make", [make_telegram, make_slack])
async def test_a_platform_that_is_offline_twice_comes_back_once(
    tmp_path: Path, make: Callable[[], SimulatedPlatform]
) -> None:
    platform = make()
    timeline = Timeline()
    database, model, clock = SqliteDatabase(tmp_path), ProofModel({}, []), MovableClock(None)
    chaos = Chaos([], timeline, database, {"bot": platform}, model, None, clock)
    async with platform, anyio.create_task_group() as faults:
        for seconds in (0.05, 0.1):
            fault = Fault(
                at_s=0.0, kind=FaultKind.PLATFORM_OFFLINE, seconds=seconds, times=1, channel="bot"
            )
            faults.start_soon(chaos.carry_out, fault)
    assert [entry.what for entry in timeline.entries].count("platform back") == 1
