"""GET /api/conversations/{thread_id}: what happened in a conversation and why, on both engines."""

import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from bus.messages import InboundMessage, ReplyTarget, Sender
from bus.platform import Disposition
from store.conversations import ConversationKey
from tests.eventually import eventually
from tests.fakes.model import FakeModelServer, ModelReply, ToolCall
from tests.gateway.composed import ComposedService, composed
from tests.journeys.service import with_model

ANN = Sender(user_id="u1", name="Ann <b>")
SECRET = "sk-abcdefghijklmnop1234"


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest) -> str:
    """Return the address of a PostgreSQL database; "" = SQLite."""
    return "" if request.param == "sqlite" else str(request.getfixturevalue("url"))


@asynccontextmanager
async def conversing(
    folder: Path, database_url: str
) -> AsyncIterator[tuple[ComposedService, FakeModelServer]]:
    """Run the service with a model server, on an engine."""
    async with FakeModelServer() as model:
        config = {**with_model(model.base_url), "title": {"enabled": False}}
        config["models"][0]["price"] = {"input": 1.0, "output": 10.0}
        if database_url:
            config["database"] = {"url": database_url}
        async with composed(folder, json.dumps(config)) as service:
            yield service, model


def message(number: int, text: str, sender: Sender = ANN) -> InboundMessage:
    return InboundMessage(
        event_id=f"e{number}",
        message_id=f"i{number}",
        key=ConversationKey(channel="terminal", workspace="local", chat="c1"),
        reply_target=ReplyTarget(chat="c1", response_url="https://hooks.example.com/x"),
        sender=sender,
        text=text,
        is_private=True,
        is_addressed=True,
    )


async def receive(
    service: ComposedService, one: InboundMessage, expected: Disposition = Disposition.ACCEPTED
) -> None:
    bus = service.services.bus
    assert bus is not None
    assert await bus.intake.receive(one) is expected


async def ended(service: ComposedService, count: int, state: str = "") -> str:
    """Wait until messages are finished. Return the thread of the newest one."""

    async def rows() -> list[dict[str, Any]]:
        found = (await service.client.get("/api/messages")).json()["rows"]
        return [one for one in found if one["state"] not in ("queued", "running")]

    found = await eventually(rows, lambda found: len(found) == count)
    assert state in ("", found[0]["state"])
    return str(found[0]["thread_id"])


async def said(service: ComposedService, count: int) -> str:
    """Send messages, each after the answer to the previous one. Return their thread."""
    thread = ""
    for number in range(count):
        await receive(service, message(number, f"number {number}"))
        thread = await ended(service, number + 1, "answered")
    return thread


async def timeline(service: ComposedService, thread: str, **query: str | int) -> dict[str, Any]:
    response = await service.client.get(f"/api/conversations/{thread}/timeline", params=query)
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


