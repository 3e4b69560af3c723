"""The requests of existing front ends: agent-chat-ui, and the DeerFlow runners of LangBot and AstrBot."""

import json
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx

from tests.fakes.model import ModelReply, ToolCall
from tests.gateway.chat_ui import PAGE, TOKEN, ChatUiServer, opened

Event = tuple[str, Any]


async def events_of(response: httpx.Response) -> AsyncIterator[Event]:
    """Read a stream as these front ends do: as blocks between blank lines, with any line ending."""
    text = ""
    async for piece in response.aiter_text():
        text += piece.replace("\r\n", "\n")
        *blocks, text = text.split("\n\n")
        for block in blocks:
            lines = block.splitlines()  # also splits at Unicode line separators
            names = [line[6:].strip() for line in lines if line.startswith("event:")]
            data = [line[5:].strip() for line in lines if line.startswith("data:")]
            if data:
                yield (names or ["message"])[0], json.loads("\n".join(data))


class Page:
    """agent-chat-ui in a browser. Every request that is not simple is preceded by a CORS preflight."""

    def __init__(self, front: ChatUiServer) -> None:
        self._client = httpx.AsyncClient(base_url=f"{front.url}/api", timeout=20)
        self._headers = {"Origin": PAGE, "X-Api-Key": TOKEN, "User-Agent": "Mozilla/5.0"}

    async def close(self) -> None:
        await self._client.aclose()

    async def ask(self, method: str, path: str, body: str = "") -> list[Any]:
        """Send the bytes. Return the JSON of the answer, or the events of the stream."""
        await self._ask_first(method, path)
        headers = {**self._headers, **({"Content-Type": "application/json"} if body else {})}
        async with self._client.stream(method, path, content=body or None, headers=headers) as got:
            assert got.status_code == 200, await got.aread()
            assert got.headers["access-control-allow-origin"] == PAGE
            if got.headers["content-type"].startswith("text/event-stream"):
                assert "content-location" in got.headers["access-control-expose-headers"].lower()
                return [event async for event in events_of(got)]
            return [json.loads(await got.aread())]

    async def _ask_first(self, method: str, path: str) -> None:
        headers = {
            "Origin": PAGE,
            "Access-Control-Request-Method": method,
            "Access-Control-Request-Headers": "content-type,x-api-key",
            "Access-Control-Request-Private-Network": "true",
        }
        told = await self._client.options(path, headers=headers)
        assert told.status_code == 200
        assert told.headers["access-control-allow-origin"] == PAGE
        assert told.headers["access-control-allow-private-network"] == "true"
        assert {"content-type", "x-api-key"} <= {
            one.strip() for one in told.headers["access-control-allow-headers"].lower().split(",")
        }
        assert method in told.headers["access-control-allow-methods"]


CHAT = (
    '{"input":{"messages":[{"id":"SAID","type":"human","content":[{"type":"text","text":"hello"}]}]},'
    '"stream_mode":["values","messages-tuple","custom"],"stream_subgraphs":true,"stream_resumable":true,'
    '"assistant_id":"lead_agent","on_disconnect":"continue"}'
)
SEARCH = '{"metadata":{"graph_id":"lead_agent"},"limit":100}'


async def test_agent_chat_ui(tmp_path: Path) -> None:
    async with opened(tmp_path) as front:
        page = Page(front)
        [info] = await page.ask("GET", "/info")
        assert info["version"]
        assert await page.ask("POST", "/threads/search", SEARCH) == [[]]
        [thread] = await page.ask("POST", "/threads", '{"metadata":{}}')
        thread_id = str(UUID(thread["thread_id"]))
        said = str(uuid4())
        body = CHAT.replace("SAID", said)
        events = await page.ask("POST", f"/threads/{thread_id}/runs/stream", body)
        assert events[0][0] == "metadata"
        spoken = [data[0] for name, data in events if name == "messages"]
        assert "".join(one["content"] for one in spoken if one["type"] == "AIMessageChunk") == (
            "You said: hello"
        )
        values = [data for name, data in events if name == "values"][-1]
        assert [one["type"] for one in values["messages"]] == ["human", "ai"]
        assert values["messages"][0]["id"] == said
        assert values["messages"][1]["id"] == spoken[-1]["id"]
        [history] = await page.ask("POST", f"/threads/{thread_id}/history", '{"limit":10}')
        assert history[0]["values"]["messages"] == values["messages"]
        assert history[0]["next"] == []
        # The list next to the chat: a search by graph finds the thread, with the messages that give it its name.
        [[listed]] = await page.ask("POST", "/threads/search", SEARCH)
        assert listed["thread_id"] == thread_id
        assert listed["values"]["messages"][0]["content"][0]["text"] == "hello"
        await _edit(page, thread_id, body, history)
        await page.close()


