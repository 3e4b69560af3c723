"""/api/people and /api/rooms: lists, effective settings with their sources, and changes, on both engines."""

import csv
import io
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from bus.messages import InboundMessage, ReplyTarget, Sender
from bus.platform import Disposition
from store.conversations import ConversationKey
from store.usage import FinishedUsage, UsageRow
from tests.eventually import eventually
from tests.fakes.postgres import MISSING, PostgresServer
from tests.gateway.composed import ComposedService, composed

Running: TypeAlias = Callable[[str], AbstractAsyncContextManager[ComposedService]]

HOSTILE = '<img src=x onerror="alert(1)"> Ann 100%_'

CONFIG = """\
models:
  - {name: demo, use: "agent.models.demo:DemoModel", model: demo}
  - {name: other, use: "agent.models.demo:DemoModel", model: demo}
usage: {limits: {person: {tokens_per_day: 1000}, service: {cost_per_month: 5}}}
channels:
  rate_limit: {per_seconds: 30}
  session: {context: {is_plan_mode: true}}
  terminal:
    admin_users: [u1]
    session:
      busy: steer
      chats: {g1: {context: {thinking_enabled: false}}}
      users: {u1: {config: {recursion_limit: 50}}}
"""


@pytest.fixture(params=["sqlite", "postgres"])
def running(
    request: pytest.FixtureRequest, tmp_path: Path, postgres: PostgresServer | None
) -> Running:
    """Return a function that runs the service with a configuration, for each engine."""

    @asynccontextmanager
    async def run(text: str = "") -> AsyncIterator[ComposedService]:
        if request.param == "sqlite":
            async with composed(tmp_path, text or "{}") as service:
                yield service
            return
        if postgres is None:
            pytest.skip(MISSING)
        with postgres.database() as url:
            async with composed(tmp_path, f'{text}\ndatabase: {{url: "{url}"}}\n') as service:
                yield service

    return run


def message(number: int, text: str, **changes: Any) -> InboundMessage:  # noqa: ANN401 - fields
    chat, user = changes.pop("chat", "c1"), changes.pop("user", "u1")
    values = {
        "sender": Sender(user_id=user, name=changes.pop("name", "Ann")),
        "is_private": True,
        **changes,
    }
    return InboundMessage(
        event_id=f"e{number}",
        message_id=f"i{number}",
        key=ConversationKey(channel="terminal", workspace="local", chat=chat),
        reply_target=ReplyTarget(chat=chat),
        text=text,
        is_addressed=True,
        **values,
    )


async def received(service: ComposedService, *messages: InboundMessage) -> None:
    bus = service.services.bus
    assert bus is not None
    for one in messages:
        assert await bus.intake.receive(one) is Disposition.ACCEPTED


async def get(service: ComposedService, path: str) -> Any:  # noqa: ANN401 - JSON
    response = await service.client.get(path)
    assert response.status_code == 200, response.text
    return response.json()


async def rows(service: ComposedService, path: str) -> list[dict[str, Any]]:
    return list((await get(service, path))["rows"])


async def collected(service: ComposedService) -> None:
    """Wait until the group and the person who wrote there are known. The service collects them one after the other."""
    await eventually(lambda: rows(service, "/api/rooms?kind=group"))
    await eventually(lambda: rows(service, "/api/people"))


def settings_of(profile: dict[str, Any]) -> dict[str, tuple[Any, str]]:
    return {one["name"]: (one["value"], one["source"]) for one in profile["settings"]}


async def test_people_and_rooms_are_found_by_name_and_paged(running: Running) -> None:
    async with running("") as service:
        await received(
            service,
            message(1, "hi"),
            message(2, "hello", user="u2", name=HOSTILE, chat="c2"),
            message(3, "all", user="u2", name="", chat="g1", is_private=False, chat_title="Ops"),
            message(4, "/status", user="u1", name="Ann Lee"),
        )
        found = await eventually(
            lambda: rows(service, "/api/people"),
            lambda found: [one["messages"] for one in found] == [2, 2],
        )
        assert [(one["user_id"], one["user_name"]) for one in found] == [
            ("u1", "Ann Lee"),
            ("u2", HOSTILE),  # The previously known name stays.
        ]
        for query in ("q=ANN&channel=terminal", "q=u2", "q=0%25_"):
            assert "u2" in [one["user_id"] for one in await rows(service, f"/api/people?{query}")]
        assert await rows(service, "/api/people?q=1_0") == []
        assert await rows(service, "/api/people?channel=slack") == []
        page = await get(service, "/api/people?limit=1")
        assert page["next"] == 1
        last = await get(service, "/api/people?limit=1&offset=1")
        assert last["rows"][0]["user_id"] == "u2"
        (room,) = await rows(service, "/api/rooms?q=ops")
        assert (room["chat"], room["name"], room["kind"]) == ("g1", "Ops", "group")
        private = await rows(service, "/api/rooms?kind=private")
        assert {(one["chat"], one["name"]) for one in private} == {
            ("c1", "Ann Lee"),
            ("c2", HOSTILE),
        }
        assert (await service.client.get("/api/people/terminal/nobody")).status_code == 404
        assert (await service.client.get("/api/rooms/terminal/nowhere")).status_code == 404


