"""However an approval happens, the person gets one notice about it, in their language, in the chat where they asked."""

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from bus.locales.en import ENGLISH
from bus.locales.zh import CHINESE
from tests.eventually import eventually
from tests.fakes.model import FakeModelServer
from tests.journeys.service import Service, serving, with_model
from tests.people.chat_user import ChatUser
from tests.people.platforms import PlatformServers
from tests.people.slack import SlackThreadUser
from tests.people.telegram import TelegramPrivateUser

CODE = re.compile(r"\b[A-HJ-NP-Z2-9]{8}\b")
NAMES = ("slack", "telegram", "feishu")


@asynccontextmanager
async def careful(folder: Path) -> AsyncIterator[tuple[Service, PlatformServers]]:
    """Run the service on three platforms, where people and groups need approval."""
    async with PlatformServers() as platforms, FakeModelServer() as model:
        channels = platforms.channels
        for name in NAMES:
            channels[name] |= {"dm_policy": "pairing", "group_policy": "pairing"}
        config = {**with_model(model.base_url), "channels": channels}
        async with serving(folder, config, *NAMES) as service:
            yield service, platforms


async def code_of(user: ChatUser) -> str:
    """Return the code in the one message that a stranger got."""
    (said,) = await eventually(user.bot_messages)
    codes: list[str] = CODE.findall(said)
    return codes[0]


async def refusals(client: httpx.AsyncClient, count: int) -> list[dict[str, Any]]:
    """Wait for refused messages, oldest first."""

    async def list_them() -> list[dict[str, Any]]:
        rows = (await client.get("/api/messages?state=refused")).json()["rows"]
        return list(reversed(rows))

    return await eventually(list_them, lambda rows: len(rows) == count)


async def test_approved_people_are_told_once_on_each_platform_in_their_language(
    tmp_path: Path,
) -> None:
    async with careful(tmp_path) as (service, platforms):
        users = platforms.private_users(7)
        slack, telegram, feishu = users
        await slack.send("let me in")
        await telegram.send("请让我进来")
        await feishu.send("let me in")
        codes = [await code_of(user) for user in users]

        async with service.client() as client:
            asked = (await client.get("/api/channels/pairings")).json()["rows"]
            assert {(row["channel"], row["text"]) for row in asked} == {
                ("slack", "let me in"), ("telegram", "请让我进来"), ("feishu", "let me in"),
            }  # fmt: skip
            approved = await client.post(f"/api/channels/pairings/{codes[0]}/approve")
            assert approved.status_code == 200
        exit_code, _, err = await service.command("pairing", "approve", codes[1])
        assert (exit_code, err) == (0, "")
        await service.kill()  # Nobody was notified yet.
        exit_code, _, err = await service.command("pairing", "approve", codes[2])
        assert (exit_code, err) == (0, "")
        await service.start()

        await slack.wait_for_message(ENGLISH.pairing_approved)
        await telegram.wait_for_message(CHINESE.pairing_approved)
        await feishu.wait_for_message(ENGLISH.pairing_approved)
        for user in users:
            await user.send("now?")
            await user.wait_for_message("You said: now?")
            assert len(user.bot_messages()) == 3
        assert platforms.violations == []


async def test_people_and_groups_are_let_in_beside_their_refusal(tmp_path: Path) -> None:
    async with careful(tmp_path) as (service, platforms), service.client() as client:
        person = TelegramPrivateUser(platforms.telegram, user=7001)
        await person.send("let me in")
        await code_of(person)
        room = SlackThreadUser(platforms.slack, room="C6")
        await room.send("hello?")
        found = await refusals(client, 2)
        kinds = {(row["channel"], row["remedy"]["kind"]) for row in found}
        assert kinds == {("telegram", "person"), ("slack", "chat")}
        for row in found:
            path = f"/api/messages/refused/{row['id'][1:]}/let-in"
            assert (await client.post(path)).json()["approved_at"]
            again = await client.post(path)
            assert again.status_code == 409
        assert [row["remedy"]["kind"] for row in await refusals(client, 2)] == ["admitted"] * 2
        await person.wait_for_message(ENGLISH.pairing_approved)
        await eventually(
            lambda: platforms.slack.texts("C6"),
            lambda texts: ENGLISH.group_pairing_approved in texts,
        )
        await person.send("now?")
        await person.wait_for_message("You said: now?")
        audit = (service.home / "audit.log").read_text()
        assert "approved 7001 on telegram" in audit
        assert "approved group:C6 on slack" in audit
        assert platforms.violations == []


async def test_an_approval_that_is_undone_is_told_to_nobody(tmp_path: Path) -> None:
    async with careful(tmp_path) as (service, platforms), service.client() as client:
        person = TelegramPrivateUser(platforms.telegram, user=7001)
        await person.send("let me in")
        code = await code_of(person)
        await client.post(f"/api/channels/pairings/{code}/approve")
        waiting = (await client.get("/api/channels/outbox?state=pending")).json()["rows"]
        assert [row["key"] for row in waiting] == [f"approved:{code}"]
        assert (await client.delete("/api/channels/pairings/telegram/7001")).status_code == 204
        assert (await client.get("/api/channels/outbox?state=pending")).json()["rows"] == []
        again = await client.post(f"/api/channels/pairings/{code}/approve")
        assert again.json()["code"] == code
        await person.send("now?")
        await person.wait_for_message("You said: now?")
        assert platforms.violations == []
