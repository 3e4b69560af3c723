"""Schedules with the real service: a reminder survives kill -9 and comes once. People see and change it in the chat."""

from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

from gateway.playground.slack.server import BOT_USER, USER
from tests.eventually import eventually
from tests.fakes.model import FakeModelServer, ModelReply, ToolCall
from tests.journeys.service import Service, serving, with_model
from tests.people.chat_user import ChatUser
from tests.people.feishu import FeishuPrivateUser
from tests.people.platforms import PlatformServers
from tests.people.slack import SlackDirectUser
from tests.people.telegram import FORUM, FORUM_PERSON, TelegramPrivateUser

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
    """Return whether one reminder came. In a Feishu group, it is a separate message, not a reply."""
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


async def test_a_schedule_whose_owner_left_the_group_is_paused_and_the_group_is_told(
    tmp_path: Path,
) -> None:
    async with PlatformServers() as platforms, FakeModelServer() as model:
        config = {**with_model(model.base_url), "channels": platforms.channels}
        groups = [platforms.users[number] for number in (0, 3, 5)]
        async with serving(tmp_path, config, *PLATFORMS) as service:
            planned = await _set_up_in_groups(service, groups)
            asked = len(model.requests)
            platforms.slack.workspace.channels[groups[0].chat].members -= {SLACK_OWNER}
            platforms.telegram.chat(FORUM).standings[FORUM_PERSON] = {"status": "left"}
            platforms.feishu.rest.scopes.add("im:chat.members:read")
            platforms.feishu.state.members[groups[2].chat] = ["ou_bob"]
            await _come_due(service, planned)
            for user, schedule in zip(groups, planned, strict=True):
                await eventually(
                    partial(_says, user, "left this chat or is no longer allowed to use me")
                )
                paused = await _shown(service, schedule)
                assert (paused["enabled"], paused["paused_because"]) == (False, "owner")
                [occurrence] = await occurrences(service, schedule)
                assert (occurrence["outcome"], occurrence["detail"]) == ("failed", "owner_gone")
            assert len(model.requests) == asked
            _, out, _ = await service.command("doctor", "--no-model")
            assert out.count("paused: its owner left the chat") == len(groups)
        assert platforms.violations == []


async def test_if_the_bot_is_not_in_the_group_anymore_the_owner_is_told_in_private(
    tmp_path: Path,
) -> None:
    async with PlatformServers() as platforms, FakeModelServer() as model:
        config = {**with_model(model.base_url), "channels": platforms.channels}
        groups = [platforms.users[number] for number in (0, 3, 5)]
        async with serving(tmp_path, config, *PLATFORMS) as service:
            planned = await _set_up_in_groups(service, groups)
            # A bot of Telegram may write only to people who wrote to it.
            telegram_owner = TelegramPrivateUser(platforms.telegram, user=FORUM_PERSON)
            await telegram_owner.send("/status")
            await eventually(telegram_owner.bot_messages)
            asked = len(model.requests)
            platforms.slack.workspace.channels[groups[0].chat].members -= {BOT_USER}
            kicked = "Forbidden: bot was kicked from the supergroup chat"
            platforms.telegram.block(FORUM, kicked)
            platforms.feishu.rest.scopes.add("im:chat.members:read")
            platforms.feishu.state.left.add(groups[2].chat)
            await _come_due(service, planned)
            owners = [
                SlackDirectUser(platforms.slack, user=SLACK_OWNER),
                telegram_owner,
                FeishuPrivateUser(platforms.feishu, user="ou_alice"),
            ]
            for owner, schedule in zip(owners, planned, strict=True):
                await eventually(partial(_says, owner, "I am not in its chat anymore"))
                assert (await _shown(service, schedule))["paused_because"] == "chat"
            assert len(model.requests) == asked
        assert platforms.violations == []


async def test_where_nobody_says_who_is_in_a_group_schedules_run(tmp_path: Path) -> None:
    async with PlatformServers() as platforms, FakeModelServer() as model:
        config = {**with_model(model.base_url), "channels": platforms.channels}
        groups = [platforms.users[number] for number in (0, 3, 5)]
        async with serving(tmp_path, config, *PLATFORMS) as service:
            planned = await _set_up_in_groups(service, groups)
            platforms.slack.server.scopes -= {"channels:read", "groups:read"}
            platforms.telegram.chat(FORUM).hides_members = True
            platforms.feishu.rest.scopes.add("im:chat.members:read")
            await _come_due(service, planned)
            for user in groups:
                await eventually(partial(_says, user, "call Bob"))
        assert platforms.violations == []