async def _edit(page: Page, thread_id: str, body: str, history: list[Any]) -> None:
    """An edited message continues from the checkpoint before it."""
    parent = next(
        state["parent_checkpoint"] for state in reversed(history) if state["values"].get("messages")
    )
    edited = json.loads(body)
    edited["input"]["messages"][0] |= {"id": str(uuid4()), "content": "goodbye"}
    edited["checkpoint"] = {key: parent[key] for key in ("checkpoint_id", "checkpoint_ns")}
    events = await page.ask("POST", f"/threads/{thread_id}/runs/stream", json.dumps(edited))
    values = [data for name, data in events if name == "values"][-1]
    assert [one["content"] for one in values["messages"]] == ["goodbye", "You said: goodbye"]


async def test_the_stop_button_of_agent_chat_ui_only_hangs_up(tmp_path: Path) -> None:
    """The page only aborts its request. With `continue`, the run continues and can be joined."""
    async with opened(tmp_path) as front, httpx.AsyncClient(base_url=f"{front.url}/api") as client:
        client.headers["X-Api-Key"] = TOKEN
        thread = (await client.post("/threads", json={})).json()["thread_id"]
        body = {
            "assistant_id": "lead_agent",
            "input": {"messages": [{"type": "human", "content": "slowly please"}]},
            "stream_mode": ["values", "messages-tuple", "custom"],
            "on_disconnect": "continue",
            "stream_resumable": True,
        }
        place = f"/threads/{thread}/runs"
        async with client.stream("POST", f"{place}/stream", json=body) as response:
            run = response.headers["content-location"].rpartition("/")[2]
            async for name, _ in events_of(response):
                if name == "messages":
                    break
        ended = (await client.get(f"{place}/{run}/join")).json()
        assert ended["messages"][-1]["content"].endswith("word11")


def runner_body(thread_id: str, text: str, **more: str) -> dict[str, Any]:
    """Return the body that both runners send. It has the options twice, the second time for older servers."""
    options = {
        "thread_id": thread_id,
        "thinking_enabled": False,
        "is_plan_mode": False,
        "subagent_enabled": True,
        "max_concurrent_subagents": 3,
        **more,
    }
    asked = {"role": "user", "content": text}
    return {
        "assistant_id": "lead_agent",
        "input": {"messages": [{"role": "system", "content": "Be brief."}, asked]},
        "stream_mode": ["values", "messages-tuple", "custom"],
        "context": dict(options),
        "config": {"recursion_limit": 1000, "configurable": options},
    }


def is_ai(message: dict[str, Any]) -> bool:
    return str(message.get("type")).lower() in {"ai", "aimessagechunk"}


def deltas(events: Iterable[Event]) -> str:
    """Return the text that the runners stream: the deltas before the first `values` event with the model's text."""
    said = ""
    for name, data in events:
        if name == "values" and any(is_ai(m) and m["content"] for m in data["messages"]):
            break
        if name == "messages" and is_ai(data[0]):
            said += data[0]["content"]
    return said


def final(events: list[Event]) -> str:
    """Return the runners' answer: a question, or else the model's last text in `values`."""
    messages = [data["messages"] for name, data in events if name == "values"][-1]
    for message in reversed(messages):
        if message["type"] == "tool" and message["name"] == "ask_clarification":
            return str(message["content"])
        if is_ai(message) and message["content"]:
            return str(message["content"])
    return ""


