"""The administrator sends a message to everybody who talks to the bot, with the real service and three platforms."""

import json
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from bus.notifications.sender import IN_FLIGHT
from gateway.playground.telegram.server import TelegramServer
from tests.eventually import eventually
from tests.fakes.model import FakeModelServer
from tests.journeys.service import Service, serving, with_model
from tests.journeys.test_terminal import at_a_terminal
from tests.people.chat_user import ChatUser
from tests.people.platforms import PlatformServers
from tests.people.telegram import TelegramPrivateUser

PLATFORMS = ("slack", "telegram", "feishu")
TEXT = "The bot is down for **maintenance** tonight."
PLAN, CONTENT = "plan.csv", b"a,b\n" * 200_000
CROWD = 150
"""People with a private chat on Telegram."""


async def test_each_private_chat_of_three_platforms_gets_it_once(
    tmp_path: Path, with_database: dict[str, Any]
) -> None:
    async with PlatformServers() as platforms, FakeModelServer() as model:
        config = {**with_model(model.base_url), **with_database, "channels": platforms.channels}
        async with serving(tmp_path, config, *PLATFORMS) as service:
            people = [user for n in range(2) for user in platforms.private_users(n)]
            groups = [
                user
                for user in platforms.users
                if "private" not in user.name and "dm" not in user.name
            ]
            for user in [*people, *groups]:
                await user.send("hi")
            for user in [*people, *groups]:
                await user.expect_messages("You said: hi")
            await _a_dry_run_counts_and_sends_nothing(service)
            await _the_command_sends_it(service, tmp_path)
            for user in people:
                await user.wait_for_message("maintenance")
                await eventually(partial(_files, user), lambda names: names == [PLAN])
            await _a_repeated_key_sends_nothing(service, tmp_path)
            await _a_token_that_may_only_read_is_refused(service)
            await _groups_get_it_in_their_general_topic(service, platforms)
            for user in people:
                await user.send("still there?")
                await user.wait_for_message("You said: still there?")
                assert (_announced(user), _files(user)) == (1, [PLAN])
            for user in groups:
                assert _announced(user) == 0
            await _the_audit_log_says_which_but_not_what(service)
        assert platforms.violations == []


async def _a_dry_run_counts_and_sends_nothing(service: Service) -> None:
    code, out, _ = await service.command("broadcast", TEXT, "--dry-run", "--json")
    assert code == 0
    counted = json.loads(out)
    chats = {name: one["chats"] for name, one in counted["channels"].items()}
    assert (counted["key"], chats) == (None, dict.fromkeys(PLATFORMS, 2))


async def _the_command_sends_it(service: Service, folder: Path) -> None:
    code, _, error = await service.command("broadcast", TEXT)
    assert (code, "--yes" in error) == (1, True)
    code, _, error = await service.command("broadcast", TEXT, "--yes", "--file", "nothing")
    assert (code, "nothing: No such file" in error) == (1, True)
    code, _, error = await service.command("broadcast", "x" * 60_001, "--yes")
    assert (code, "60000 characters" in error) == (1, True)
    await anyio.Path(folder / PLAN).write_bytes(CONTENT)
    code, out, error = await service.command(*_command(folder, TEXT))
    assert (code, error) == (0, "")
    assert "6 chats" in out
    assert "Key: tonight" in out


def _command(folder: Path, text: str) -> tuple[str, ...]:
    return ("broadcast", text, "--yes", "--key", "tonight", "--file", str(folder / PLAN))


async def _a_repeated_key_sends_nothing(service: Service, folder: Path) -> None:
    code, out, _ = await service.command(*_command(folder, TEXT), "--json")
    repeated = json.loads(out)
    assert (code, repeated["is_repeat"], repeated["chats"]) == (0, True, 6)
    for other in (_command(folder, "Other"), _command(folder, TEXT)[:-2]):
        code, _, error = await service.command(*other)
        assert code == 1
        assert "Another broadcast" in error


async def _a_token_that_may_only_read_is_refused(service: Service) -> None:
    async with service.client() as client:
        made = await client.post("/api/tokens", json={"name": "screen", "scope": "read"})
        headers = {"Authorization": f"Bearer {made.json()['token']}"}
        for dry_run in (True, False):
            body = {"text": TEXT, "dry_run": dry_run}
            refused = await client.post("/api/channels/broadcast", json=body, headers=headers)
            assert refused.status_code == 403