async def test_a_person_has_the_agent_post_in_another_group_only_while_they_are_in_it(
    tmp_path: Path, with_database: dict[str, Any]
) -> None:
    async with PlatformServers() as platforms, FakeModelServer() as model:
        config = {**with_model(model.base_url), **with_database, "channels": platforms.channels}
        groups = [platforms.users[number] for number in (0, 3, 5)]
        privates = _owners(platforms)
        sales = platforms.slack.workspace.channel(
            groups[0].chat, kind="channel", members={SLACK_OWNER}
        )
        sales.name = platforms.telegram.chat(FORUM).title = "sales"
        platforms.feishu.state.titles[groups[2].chat] = "sales"
        platforms.feishu.state.members[groups[2].chat] = ["ou_bob", "ou_alice"]
        platforms.feishu.rest.scopes |= {"im:chat:readonly"}
        async with serving(tmp_path, config, *PLATFORMS) as service:
            for group in groups:
                await group.send("hi")
                await group.wait_for_message("You said: hi")
            planned = [
                await _plan_in_sales(service, model, private, group)
                for private, group in zip(privates, groups, strict=True)
            ]
            await _come_due(service, planned)
            for group in groups:
                await eventually(partial(_says, group, "sum up the day"))
            platforms.slack.workspace.channels[groups[0].chat].members -= {SLACK_OWNER}
            platforms.telegram.chat(FORUM).standings[FORUM_PERSON] = {"status": "left"}
            platforms.feishu.state.members[groups[2].chat] = ["ou_bob"]
            for private in privates:
                told = [
                    await _ask(model, private, _create(chat), f"No {chat}.")
                    for chat in ("sales", "no such chat")
                ]
                assert told[0] == told[1]
                assert told[0].startswith("Error: the platform shows no chat with this name")
        assert platforms.violations == []


async def test_a_person_asks_in_a_group_to_be_reminded_in_private(tmp_path: Path) -> None:
    async with PlatformServers() as platforms, FakeModelServer() as model:
        config = {**with_model(model.base_url), "channels": platforms.channels}
        groups = [platforms.users[number] for number in (0, 3, 5)]
        privates = _owners(platforms)
        async with serving(tmp_path, config, *PLATFORMS) as service:
            for user in (*groups, *privates):
                await user.send("hi")
                await user.wait_for_message("You said: hi")
            for private, group in zip(privates, groups, strict=True):
                told = await _ask(model, group, _create("me"), "I will.")
                assert ", in their private chat, next " in told
                await eventually(partial(_says, private, "set up a schedule for this chat"))
            async with service.client() as client:
                planned = (await client.get("/api/schedules")).json()["schedules"]
            await _come_due(service, planned)
            for private in privates:
                await eventually(partial(_says, private, "sum up the day"))
        assert platforms.violations == []


async def test_a_schedule_runs_with_its_owners_model_and_within_their_limit(tmp_path: Path) -> None:
    async with PlatformServers() as platforms, FakeModelServer() as model:
        base = with_model(model.base_url)
        config = {
            "models": [*base["models"], {**base["models"][0], "name": "own", "model": "own-1"}],
            "channels": platforms.channels,
            "memory": {"enabled": False},
            "usage": {"limits": {"person": {"tokens_per_day": 30_000}}},
        }
        async with serving(tmp_path, config, *PLATFORMS) as service:
            user = platforms.private_users(0)[1]
            await user.send("/model own")
            await eventually(user.bot_messages)
            await user.send("hi")
            await user.wait_for_message("You said: hi")
            schedule = await create(service, user, prompt="call Bob", kind="every", expression="1h")
            answered = 0
            while (last := await _run_to_end(service, schedule))["outcome"] == "answered":
                answered += 1
            assert answered
            assert (last["outcome"], "UsageLimitReached: person" in last["detail"]) == (
                "failed",
                True,
            )
            refusal = await eventually(
                user.bot_messages,
                lambda texts: "allowance" in texts[-1] and "You said" not in texts[-1],
            )
            assert "\n" not in refusal[-1]
            assert {request.body["model"] for request in model.requests} == {"own-1"}
            asked, used = len(model.requests), await _totals(service)
            assert (await _run_to_end(service, schedule))["outcome"] == "failed"
            assert len(model.requests) == asked
            assert await _totals(service) == used
        assert platforms.violations == []