@asynccontextmanager
async def running(tmp_path: Path) -> AsyncIterator[tuple[ChatUiServer, httpx.AsyncClient]]:
    headers = {"Authorization": f"Bearer {TOKEN}", "Accept": "text/event-stream"}
    async with (
        opened(tmp_path) as front,
        httpx.AsyncClient(base_url=front.url, headers=headers, timeout=20) as client,
    ):
        yield front, client


async def run(client: httpx.AsyncClient, body: dict[str, Any]) -> list[Event]:
    """Run as the runners do, until `end`. Every other event must be one that they know."""
    place = f"/api/langgraph/threads/{body['context']['thread_id']}/runs/stream"
    found = []
    async with client.stream("POST", place, json=body) as response:
        assert response.status_code == 200, await response.aread()
        async for event in events_of(response):
            found.append(event)
            if event[0] == "end":
                return found
    raise AssertionError("the stream ended without `end`")


async def made(client: httpx.AsyncClient) -> str:
    answer = await client.post("/api/langgraph/threads", json={"metadata": {}})
    assert answer.status_code in {200, 201}
    return str(answer.json()["thread_id"])


async def test_the_runners_of_langbot_and_astrbot(tmp_path: Path) -> None:
    async with running(tmp_path) as (front, client):
        thread = await made(client)
        events = await run(client, runner_body(thread, "hello"))
        assert {name for name, _ in events} <= {"metadata", "values", "messages", "custom", "end"}
        assert deltas(events) == final(events) == "You said: hello"
        ids = [m.get("id") for name, data in events if name == "values" for m in data["messages"]]
        assert all(isinstance(one, str) and one for one in ids), (
            "clients recognize new messages by their ids"
        )
        # Each turn sends the system message again. The model gets both, and the text.
        events = await run(client, runner_body(thread, "again", model_name="fake"))
        assert final(events) == "You said: again"
        shown = front.model.requests[-1].messages
        assert [m["content"] for m in shown if m["role"] == "user"] == ["hello", "again"]
        events = await run(client, runner_body(thread, "list the files"))
        assert final(events).startswith("The tool said: ")
        events = await run(client, runner_body(thread, "one\u2028two\u2029three\u0085four"))
        assert final(events) == "You said: one\u2028two\u2029three\u0085four"
        events = await run(client, runner_body(thread, "which colour?"))
        assert "Red or blue?" in final(events)
        gone = await client.delete(f"/api/threads/{thread}")
        assert gone.status_code in {200, 204}


async def test_a_failing_task_and_a_picture_reach_the_runners_and_the_model(tmp_path: Path) -> None:
    async with running(tmp_path) as (front, client):
        thread = await made(client)
        task = {"description": "look", "prompt": "look around", "subagent_type": "general-purpose"}
        front.model.reply(
            ModelReply(calls=(ToolCall("task", task),)),
            ModelReply(status=400),
            ModelReply(text="It went wrong."),
        )
        events = await run(client, runner_body(thread, "delegate"))
        failed = [
            data for name, data in events if name == "custom" and data["type"] == "task_failed"
        ]
        assert len(failed) == 1
        assert failed[0]["task_id"]
        assert failed[0]["error"]
        assert final(events) == "It went wrong."
        body = runner_body(thread, "")
        picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
        body["input"]["messages"][-1]["content"] = [
            {"type": "text", "text": "what is it?"},
            picture,
        ]
        assert final(await run(client, body)) == "You said: what is it?"


async def test_operators_see_the_problem(tmp_path: Path) -> None:
    async with running(tmp_path) as (_, client):
        thread = await made(client)
        contradiction = runner_body(thread, "hello")
        contradiction["context"]["thinking_enabled"] = True
        place = f"/api/langgraph/threads/{thread}/runs/stream"
        wrong = await client.post(place, json=contradiction)
        assert wrong.status_code == 400
        assert "thinking_enabled" in wrong.json()["detail"]
        refused = await client.post(
            "/api/langgraph/threads", json={}, headers={"Authorization": "Bearer wrong"}
        )
        assert refused.status_code == 401
        unknown = {**runner_body(thread, "hello"), "assistant_id": "nobody"}
        wrong = await client.post(place, json=unknown)
        assert wrong.status_code == 422
        assert "lead_agent" in wrong.json()["detail"]