async def test_a_message_is_shown_with_everything_that_came_of_it(
    tmp_path: Path, database_url: str
) -> None:
    async with conversing(tmp_path, database_url) as (service, model):
        model.reply(
            ModelReply(calls=(ToolCall("ls", {"path": "/mnt/user-data", "api_key": "hush"}),)),
            f"There is **nothing**, and the key is {SECRET}.",
        )
        await receive(service, message(1, f"what is there? {SECRET}"))
        thread = await ended(service, 1)
        found = await eventually(
            lambda: timeline(service, thread),
            lambda found: bool(found["rows"][0]["deliveries"][0]["failed_attempts"]),
        )
        assert re.search(f"{SECRET}|hush|hooks.example.com", json.dumps(found)) is None
        assert (found["conversation"]["place"], found["is_current"]) == ("Ann <b>", True)
        assert found["memory_scope"] == "person:terminal:local:u1"
        [row] = found["rows"]
        assert (row["kind"], row["state"], row["admitted"], row["starts"]) == (
            "chat", "answered", "private", 1,
        )  # fmt: skip
        assert row["text"] == "what is there? •••"
        assert row["event"]["message_id"] == "i1"
        assert row["queue_s"] >= 0
        assert (row["run"]["status"], row["run"]["error"]) == ("success", "")
        asked, result, answer = row["messages"]
        assert asked["tool_calls"][0]["name"] == "ls"
        assert (result["type"], result["tool_call_id"]) == ("tool", asked["tool_calls"][0]["id"])
        assert answer["content"].startswith("There is **nothing**")
        [used] = [one for one in row["usage"] if one["kind"] == "run"]
        assert (used["calls"], used["model"]) == (2, "fake")
        assert used["input_tokens"] == asked["input_tokens"] + answer["input_tokens"]
        assert used["cost_usd"] > 0 < asked["input_tokens"]
        shown = [one for one in row["deliveries"] if one["is_shown"]]
        assert [one["text"] for one in shown] == ["There is **nothing**, and the key is •••."]
        # No client is connected to this terminal.
        [first] = [one for one in row["deliveries"] if one["failed_attempts"]]
        assert "No terminal" in first["failed_attempts"][0]["error"]
        assert first["first_sent_at"] <= first["failed_attempts"][0]["at"]


async def test_failures_refusals_and_commands_have_their_reasons(
    tmp_path: Path, database_url: str
) -> None:
    async with conversing(tmp_path, database_url) as (service, model):
        await receive(service, message(1, "hello"))
        await ended(service, 1, "answered")
        model.reply(ModelReply(status=400, error_text="the model is sad"))
        await receive(service, message(2, "and now?"))
        thread = await ended(service, 2, "failed")
        robot = Sender(user_id="b1", name="Robo", is_bot=True)
        await receive(service, message(3, "beep", sender=robot), Disposition.FROM_BOT)
        await receive(service, message(4, "/status"))

        async def rows() -> list[dict[str, Any]]:
            return list((await timeline(service, thread))["rows"])

        command, refused, failed, first = await eventually(
            rows,
            lambda found: len(found) == 4 and found[0]["state"] == "command" and bool(found[0]["deliveries"]),
        )  # fmt: skip
        assert (command["kind"], thread in command["deliveries"][0]["text"]) == ("command", True)
        assert (refused["kind"], refused["reason"], refused["user_name"]) == (
            "refused", "from_bot", "Robo",
        )  # fmt: skip
        assert (failed["state"], failed["text"]) == ("failed", "and now?")
        assert failed["reason"] == (
            "The model's server did not accept the request. OpenAIInvalidRequestError: HTTP 400"
        )
        assert (first["state"], first["text"]) == ("answered", "hello")


async def test_pages_join_and_exports_have_all_of_it(tmp_path: Path, database_url: str) -> None:
    async with conversing(tmp_path, database_url) as (service, _):
        thread = await said(service, 5)
        seen, before = [], ""
        while True:
            page = await timeline(service, thread, limit=2, before=before)
            seen += [row["text"] for row in page["rows"]]
            if page["next"] is None:
                break
            before = page["next"]
        assert seen == [f"number {number}" for number in (4, 3, 2, 1, 0)]
        path = f"/api/conversations/{thread}"
        whole = await service.client.get(f"{path}/export?format=json")
        assert [row["text"] for row in whole.json()["rows"]] == seen
        assert whole.headers["content-disposition"].startswith("attachment")
        text = (await service.client.get(f"{path}/export")).text
        assert "number 4" in text
        assert "You said: number 0" in text
        for bad in (
            "x",
            "1.2.3",
            "1.2.3.-2",
            f"-{10**18}.1.1.1",
            f"1.-{10**30}.1.1",
            "1.1.1.1" * 2,
        ):
            refused = await service.client.get(f"{path}/timeline", params={"before": bad})
            assert refused.status_code == 400, bad
        for end in ("0.0.0.-1", "1.1.1.0", ".".join(["9" * 19] * 4)):
            shown = await service.client.get(f"{path}/timeline", params={"before": end})
            assert shown.status_code == 200, end
        assert (await service.client.get(f"{path}/timeline?before=1.2.3.99999")).status_code == 200
        unknown = "/api/conversations/00000000-0000-4000-8000-000000000000/timeline"
        assert (await service.client.get(unknown)).status_code == 404
        assert (await service.client.get("/api/conversations/%25zz/timeline")).status_code == 422
        assert (await service.stranger.get(f"{path}/timeline")).status_code == 401