async def _groups_get_it_in_their_general_topic(
    service: Service, platforms: PlatformServers
) -> None:
    async with service.client() as client:
        body = {"text": "For groups", "audience": "groups", "key": "groups"}
        sent = await client.post("/api/channels/broadcast", json=body)
        assert sent.json()["chats"] == 3
    places = [
        user
        for user in platforms.users
        if user.name in ("slack channel", "telegram topic", "feishu group")
    ]
    for user in places:
        await eventually(partial(_times_in_the_chat, user), lambda count: count == 1)


def _times_in_the_chat(user: ChatUser) -> int:
    return user.misplaced_messages().count("For groups")


async def _the_audit_log_says_which_but_not_what(service: Service) -> None:
    log = (service.home / "audit.log").read_text()
    entries = [json.loads(line) for line in log.splitlines() if "channels/broadcast" in line]
    assert "broadcast tonight: 6 chats" in [entry["detail"] for entry in entries]
    assert "maintenance" not in log


async def test_killed_in_the_middle_it_goes_on_and_answers_pass_it(tmp_path: Path) -> None:
    async with PlatformServers() as platforms:
        telegram = platforms.telegram
        people = [TelegramPrivateUser(telegram, user=10_000 + n) for n in range(CROWD)]
        others = [
            user
            for n in range(40)
            for user in platforms.private_users(n)
            if user.channel != "telegram"
        ]
        async with serving(tmp_path, {"channels": platforms.channels}, *PLATFORMS) as service:
            users = [*people, *others]
            for user in users:
                await user.send("/status")
            await _wait_for_all(users, lambda user: user.bot_messages())
            assert await _broadcast(service) == (len(users), False)
            await eventually(lambda: len(_announcements(telegram)) >= 10)
            await people[-1].send("/help")
            await eventually(lambda: len(people[-1].bot_messages()) == 2)
            # The answer did not wait for the rest of the broadcast. The kill comes before the rest is sent, too.
            await service.kill()
            assert len(_announcements(telegram)) < CROWD
            await service.start()
            await service.until_connected(*PLATFORMS)
            assert await _broadcast(service) == (len(users), True)
            await _wait_for_all(users, _announced)
            await service.until_recorded()
            uncertain = await _uncertain_chats(service)
        assert [user.chat for user in others if _announced(user) != 1] == []
        # If Parley is killed while it sends a message, Telegram cannot tell whether the message arrived.
        assert {user.chat for user in people if _announced(user) > 1} <= uncertain
        assert sum(map(_announced, people)) <= CROWD + len(uncertain)
        assert len(uncertain) <= IN_FLIGHT
        assert platforms.violations == []


async def test_killed_in_the_middle_each_chat_gets_its_file(
    tmp_path: Path, with_database: dict[str, Any]
) -> None:
    async with PlatformServers() as platforms:
        people = [user for n in range(20) for user in platforms.private_users(n)]
        config = {**with_database, "channels": platforms.channels}
        async with serving(tmp_path, config, *PLATFORMS) as service:
            for user in people:
                await user.send("/status")
            await _wait_for_all(people, lambda user: user.bot_messages())
            assert await _broadcast(service, CONTENT) == (len(people), False)
            await eventually(lambda: sum(bool(_files(user)) for user in people) >= 5)
            await service.kill()
            assert not all(_files(user) for user in people)
            await service.start()
            await service.until_connected(*PLATFORMS)
            assert await _broadcast(service, CONTENT) == (len(people), True)
            await _wait_for_all(people, _files)
            await service.until_recorded()
            uncertain = await _uncertain_chats(service)
        for user in people:
            assert {*_files(user)} == {PLAN}
            # If Parley is killed while it sends a file, Slack and Telegram cannot tell whether the file arrived.
            most = 1 if user.channel == "feishu" or user.chat not in uncertain else 2
            assert len(_files(user)) <= most, user.chat
        assert platforms.violations == []