async def test_the_delivery_of_an_answer_is_told_apart_from_its_run(tmp_path: Path) -> None:
    async with PlatformServers() as platforms, FakeModelServer() as model:
        config = {**with_model(model.base_url), "channels": platforms.channels}
        async with serving(tmp_path, config, *PLATFORMS) as service:
            user = platforms.private_users(0)[1]
            await user.send("hi")
            await user.wait_for_message("You said: hi")
            schedule = await create(service, user, prompt="call Bob", kind="every", expression="1h")

            async def expect(*deliveries: str) -> None:
                wanted = [("answered", state) for state in deliveries]
                await eventually(
                    partial(occurrences, service, schedule),
                    lambda found: [(one["outcome"], one["delivery"]) for one in found] == wanted,
                )

            telegram, busy = platforms.telegram, "Too Many Requests"
            wait = {"retry_after": 3}
            telegram.fail("sendMessage", status=429, description=busy, parameters=wait)
            await _run_now(service, schedule)
            await expect("pending")
            await expect("delivered")
            telegram.fail("sendMessage", drop="after")
            await _run_now(service, schedule)
            await expect("uncertain", "delivered")
            refused = "Forbidden: bot was blocked by the user"
            telegram.fail("sendMessage", times=100, status=403, description=refused)
            await _run_now(service, schedule)
            await expect("failed", "uncertain", "delivered")
            async with service.client() as client:
                listed = (await client.get("/api/schedules")).json()["schedules"]
            # The console shows this one.
            last = listed[0]["last"]
            assert (last["outcome"], last["delivery"]) == ("answered", "failed")
        assert platforms.violations == []


async def _run_now(service: Service, schedule: dict[str, Any]) -> None:
    async with service.client() as client:
        answer = await client.post(f"/api/schedules/{schedule['id']}/run")
        assert answer.status_code == 200, answer.text


async def _run_to_end(service: Service, schedule: dict[str, Any]) -> dict[str, Any]:
    """Run a schedule now. Return the outcome once its run has ended."""
    await _run_now(service, schedule)
    found = await eventually(
        partial(occurrences, service, schedule), lambda found: found[0]["outcome"] != "queued"
    )
    return found[0]


async def _totals(service: Service) -> list[dict[str, Any]]:
    async with service.client() as client:
        return list((await client.get("/api/usage?by=person")).json()["totals"])


def _owners(platforms: PlatformServers) -> list[ChatUser]:
    """Return the private chats of the people who write in the groups."""
    return [
        SlackDirectUser(platforms.slack, user=SLACK_OWNER),
        TelegramPrivateUser(platforms.telegram, user=FORUM_PERSON),
        FeishuPrivateUser(platforms.feishu, user="ou_alice"),
    ]


def _create(chat: str) -> ToolCall:
    fields = {"prompt": "sum up the day", "name": "the news", "when": "every 1d", "chat": chat}
    return ToolCall("schedule", {"action": "create", "fields": fields})


async def _ask(model: FakeModelServer, user: ChatUser, call: ToolCall, answer: str) -> str:
    """Let the agent make a call for a person. Return its result."""
    model.reply(ModelReply(calls=(HELP,)), ModelReply(calls=(call,)), answer)
    await user.send("please")
    await user.wait_for_message(answer)
    return _last_result(model)


async def _plan_in_sales(
    service: Service, model: FakeModelServer, private: ChatUser, group: ChatUser
) -> dict[str, Any]:
    told = await _ask(model, private, _create("#sales"), "Every day in sales.")
    assert told.startswith("Created 'the news': every 1d, in sales, next ")
    await eventually(partial(_says, group, "set up a schedule for this chat"))
    listed = await _ask(model, private, ToolCall("schedule", {"action": "list"}), "One.")
    assert listed.startswith("1. 'the news': every 1d, in sales, next ")
    async with service.client() as client:
        found = (await client.get("/api/schedules", params={"channel": group.channel})).json()
    [schedule] = found["schedules"]
    assert (schedule["chat"], schedule["topic"]) == (group.chat, "")
    return dict(schedule)


SLACK_OWNER = "U1ANN"


async def _set_up_in_groups(service: Service, groups: list[ChatUser]) -> list[dict[str, Any]]:
    for user in groups:
        await user.send("hi")
    for user in groups:
        await user.expect_messages("You said: hi")
    cron = {"kind": "every", "expression": "1h"}
    return [await create(service, user, prompt="call Bob", **cron) for user in groups]


async def _come_due(service: Service, planned: list[dict[str, Any]]) -> None:
    soon = (datetime.now(UTC) + timedelta(seconds=1.5)).isoformat()
    async with service.client() as client:
        for schedule in planned:
            change = {"kind": "once", "expression": soon}
            answer = await client.patch(f"/api/schedules/{schedule['id']}", json=change)
            assert answer.status_code == 200, answer.text


async def _shown(service: Service, schedule: dict[str, Any]) -> dict[str, Any]:
    async with service.client() as client:
        return dict((await client.get(f"/api/schedules/{schedule['id']}")).json())


def _says(user: ChatUser, words: str) -> bool:
    return any(words in text for text in (*user.bot_messages(), *user.misplaced_messages()))
