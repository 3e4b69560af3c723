"""Schedules with the real service: a reminder survives kill -9 and comes once; people see and change it in the chat."""

from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from tests.eventually import eventually
from tests.fakes.model import FakeModelServer
from tests.journeys.service import Service, serving, with_model
from tests.people.chat_user import ChatUser
from tests.people.platforms import PlatformServers

PLATFORMS = ("slack", "telegram", "feishu")


async def create(service: Service, user: ChatUser, **fields: Any) -> dict[str, Any]:  # noqa: ANN401 - any JSON
    """Set up a schedule in a user's chat over the API."""
    async with service.client() as client:
        body = {"channel": user.channel, "chat": user.chat, "timezone": "UTC", **fields}
        answer = await client.post("/api/schedules", json=body)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())


async def occurrences(service: Service, schedule: dict[str, Any]) -> list[dict[str, Any]]:
    async with service.client() as client:
        found = (await client.get(f"/api/schedules/{schedule['id']}/occurrences")).json()
        return list(found["occurrences"])


async def test_a_reminder_survives_kill_9_and_comes_once_on_each_platform(
    tmp_path: Path, with_database: dict[str, Any]
) -> None:
    async with PlatformServers() as platforms, FakeModelServer() as model:
        config = {**with_model(model.base_url), **with_database, "channels": platforms.channels}
        async with serving(tmp_path, config, *PLATFORMS) as service:
            for user in platforms.users:
                await user.send("hi")
            for user in platforms.users:
                await user.expect_messages("You said: hi")
            soon = (datetime.now(UTC) + timedelta(seconds=4)).isoformat()
            planned = [
                await create(service, user, prompt="call Bob", kind="once", expression=soon)
                for user in platforms.users
            ]
            await service.kill()
            await service.start()
            await service.until_connected(*PLATFORMS)
            for user in platforms.users:
                await eventually(partial(_has_one_reminder, user))
            await service.kill()
            await service.start()
            await service.until_connected(*PLATFORMS)
            for schedule in planned:
                await eventually(
                    partial(occurrences, service, schedule),
                    lambda found: [one["outcome"] for one in found] == ["answered"],
                )
            for user in platforms.users:
                assert _has_one_reminder(user)
        assert platforms.violations == []


async def test_people_see_and_change_their_schedules_in_the_chat(tmp_path: Path) -> None:
    async with PlatformServers() as platforms, FakeModelServer() as model:
        config = {**with_model(model.base_url), "channels": platforms.channels}
        async with serving(tmp_path, config, *PLATFORMS) as service:
            for user in platforms.users:
                await user.send("hi")
                await user.wait_for_message("You said: hi")
                cron = {"kind": "cron", "expression": "0 9 * * 1", "timezone": "Europe/Berlin"}
                schedule = await create(service, user, prompt="the week", **cron)
                await user.send("/schedule")
                await user.wait_for_message("in Europe/Berlin · next")
                shown = next(one for one in user.shown() if "Pause 1" in one.buttons)
                await user.press(shown, "Run 1 now")
                await user.wait_for_message("the week")
                await user.press(shown, "Pause 1")
                await eventually(partial(_enabled, service, schedule), lambda on: on is False)
                await user.send("/schedule delete")
                await user.wait_for_message("Deleted: the week")
        assert platforms.violations == []


async def _enabled(service: Service, schedule: dict[str, Any]) -> bool:
    async with service.client() as client:
        return bool((await client.get(f"/api/schedules/{schedule['id']}")).json()["enabled"])


def _has_one_reminder(user: ChatUser) -> bool:
    """Return whether one came. In a group of Feishu, it is a message of its own, not a reply."""
    texts = [*user.bot_messages(), *user.misplaced_messages()]
    return sum("call Bob" in text for text in texts) == 1