async def test_each_setting_has_its_source(running: Running) -> None:
    async with running(CONFIG) as service:
        await received(
            service,
            message(1, "hi", language="zh-hans", timezone="Europe/Berlin"),
            message(2, "all", chat="g1", is_private=False, chat_title="Ops"),
        )
        await eventually(
            lambda: rows(service, "/api/people"), lambda found: found and found[0]["messages"] == 2
        )
        person = await get(service, "/api/people/terminal/u1")
        found = settings_of(person)
        assert found["model"] == ("demo", "default")
        assert found["agent"] == ("lead_agent", "default")
        assert found["language"] == ("zh", "platform")
        assert found["timezone"] == ("Europe/Berlin", "platform")
        assert found["busy"] == ("steer", "channel")
        assert found["context.is_plan_mode"] == (True, "service")
        assert found["context.thinking_enabled"] == (True, "default")
        assert found["config.recursion_limit"] == (50, "person")
        assert found["dm_policy"] == ("open", "default")
        assert found["rate_limit.messages"] == (0, "default")
        assert found["rate_limit.per_seconds"] == (30, "service")
        lines = {one["name"]: (one["key"], one["line"]) for one in person["settings"]}
        assert lines["busy"] == ("channels.terminal.session.busy", 11)
        assert lines["config.recursion_limit"] == (
            "channels.terminal.session.users.u1.config.recursion_limit",
            13,
        )
        assert lines["language"] == ("", 0)
        assert person["access"]["is_admin"] is True
        assert person["access"]["means"] == "open"
        room = settings_of(await get(service, "/api/rooms/terminal/g1"))
        assert room["context.thinking_enabled"] == (False, "room")
        assert room["config.recursion_limit"] == (100, "default")  # Not the last writer's.
        assert room["thread_followups"] == ("smart", "default")
        assert "timezone" not in room


async def test_a_choice_has_the_effect_of_the_command(running: Running, tmp_path: Path) -> None:
    async with running(CONFIG) as service:
        await received(
            service,
            message(1, "hi"),
            message(2, "all", chat="g1", is_private=False, chat_title="Ops"),
        )
        await collected(service)
        path = "/api/people/terminal/u1"
        body = {"model": "other", "language": "zh", "timezone": "Asia/Tokyo"}
        changed = await service.client.patch(path, json=body)
        assert changed.status_code == 200, changed.text
        found = settings_of(changed.json())
        assert found["model"] == ("other", "command")
        assert found["language"] == ("zh", "command")
        assert found["timezone"] == ("Asia/Tokyo", "command")
        for wrong in ({"model": "none"}, {"language": "xx"}, {"timezone": "Mars"}):
            assert (await service.client.patch(path, json=wrong)).status_code == 422
        reset = await service.client.patch(path, json={"model": None})
        assert settings_of(reset.json())["model"] == ("demo", "default")
        assert settings_of(reset.json())["language"] == ("zh", "command")
        room = "/api/rooms/terminal/g1"
        assert (await service.client.patch(room, json={"timezone": "UTC"})).status_code == 422
        changed = await service.client.patch(room, json={"model": "other"})
        assert settings_of(changed.json())["model"] == ("other", "command")
        assert settings_of(await get(service, path))["model"] == ("demo", "default")
        assert "person:terminal:local:u1: model=other" in (
            tmp_path / "home" / "audit.log"
        ).read_text("utf-8")


