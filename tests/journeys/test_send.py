"""A script sends messages to single chats of three platforms: each arrives once, and people can answer it."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx

from bus.notifications.rows import HEADING
from tests.eventually import eventually
from tests.fakes.model import FakeModelServer
from tests.journeys.nodes import two_nodes
from tests.journeys.service import Service, serving, with_model
from tests.people.chat_user import ChatUser
from tests.people.platforms import PlatformServers

PLATFORMS = ("slack", "telegram", "feishu")
TEXT = "The backup **failed**."
SHOWN, REPORT = "backup", "report.csv"
CROWD = 12
"""Messages to each platform while the service is killed."""


async def test_people_get_it_in_private_and_the_agent_knows_what_they_answer(
    tmp_path: Path, with_database: dict[str, Any]
) -> None:
    async with PlatformServers() as platforms, FakeModelServer() as model:
        config = {**with_model(model.base_url), **with_database, "channels": platforms.channels}
        async with serving(tmp_path, config, *PLATFORMS) as service:
            people = dict(zip(PLATFORMS, platforms.private_users(0), strict=True))
            ids = {"slack": "U0USER", "telegram": "5000", "feishu": "ou_person0"}
            await people["telegram"].send("/status")
            await eventually(people["telegram"].bot_messages)
            for channel, person in people.items():
                await _send_with_file(service, tmp_path, channel, ids[channel])
                await person.wait_for_message(SHOWN)
                await eventually(partial(_files, person), lambda names: names == [REPORT])
                await person.send("what happened?")
                await person.wait_for_message("You said: what happened?")
            prompts = [request.last_user_text for request in model.requests]
            assert len(prompts) == len(PLATFORMS)
            for prompt in prompts:
                assert HEADING in prompt
                assert "> The backup **failed**." in prompt
            await _it_is_not_sent_again(service, people, ids)
        assert platforms.violations == []


async def _send_with_file(service: Service, folder: Path, channel: str, person: str) -> None:
    report = anyio.Path(folder / REPORT)
    await report.write_bytes(b"a,b\n" * 300_000)
    code, out, error = await service.command(
        *("send", channel, person, "-", "--person", "--key", "backup-7"),
        *("--file", str(report), "--wait", "--json"),
        stdin=TEXT,
    )
    assert (code, error) == (0, "")
    sent = json.loads(out)
    assert (sent["state"], len(sent["message_ids"])) == ("delivered", 2)


def _files(person: ChatUser) -> list[str]:
    return [message.file for message in person.shown() if message.file]


async def _it_is_not_sent_again(
    service: Service, people: dict[str, ChatUser], ids: dict[str, str]
) -> None:
    for channel, person in people.items():
        code, out, error = await service.command(
            "send", channel, ids[channel], "Other", "--person", "--key", "backup-7"
        )
        assert (code, out) == (1, "")
        assert "Another message has the key 'backup-7'." in error
        assert _times(person) == 1
        for file in ("/proc/uptime", "/proc/self/mem"):  # larger than declared, and unreadable
            code, out, error = await service.command(
                "send", channel, ids[channel], "Other", "--person", "--file", file
            )
            assert (code, out) == (1, "")
            assert error.startswith("parley: a file cannot be read, or changed while it was sent (")


async def test_it_reaches_groups_and_topics_and_the_agent_knows_it_there(tmp_path: Path) -> None:
    async with PlatformServers() as platforms, FakeModelServer() as model:
        config = {**with_model(model.base_url), "channels": platforms.channels}
        async with serving(tmp_path, config, *PLATFORMS) as service, service.client() as client:
            for user in platforms.users:
                await user.send("hi")
            for user in platforms.users:
                await user.expect_messages("You said: hi")
            listed = (await client.get("/api/channels/conversations")).json()["rows"]
            assert len(listed) == len(platforms.users)
            for row in listed:
                body = {"chat": row["chat"], "topic": row["topic"], "text": TEXT}
                await _post(client, row["channel"], body, key=f"topic-{row['id']}")
            for user in platforms.users:
                await user.wait_for_message(SHOWN)
                assert user.misplaced_messages() == []
            for user in platforms.users:
                await user.send("and now?")
                await user.wait_for_message("You said: and now?")
            asked = [one.last_user_text for one in model.requests]
            known = [HEADING in text for text in asked if "and now?" in text]
            assert known == [True] * len(platforms.users)
            await _the_whole_group_gets_it(
                client, platforms, [row for row in listed if row["topic"]]
            )
        assert platforms.violations == []


async def _the_whole_group_gets_it(
    client: httpx.AsyncClient, platforms: PlatformServers, groups: list[dict[str, Any]]
) -> None:
    for row in groups:
        body = {"chat": row["chat"], "text": "To all"}
        await _post(client, row["channel"], body, key=f"all-{row['id']}")
    chats = {row["chat"] for row in groups}
    for user in platforms.users:
        if user.chat in chats:
            await eventually(partial(_times_in_the_chat, user), lambda count: count == 1)


def _times_in_the_chat(user: ChatUser) -> int:
    return user.misplaced_messages().count("To all")


async def _post(
    client: httpx.AsyncClient, channel: str, body: dict[str, str], *, key: str
) -> dict[str, Any]:
    """Send a message until it is accepted."""
    url = f"/api/channels/{channel}/messages"
    answer = await client.post(url, json={**body, "key": key})
    assert answer.status_code == 202, answer.text
    return dict(answer.json())


async def test_a_refusal_is_told_in_the_platforms_words(tmp_path: Path) -> None:
    async with PlatformServers() as platforms:
        platforms.telegram.block(20_001)
        async with serving(tmp_path, {"channels": platforms.channels}, *PLATFORMS) as service:
            for channel, arguments, words in (
                ("telegram", ("20001", "--person"), "blocked by the user"),
                ("slack", ("CNOWHERE",), "Slack does not know this channel"),
                (
                    "feishu",
                    ("oc_room", "--topic", "omt_unknown"),
                    "only as a reply to one of its messages",
                ),
            ):
                code, out, _ = await service.command(
                    "send", channel, *arguments[:1], TEXT, *arguments[1:], "--wait"
                )
                assert code == 1
                assert "The message is failed" in out
                assert words in out
            code, _, error = await service.command("send", "nowhere", "1", TEXT)
            assert (code, "There is no running channel nowhere." in error) == (1, True)
            code, _, error = await service.command("send", "telegram", "1", "--file", "nothing")
            assert (code, "nothing: No such file" in error) == (1, True)
            code, _, error = await service.command("send", "telegram", "1 2", TEXT)
            assert (code, "chat: " in error) == (1, True)


async def test_without_a_service_the_command_says_so(tmp_path: Path) -> None:
    service = Service(tmp_path, {})
    code, out, error = await service.command("send", "telegram", "1", TEXT)
    assert (code, out) == (1, "")
    assert "Parley is not running" in error


async def test_killed_in_the_middle_each_message_arrives_once(tmp_path: Path) -> None:
    async with PlatformServers() as platforms:
        people = [user for n in range(CROWD) for user in platforms.private_users(n)]
        async with serving(tmp_path, {"channels": platforms.channels}, *PLATFORMS) as service:
            for user in people:
                await user.send("/status")
            for user in people:
                assert await eventually(user.bot_messages, within_s=60)
            accepted = await _send_until_killed(service, people)
            await service.start()
            await service.until_connected(*PLATFORMS)
            async with service.client() as client:
                for user in people:
                    known = await _post(
                        client, user.channel, {"chat": user.chat, "text": TEXT}, key=user.chat
                    )
                    assert known["is_repeat"] or user.chat not in accepted
            for user in people:
                assert await eventually(partial(_times, user), within_s=60), user.chat
            await service.until_recorded()
            async with service.client() as client:
                listed = await client.get("/api/channels/outbox?state=uncertain")
                uncertain = {str(row["chat"]) for row in listed.json()["rows"]}
        twice = {user.chat for user in people if _times(user) > 1}
        # If Parley is killed while it sends a message, Telegram cannot tell whether the message arrived.
        assert twice <= uncertain & {user.chat for user in people if user.channel == "telegram"}
        assert platforms.violations == []


async def _send_until_killed(service: Service, people: list[ChatUser]) -> set[str]:
    """Send a message to each person while killing the service. Return the chats whose message it accepted."""
    accepted: set[str] = set()

    async def send(client: httpx.AsyncClient, user: ChatUser) -> None:
        try:
            await _post(client, user.channel, {"chat": user.chat, "text": TEXT}, key=user.chat)
        except httpx.TransportError:
            return
        accepted.add(user.chat)

    async with service.client() as client, anyio.create_task_group() as tasks:
        for user in people:
            tasks.start_soon(send, client, user)
        await eventually(lambda: sum(map(_times, people)) >= 3)
        await service.kill()
    return accepted


def _times(user: ChatUser) -> int:
    """Return how often a person got the message. Answers repeat it."""
    texts = user.bot_messages()
    return sum(SHOWN in text and "You said" not in text for text in texts)


async def test_any_node_takes_it_and_knows_its_state(
    tmp_path: Path, database: dict[str, Any]
) -> None:
    async with PlatformServers() as platforms:
        config = {**database, "channels": platforms.channels}
        async with two_nodes(tmp_path, config) as (first, second):
            people = platforms.private_users(0)
            for user in people:
                await user.send("/status")
            for user in people:
                assert await eventually(user.bot_messages, within_s=60)
            for node, other in ((first, second), (second, first)):
                async with node.client() as client, other.client() as asking:
                    for user in people:
                        await _sent_at_one_known_at_the_other(client, asking, user, str(node.port))
            for user in people:
                assert _times(user) == 2
                assert _files(user) == [REPORT] * 2
        assert platforms.violations == []


async def _sent_at_one_known_at_the_other(
    client: httpx.AsyncClient, asking: httpx.AsyncClient, user: ChatUser, key: str
) -> None:
    url = f"/api/channels/{user.channel}/messages"
    fields = {"chat": user.chat, "text": TEXT, "key": f"{user.chat}-{key}"}
    file = ("files", (REPORT, b"a,b\n" * 200_000))
    sent = await client.post(url, data=fields, files=[file])
    assert sent.status_code == 202, sent.text
    repeated = await asking.post(url, data=fields, files=[file])
    assert repeated.json()["is_repeat"] is True

    async def state() -> str:
        return str((await asking.get(f"{url}/{fields['key']}")).json()["state"])

    await eventually(state, lambda found: found == "delivered", within_s=60)
