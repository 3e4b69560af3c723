"""Schedules with the real service: a reminder survives kill -9 and comes once; people see and change it in the chat."""

from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from gateway.playground.slack.server import USER
from tests.eventually import eventually
from tests.fakes.model import FakeModelServer, ModelReply, ToolCall
from tests.journeys.service import Service, serving, with_model
from tests.people.chat_user import ChatUser
from tests.people.platforms import PlatformServers

HELP = ToolCall("schedule", {"action": "help"})
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
            platforms.slack.person(USER, tz="America/New_York")
            for user in platforms.users:
                await user.send("hi")
                await user.wait_for_message("You said: hi")
                await user.send("/timezone")
                zone = "America/New_York" if user.channel == "slack" else "(the server's"
                await user.wait_for_message(zone)
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


async def test_the_agent_sets_up_a_schedule_when_a_person_asks_and_never_by_itself(
    tmp_path: Path,
) -> None:
    async with PlatformServers() as platforms, FakeModelServer() as model:
        config = {**with_model(model.base_url), "channels": platforms.channels}
        async with serving(tmp_path, config, *PLATFORMS) as service:
            user = platforms.private_users(0)[1]
            call = ToolCall(
                "schedule",
                {
                    "action": "create",
                    "fields": {
                        "prompt": "say good morning",
                        "when": "every 1d",
                        "timezone": "Asia/Tokyo",
                    },
                },
            )
            model.reply(ModelReply(calls=(HELP,)), ModelReply(calls=(call,)), "Every day.")
            await user.send("greet me every day, I am in Tokyo")
            await user.wait_for_message("Every day.")
            told = _last_result(model)
            assert told.startswith("Created 'say good morning': every 1d, next ")
            assert told.endswith(" JST (Asia/Tokyo).")
            model.reply(ModelReply(calls=(call,)), "Good morning.")
            await user.send("/schedule run")
            await user.wait_for_message("Good morning.")
            assert "only a person can set up" in _last_result(model)
            change = ToolCall(
                "schedule", {"action": "change", "fields": {"number": 1, "when": "0 9 * * *"}}
            )
            ended = ToolCall("schedule", {"action": "delete", "fields": {"number": 1}})
            listed = ToolCall("schedule", {"action": "list"})
            model.reply(ModelReply(calls=(change,)), ModelReply(calls=(listed,)), "At nine.")
            await user.send("at nine, please")
            await user.wait_for_message("At nine.")
            assert "1. 'say good morning': cron 0 9 * * *, next" in _last_result(model)
            await user.send("/timezone")
            await user.wait_for_message("Your time zone: Asia/Tokyo")
            model.reply(ModelReply(calls=(ended,)), "No more.")
            await user.send("stop it")
            await user.wait_for_message("No more.")
            async with service.client() as client:
                assert (await client.get("/api/schedules")).json() == {"schedules": []}
        assert platforms.violations == []


def _last_result(model: FakeModelServer) -> str:
    """Return the last result of a tool that the model was given."""
    results = [
        message["content"]
        for request in model.requests
        for message in request.messages
        if message["role"] == "tool"
    ]
    return str(results[-1])