async def test_a_file_is_refused_that_one_of_the_platforms_does_not_take(tmp_path: Path) -> None:
    async with (
        PlatformServers() as platforms,
        serving(tmp_path, {"channels": platforms.channels}, *PLATFORMS) as service,
        service.client() as client,
    ):
        files = [("files", (PLAN, b"x" * 50_000_001))]
        refused = await client.post("/api/channels/broadcast", files=files)
        assert refused.status_code == 413
        assert "50,000,000 bytes that telegram sends" in refused.json()["detail"]
        accepted = await client.post(
            "/api/channels/broadcast", data={"channels": "slack"}, files=files
        )
        assert accepted.json()["chats"] == 0


async def test_at_a_terminal_the_command_asks_first(tmp_path: Path) -> None:
    async with TelegramServer() as telegram:
        person = TelegramPrivateUser(telegram)
        async with serving(tmp_path, config_of(telegram), "telegram") as service:
            await person.send("/status")
            await eventually(person.bot_messages)
            for answer, code in (("n\r", 1), ("y\r", 0)):
                async with at_a_terminal(
                    service.config, service.home, "broadcast", TEXT
                ) as terminal:
                    await terminal.sees("telegram", "Send it to 1 chat? [y/N]")
                    terminal.type(answer)
                    await terminal.sees("nothing was sent" if code else "Key:")
                    assert await terminal.leaves() == code
            await person.wait_for_message("maintenance")
            await person.send("/help")
            await eventually(lambda: len(person.bot_messages()) == 3)
        assert _announcements(telegram) == [int(person.chat)]


async def test_a_broadcast_fails_where_the_bot_was_blocked_and_reaches_the_others(
    tmp_path: Path,
) -> None:
    async with TelegramServer() as telegram:
        people = [TelegramPrivateUser(telegram, user=user) for user in (20_001, 20_002)]
        async with serving(tmp_path, config_of(telegram), "telegram") as service:
            for person in people:
                await person.send("/status")
                await eventually(person.bot_messages)
            telegram.block(20_001)
            assert await _broadcast(service) == (2, False)
            await people[1].wait_for_message("maintenance")
            async with service.client() as client:

                async def failed() -> list[tuple[str, int]]:
                    listed = await client.get("/api/channels/outbox?state=failed")
                    return [(row["key"], row["attempts"]) for row in listed.json()["rows"]]

                [(key, attempts)] = await eventually(failed)
        assert key.startswith("notification::tonight:telegram:")
        assert attempts == 1
        assert telegram.violations == []


async def test_without_a_service_the_command_says_so(tmp_path: Path) -> None:
    service = Service(tmp_path, {})
    code, out, error = await service.command("broadcast", TEXT, "--yes")
    assert (code, out) == (1, "")
    assert "Parley is not running" in error


async def _wait_for_all(users: Iterable[ChatUser], holds: Callable[[ChatUser], object]) -> None:
    """Wait until a condition holds for each user."""
    for user in users:
        assert await eventually(partial(holds, user), within_s=60), user.chat


async def _broadcast(service: Service, file: bytes = b"") -> tuple[int, bool]:
    """Request the broadcast. Return how many chats get it, and whether it was requested before."""
    async with service.client() as client:
        body = {"text": TEXT, "key": "tonight"}
        if file:
            files = [("files", (PLAN, file))]
            answer = await client.post("/api/channels/broadcast", data=body, files=files)
        else:
            answer = await client.post("/api/channels/broadcast", json=body)
        sent = answer.json()
        return sent["chats"], sent["is_repeat"]


async def _uncertain_chats(service: Service) -> set[str]:
    async with service.client() as client:
        listed = await client.get("/api/channels/outbox?state=uncertain")
        return {str(row["chat"]) for row in listed.json()["rows"]}


def config_of(telegram: TelegramServer) -> dict[str, Any]:
    return {"channels": {"telegram": telegram.settings}}


def _announced(user: ChatUser) -> int:
    """Return how often a person got the broadcast. Answers repeat it."""
    texts = user.bot_messages()
    return sum("maintenance" in text and "You said" not in text for text in texts)


def _files(user: ChatUser) -> list[str]:
    return [message.file for message in user.shown() if message.file]


def _announcements(telegram: TelegramServer) -> list[int]:
    """Return the chats of the broadcast's messages, in the order in which they arrived at Telegram."""
    calls = [call.arguments for call in telegram.calls("sendMessage")]
    return [int(sent["chat_id"]) for sent in calls if "maintenance" in str(sent["text"])]