async def test_limits_say_how_much_is_used_and_usage_has_names(running: Running) -> None:
    async with running(CONFIG) as service:
        await received(
            service,
            message(1, "/status"),
            message(2, "/status", chat="g1", is_private=False, chat_title="Ops"),
        )
        await collected(service)
        store = service.services.agent_services.usage.store
        assert store is not None
        person = await get(service, "/api/people/terminal/u1")
        day = person["limits"][0]["period"]
        row = UsageRow(
            day=day, run_id="r", kind="run", model="demo", agent="lead_agent", input_tokens=90,
            output_tokens=10, cost_nano_usd=2_000_000_000, calls=1,
            person="terminal:local:u1", room="terminal:local:g1",
        )  # fmt: skip
        await store.add([FinishedUsage(row=row)])
        person = await get(service, "/api/people/terminal/u1")
        assert person["usage_id"] == row.person
        assert [(one["scope"], one["unit"], one["limit"], one["used"]) for one in person["limits"]] == [
            ("person", "tokens", 1000, 100),
            ("service", "usd", 5, 2),
        ]  # fmt: skip
        assert person["usage"] == {"tokens": 100, "cost_usd": 2.0}
        assert (await rows(service, "/api/people"))[0]["usage"]["tokens"] == 100
        (room,) = await rows(service, "/api/rooms?kind=group")
        assert (room["people"], room["usage"]["tokens"]) == (1, 100)
        totals = (await get(service, "/api/usage?by=channel&by=person&by=room"))["totals"]
        assert [(one["channel"], one["person_name"], one["room_name"]) for one in totals] == [
            ("terminal", "Ann", "Ops")
        ]
        table = (await service.client.get("/api/usage?by=person&format=csv")).text.splitlines()
        assert table[0].endswith(",cost_usd,person_name")
        assert table[1].endswith(",2.0,Ann")


async def test_a_table_of_usage_has_no_formulas(running: Running) -> None:
    async with running("") as service:
        await received(service, message(1, "/status", name="=HYPERLINK()"))
        await eventually(lambda: rows(service, "/api/people"))
        store = service.services.agent_services.usage.store
        assert store is not None
        starts = ["=", "+", "-", "@", "\t", "\r", "＝"]
        for start in ("", *starts):
            row = UsageRow(
                day="2026-01-01", run_id="r", kind="run", model="m", agent=f"{start}1", input_tokens=1,
                output_tokens=1, cost_nano_usd=1, calls=1, person="terminal:local:u1",
            )  # fmt: skip
            await store.add([FinishedUsage(row=row)])
        path = "/api/usage?by=agent&by=person&since=2026-01-01&until=2026-01-01&format=csv"
        response = await service.client.get(path)
        found = list(csv.DictReader(io.StringIO(response.text, newline="")))
        assert {one["agent"] for one in found} == {"1", *(f"'{start}1" for start in starts)}
        assert {one["person_name"] for one in found} == {"'=HYPERLINK()"}


async def test_conversations_and_people_of_a_room_are_links(running: Running) -> None:
    async with running("") as service:
        await received(
            service,
            message(1, "all", chat="g1", is_private=False, chat_title="Ops", name=HOSTILE),
            message(2, "me too", chat="g1", is_private=False, user="u2", name="Bo"),
        )

        async def room() -> Any:  # noqa: ANN401 - JSON
            response = await service.client.get("/api/rooms/terminal/g1")
            return response.json() if response.status_code == 200 else {"people": []}

        found = await eventually(room, lambda found: len(found["people"]) == 2)
        assert [one["user_name"] for one in found["people"]] == ["Bo", HOSTILE]
        found = await eventually(room, lambda found: len(found["conversations"]) == 1)
        (conversation,) = found["conversations"]
        assert (conversation["chat"], len(conversation["thread_id"])) == ("g1", 36)
        person = await eventually(
            lambda: get(service, "/api/people/terminal/u2"),
            lambda found: bool(found["conversations"]),
        )
        assert [one["thread_id"] for one in person["conversations"]] == [conversation["thread_id"]]
        assert list(person["choices"]) == ["language"]  # There is no private chat.
        refused = await service.client.patch("/api/people/terminal/u2", json={"model": None})
        assert refused.status_code == 409


async def test_an_approval_is_shown_revoked_and_restored(running: Running) -> None:
    async with running(
        "channels: {terminal: {dm_policy: pairing, allowed_users: [boss]}}"
    ) as service:
        bus = service.services.bus
        assert bus is not None
        assert await bus.intake.receive(message(1, "let me in")) is Disposition.PAIRING
        (asked,) = await bus.pairings.list_all()
        await bus.approve(asked.code)
        await received(service, message(2, "/status"), message(3, "/status", user="boss", chat="b"))
        await eventually(
            lambda: rows(service, "/api/people"), lambda found: len(found) == len(("u1", "boss"))
        )

        async def access(user: str) -> dict[str, Any]:
            return dict((await get(service, f"/api/people/terminal/{user}"))["access"])

        assert (await access("boss"))["means"] == "listed"
        found = await access("u1")
        assert (found["means"], found["code"], bool(found["approved_at"])) == (
            "approved",
            asked.code,
            True,
        )
        path = f"/api/channels/pairings/terminal/{found['pairing_id']}"
        assert (await service.client.delete(path)).status_code == 204
        found = await access("u1")
        assert (found["disposition"], found["means"], found["approved_at"]) == ("pairing", "", None)
        restored = await service.client.post(f"/api/channels/pairings/{asked.code}/approve")
        assert restored.status_code == 200, restored.text
        assert (await access("u1"))["means"] == "approved"
