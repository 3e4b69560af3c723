"""/api/schedules: accepted and refused requests, permissions, the audit log, and checks in the sandbox."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bus.messages import InboundMessage, ReplyTarget, Sender, decode_inbound
from bus.service import SCHEDULES
from store.conversations import ConversationKey
from store.schedules import ScheduleStore
from tests.eventually import eventually
from tests.gateway.composed import ComposedService, composed

ROUTE = "/api/schedules"
CHAT = {"channel": "terminal", "chat": "c"}
DAILY = {**CHAT, "prompt": "the news", "kind": "cron", "expression": "0 9 * * *"}


async def someone_writes(service: ComposedService) -> None:
    """Let a person write in the chat."""
    bus = service.services.bus
    assert bus is not None
    message = InboundMessage(
        event_id="e1",
        message_id="e1",
        key=ConversationKey(channel="terminal", workspace="", chat="c"),
        reply_target=ReplyTarget(chat="c"),
        sender=Sender(user_id="ann", name="Ann"),
        text="hello",
        is_private=True,
        is_addressed=True,
    )
    await bus.intake.receive(message)


async def create(service: ComposedService, **more: object) -> dict[str, Any]:
    answer = await service.client.post(ROUTE, json={**DAILY, **more})
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


async def test_a_schedule_is_created_changed_paused_and_deleted(tmp_path: Path) -> None:
    async with composed(tmp_path, json.dumps({"channels": {"timezone": "Asia/Tokyo"}})) as service:
        await someone_writes(service)
        made = await create(service)
        assert made["owner"] == {"user_id": "ann", "name": "Ann"}
        assert (made["timezone"], made["enabled"], made["name"]) == ("Asia/Tokyo", True, "the news")
        assert made["next_at"].endswith("T00:00:00+00:00")
        [listed] = (await service.client.get(ROUTE, params=CHAT)).json()["schedules"]
        assert listed == made
        one = f"{ROUTE}/{made['id']}"
        update = {"expression": "0 10 * * *", "timezone": "UTC", "end_at": "2100-01-01T00:00:00Z"}
        changed = (await service.client.patch(one, json=update)).json()
        assert changed["next_at"].endswith("T10:00:00+00:00")
        assert changed["end_at"] == "2100-01-01T00:00:00+00:00"
        pausing = {"end_at": None, "enabled": False, "check": "git rev-parse HEAD"}
        changed = (await service.client.patch(one, json=pausing)).json()
        assert (changed["end_at"], changed["enabled"]) == (None, False)
        assert (changed["paused_because"], changed["check"]) == ("person", "git rev-parse HEAD")
        changed = (await service.client.patch(one, json={"enabled": True})).json()
        assert (changed["enabled"], changed["paused_because"]) == (True, "")
        assert (await service.client.delete(one)).json()["success"] is True
        assert (await service.client.get(one)).status_code == 404
    log = (tmp_path / "home" / "audit.log").read_text()
    assert json.loads(log.splitlines()[0])["detail"] == f"schedule {made['id']}"
    assert "the news" not in log


async def test_it_runs_now_once_for_each_key(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        await someone_writes(service)
        made = await create(service, owner={"user_id": "bob", "name": "Bob"})
        one = f"{ROUTE}/{made['id']}"
        headers = {"Idempotency-Key": "k1"}
        ran = (await service.client.post(f"{one}/run", headers=headers)).json()
        again = (await service.client.post(f"{one}/run", headers=headers)).json()
        assert ran["inbox_id"] == again["inbox_id"] > 0

        async def outcomes() -> list[str]:
            found = (await service.client.get(f"{one}/occurrences")).json()["occurrences"]
            return [occurrence["outcome"] for occurrence in found]

        await eventually(outcomes, lambda found: found == ["answered"])
        rows = (await service.client.get("/api/channels/inbox")).json()
        assert [row["user_id"] for row in rows["rows"]].count("bob") == 1
        [listed] = (await service.client.get(ROUTE)).json()["schedules"]
        assert (listed["last"]["outcome"], listed["last"]["inbox_id"]) == (
            "answered",
            ran["inbox_id"],
        )


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"chat": "unknown"}, 404),
        ({"prompt": " "}, 422),
        ({"expression": "0 9 * *"}, 422),
        ({"timezone": "Mars/Phobos"}, 422),
        ({"kind": "once", "expression": "2001-01-01T00:00"}, 422),
        ({"kind": "sometimes"}, 422),
        ({"active_hours": "always"}, 422),
        ({"end_at": "2001-01-01T00:00:00Z"}, 422),
        ({"end_at": "tomorrow"}, 422),
        ({"overlap": "twice"}, 422),
        ({"kind": "every", "expression": "999999w"}, 422),
        ({"kind": "every", "expression": "999999w", "active_hours": "09:00-18:00"}, 422),
        ({"kind": "once", "expression": "0001-01-01T00:00"}, 422),
        ({"kind": "once", "expression": "9999-12-31T23:59", "timezone": "America/New_York"}, 422),
        ({"end_at": "9999-12-31T23:59:59-12:00"}, 422),
        ({"end_at": "0001-01-01T00:00:00+12:00"}, 422),
        ({"owner": {"user_id": "bob", "name": "B" * 201}}, 422),
        ({"owner": {"user_id": "b" * 201, "name": "Bob"}}, 422),
        ({"owner": {"user_id": "bob", "name": "half a pair: \ud800"}}, 422),
        ({"owner": {"user_id": "b\x00b", "name": "Bob"}}, 422),
        ({"chat": "\ud800"}, 422),
        ({"topic": "\ud800"}, 422),
        ({"channel": "\ud800"}, 422),
    ],
)
async def test_invalid_schedules_are_refused(
    tmp_path: Path, change: dict[str, Any], status: int
) -> None:
    async with composed(tmp_path) as service:
        await someone_writes(service)
        body, headers = json.dumps({**DAILY, **change}), {"Content-Type": "application/json"}
        refused = await service.client.post(ROUTE, content=body, headers=headers)
        assert refused.status_code == status, refused.text
        assert refused.json()["detail"]
        assert (await service.client.get(ROUTE)).json() == {"schedules": []}
        if not change.keys() & {"chat", "topic", "channel", "owner"}:
            one = f"{ROUTE}/{(await create(service))['id']}"
            before = (await service.client.get(one)).json()
            refused = await service.client.patch(one, json=change)
            assert refused.status_code == status, refused.text
            assert (await service.client.get(one)).json() == before


async def test_tokens_that_may_only_read_read(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        await someone_writes(service)
        made = await create(service)
        token = (
            await service.client.post("/api/tokens", json={"name": "r", "scope": "read"})
        ).json()["token"]
        headers = {"Authorization": f"Bearer {token}"}
        one = f"{ROUTE}/{made['id']}"
        assert (await service.stranger.get(one, headers=headers)).status_code == 200
        for method, path in (("POST", f"{one}/run"), ("DELETE", one), ("PATCH", one)):
            answer = await service.stranger.request(method, path, headers=headers, json={})
            assert answer.status_code == 403
        assert (await service.stranger.get(ROUTE)).status_code == 401


BASH = {"sandbox": {"use": "local", "allow_host_bash": True}}


async def test_a_check_decides_whether_the_model_is_called(tmp_path: Path) -> None:
    async with composed(tmp_path, json.dumps(BASH)) as service:
        await someone_writes(service)
        made = await create(service, kind="every", expression="1h", check="echo one")
        one = f"{ROUTE}/{made['id']}"

        async def expect(*wanted: str) -> None:
            await fire(service, made["id"])

            async def outcomes() -> list[str]:
                found = (await service.client.get(f"{one}/occurrences")).json()["occurrences"]
                return [occurrence["outcome"] for occurrence in found]

            await eventually(outcomes, lambda found: found == [*wanted])

        await expect("answered")
        await expect("unchanged", "answered")
        await service.client.patch(one, json={"check": "echo two"})
        await expect("answered", "unchanged", "answered")
        bus = service.services.bus
        assert bus is not None
        newest = await bus.inbox.find_newest("terminal", "c")
        assert newest is not None
        assert decode_inbound(newest.body).prompt == "the news\n\n```\ntwo\n```"


async def test_a_check_decides_in_a_conversation_without_a_thread_too(tmp_path: Path) -> None:
    async with composed(tmp_path, json.dumps(BASH)) as service:
        await someone_writes(service)
        made = await create(service, kind="every", expression="1h", check="echo one")
        bus = service.services.bus
        assert bus is not None
        key = ConversationKey(channel="terminal", workspace="", chat="c")

        async def thread_id() -> str | None:
            found = await bus.conversations.find(key)
            return found.thread_id if found is not None else None

        await eventually(thread_id)
        database = service.services.database
        await database.execute("UPDATE conversation SET thread_id = NULL", {})
        await fire(service, made["id"])

        async def outcomes() -> list[str]:
            path = f"{ROUTE}/{made['id']}/occurrences"
            found = (await service.client.get(path)).json()["occurrences"]
            return [occurrence["outcome"] for occurrence in found]

        await eventually(outcomes, lambda found: found == ["answered"])
        newest = await bus.inbox.find_newest("terminal", "c")
        assert newest is not None
        assert decode_inbound(newest.body).prompt == "the news\n\n```\none\n```"
        await fire(service, made["id"])
        await eventually(outcomes, lambda found: found == ["unchanged", "answered"])


async def test_checks_are_refused_where_guardrails_decide_about_commands(tmp_path: Path) -> None:
    guarded = {**BASH, "guardrails": {"enabled": True, "ask": ["bash"]}}
    async with composed(tmp_path, json.dumps(guarded)) as service:
        await someone_writes(service)
        refused = await service.client.post(ROUTE, json={**DAILY, "check": "date"})
        assert refused.status_code == 409
        assert "guardrails decide" in refused.json()["detail"]


async def fire(service: ComposedService, schedule_id: str) -> None:
    """Make a schedule due now."""
    database = service.services.database
    store = ScheduleStore(database)
    await store.change(schedule_id, lambda one: replace(one, next_at=time.time()))
    database.signals.publish(SCHEDULES)
