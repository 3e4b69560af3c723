"""Schedules with two nodes on one database: each fires once, even while nodes are killed and the database is away."""

from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from tests.eventually import eventually
from tests.fakes.model import FakeModelServer
from tests.journeys.nodes import two_nodes
from tests.journeys.service import with_model
from tests.journeys.test_schedules import create, occurrences
from tests.people.chat_user import ChatUser
from tests.people.platforms import PlatformServers

COUNT = 12
EVERY_S = 1.0


async def test_each_comes_once_while_both_nodes_are_killed(
    tmp_path: Path, database: dict[str, Any]
) -> None:
    async with PlatformServers() as platforms, FakeModelServer() as model:
        config = {**with_model(model.base_url), **database, "channels": platforms.channels}
        async with two_nodes(tmp_path, config) as nodes:
            user = next(one for one in platforms.users if one.channel == "slack")
            await user.send("hi")
            await user.wait_for_message("You said: hi")
            first_at = datetime.now(UTC) + timedelta(seconds=3)
            planned = [
                await create(
                    nodes[0],
                    user,
                    prompt=f"reminder-{number}.",
                    kind="once",
                    expression=(first_at + timedelta(seconds=EVERY_S * number)).isoformat(),
                )
                for number in range(COUNT)
            ]
            for node in nodes:
                # A third of them are due before each kill, no matter which node sends them at that time.
                await anyio.sleep(EVERY_S * COUNT / 3)
                await node.kill()
                await node.start()
                await node.until_connected("slack")
            for number in range(COUNT):
                await eventually(
                    partial(_times, user, number), lambda count: count == 1, within_s=60
                )
            for schedule in planned:
                await eventually(
                    partial(occurrences, nodes[0], schedule), _is_answered, within_s=60
                )
            assert [_times(user, number) for number in range(COUNT)] == [1] * COUNT
        assert platforms.violations == []


def _is_answered(found: list[dict[str, Any]]) -> bool:
    return [one["outcome"] for one in found] == ["answered"]


def _times(user: ChatUser, number: int) -> int:
    """Return how often a reminder was answered."""
    return sum(f"reminder-{number}." in text for text in user.bot_messages())