async def test_numbers_that_json_does_not_have_stay_out_of_timelines_and_exports(
    tmp_path: Path, database_url: str
) -> None:
    odd = f'{{"path": NaN, "a": [1e999, -Infinity], "b": 1{"0" * 30}, "c": "\\ud800", "NaN": {{}}}}'
    async with conversing(tmp_path, database_url) as (service, model):
        model.reply(ModelReply(calls=(ToolCall("ls", odd),)), "It is NaN or Infinity.")
        await receive(service, message(1, "NaN, Infinity, -Infinity"))
        thread = await ended(service, 1)
        path = f"/api/conversations/{thread}"
        for address in (f"{path}/timeline", f"{path}/export?format=json"):
            shown = await service.client.get(address)
            assert shown.status_code == 200, shown.text
            [row] = orjson.loads(shown.content)["rows"]
            assert row["text"] == "NaN, Infinity, -Infinity"
            [call] = row["messages"][0]["tool_calls"]
            assert call["args"]["c"] == "\ufffd"
            assert row["messages"][-1]["content"] == "It is NaN or Infinity."
        text = (await service.client.get(f"{path}/export")).text
        assert "It is NaN or Infinity." in text
        state = await service.client.get(f"/api/threads/{thread}/state")
        assert orjson.loads(state.content)["values"]["messages"]


async def test_what_only_the_thread_has_is_shown_too(tmp_path: Path, database_url: str) -> None:
    async with conversing(tmp_path, database_url) as (service, _):
        thread = await said(service, 3)
        await service.services.database.execute(
            "DELETE FROM message_words WHERE inbox_id IN (SELECT id FROM inbox WHERE seq < 3)", {}
        )
        await service.services.database.execute("DELETE FROM inbox WHERE seq < 3", {})
        rows = (await timeline(service, thread))["rows"]
        assert [(row["kind"], row["text"]) for row in rows] == [
            ("chat", "number 2"), ("thread", "number 1"), ("thread", "number 0"),
        ]  # fmt: skip
        assert rows[1]["messages"][0]["content"] == "You said: number 1"
        page = await timeline(service, thread, limit=2)
        page = await timeline(service, thread, limit=2, before=page["next"])
        assert [row["text"] for row in page["rows"]] == ["number 0"]
        assert page["next"] is None


async def test_the_thread_before_new_keeps_its_own_messages(
    tmp_path: Path, database_url: str
) -> None:
    async with conversing(tmp_path, database_url) as (service, _):
        await receive(service, message(1, "before"))
        former = await ended(service, 1, "answered")
        await receive(service, message(2, "/new"))
        await ended(service, 2, "command")
        await receive(service, message(3, "after"))
        thread = await ended(service, 3, "answered")
        assert former != thread
        earlier, later = await timeline(service, former), await timeline(service, thread)
        assert [row["text"] for row in earlier["rows"]] == ["before"]
        assert [row["text"] for row in later["rows"]] == ["after"]
        assert (earlier["is_current"], later["is_current"]) == (False, True)


async def test_lists_name_the_places(tmp_path: Path, database_url: str) -> None:
    async with conversing(tmp_path, database_url) as (service, _):
        await receive(service, message(1, "hello"))
        await ended(service, 1, "answered")
        for path in ("channels/conversations", "channels/outbox"):
            rows = (await service.client.get(f"/api/{path}")).json()["rows"]
            assert {row["place"] for row in rows} == {"Ann <b>"}, path
