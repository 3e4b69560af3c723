"""LangChain's newer streaming protocol, as the stock SDK's thread streams use it."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import httpx
import orjson

from gateway.runtime.content_blocks import ContentBlockEncoder
from gateway.runtime.events import RunEvent
from gateway.runtime.protocol import ProtocolEncoder
from gateway.runtime.serialization import dumps
from tests.gateway.langgraph_server import ApiServer, serving
from tests.gateway.test_langgraph_runs import HELLO

EVERYTHING = [
    "values",
    "messages",
    "lifecycle",
    "updates",
    "tools",
    "custom",
    "input",
    "tasks",
    "checkpoints",
]


async def command(api: ApiServer, thread: str, method: str, **params: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    body = {"id": 1, "method": method, "params": params}
    response = await api.http.post(f"/threads/{thread}/commands", json=body)
    assert response.status_code == 200, response.text
    return dict(response.json())


async def heard(api: ApiServer, thread: str, until: str, **body: Any) -> list[dict[str, Any]]:  # noqa: ANN401 - JSON
    """Return the events of a connection up to the first whose data has `"event":"<until>"` at the root."""
    found: list[dict[str, Any]] = []
    with anyio.fail_after(20):
        async for event in lines(api, thread, {"channels": EVERYTHING, **body}):
            found.append(event)
            data = event["params"]["data"]
            if event["method"] == "lifecycle" and data["event"] == until:
                break
    return found


async def lines(api: ApiServer, thread: str, body: dict[str, Any]) -> AsyncIterator[dict[str, Any]]:
    async with api.http.stream("POST", f"/threads/{thread}/stream/events", json=body) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        async for line in response.aiter_lines():
            if line.startswith("data: "):
                yield orjson.loads(line[6:])


async def test_a_run_is_streamed_in_chunks(tmp_path: Path) -> None:
    """Order and shapes match the recorded exchange with LangGraph's server (151, 152)."""
    async with serving(tmp_path) as api:
        thread = str(uuid4())
        started = await command(api, thread, "run.start", assistant_id="agent", input=HELLO)
        assert started["type"] == "success"
        events = await heard(api, thread, "completed")
        assert [event["seq"] for event in events] == list(range(1, len(events) + 1))
        assert {event["type"] for event in events} == {"event"}
        assert len({event["event_id"] for event in events}) == len(events)
        assert events[0]["params"]["data"] == {"event": "running", "graph_name": "agent"}
        pieces = [event["params"]["data"] for event in events if event["method"] == "messages"]
        assert [piece["event"] for piece in pieces] == [
            "message-start",
            "content-block-start",
            *["content-block-delta"] * 3,
            "content-block-finish",
            "message-finish",
        ]
        assert pieces[0]["role"] == "ai"
        assert pieces[1] == {
            "event": "content-block-start",
            "index": 0,
            "content": {"type": "text", "text": ""},
        }
        assert pieces[2]["delta"] == {"type": "text-delta", "text": "tok0 "}
        assert pieces[-2]["content"] == {"type": "text", "text": "tok0 tok1 tok2 "}
        values = [event["params"]["data"] for event in events if event["method"] == "values"]
        assert values[-1]["messages"][-1]["content"] == "tok0 tok1 tok2 "
        assert values[-1]["messages"][-1]["id"] == pieces[0]["id"]
        again = await heard(api, thread, "completed", channels=["messages", "lifecycle"], since=3)
        assert [event["event_id"] for event in again] == [
            event["event_id"]
            for event in events
            if event["method"] in {"messages", "lifecycle"} and event["seq"] > 3
        ]


async def test_a_graph_asks_and_is_answered(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        thread = str(uuid4())
        await command(api, thread, "run.start", assistant_id="hitl", input={"n": 1})
        events = await heard(api, thread, "interrupted")
        [asked] = [event for event in events if event["method"] == "input.requested"]
        assert asked["params"]["data"]["payload"] == {"question": "approve?", "n": 2}
        assert not any("__interrupt__" in str(event["params"]["data"]) for event in events)
        wrong = await command(api, thread, "input.respond", interrupt_id="x", response="yes")
        assert wrong["error"] == "no_such_interrupt"
        done = await command(
            api,
            thread,
            "input.respond",
            namespace=[],
            interrupt_id=asked["params"]["data"]["interrupt_id"],
            response="yes",
        )
        assert done["type"] == "success"
        rest = await heard(api, thread, "completed", since=events[-1]["seq"])
        last = [event["params"]["data"] for event in rest if event["method"] == "values"][-1]
        assert last == {"messages": [], "answer": "yes", "n": 102}


async def test_run_start_with_input_answers_pending_interrupts(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        thread = str(uuid4())
        await command(api, thread, "run.start", assistant_id="hitl", input={"n": 1})
        events = await heard(api, thread, "interrupted")
        done = await command(api, thread, "run.start", assistant_id="hitl", input="yes")
        assert done["type"] == "success"
        rest = await heard(api, thread, "completed", since=events[-1]["seq"])
        last = [event["params"]["data"] for event in rest if event["method"] == "values"][-1]
        assert last == {"messages": [], "answer": "yes", "n": 102}
        await command(api, thread, "run.start", assistant_id="hitl", input={"n": 5})
        again = await heard(api, thread, "interrupted", since=rest[-1]["seq"])
        [asked] = [event for event in again if event["method"] == "input.requested"]
        assert asked["params"]["data"]["payload"] == {"question": "approve?", "n": 6}


async def test_subgraphs_custom_events_and_failures(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        thread = str(uuid4())
        await command(api, thread, "run.start", assistant_id="parent", input=HELLO)
        events = await heard(api, thread, "completed")
        inner = [event for event in events if event["params"]["namespace"]]
        assert {event["method"] for event in inner} >= {"messages", "values", "tasks"}
        assert all(event["params"]["namespace"][0].startswith("child:") for event in inner)
        shallow = await heard(api, thread, "completed", depth=0)
        assert not any(event["params"]["namespace"] for event in shallow)
        other = str(uuid4())
        await command(api, other, "run.start", assistant_id="custom", input={})
        told = await heard(api, other, "completed", channels=["custom", "lifecycle"])
        assert [event["params"]["data"] for event in told if event["method"] == "custom"] == [
            {"phase": "start"},
            {"phase": "end"},
        ]
        failing = str(uuid4())
        await command(api, failing, "run.start", assistant_id="cut", input=HELLO)
        events = await heard(api, failing, "failed")
        assert events[-1]["params"]["data"]["error"] == "model exploded"
        assert [e["params"]["data"] for e in events if e["method"] == "messages"][-1] == {
            "event": "error",
            "message": "model exploded",
        }


async def test_errors_of_commands_and_streams_are_reported(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        thread = str(uuid4())
        unknown = await command(api, thread, "nope")
        assert unknown == {
            "type": "error",
            "id": 1,
            "error": "unknown_command",
            "message": "Unknown protocol command: nope",
        }
        for params in ({"assistant_id": "nobody"}, {}, {"assistant_id": "agent", "config": 5}):
            failed = await command(api, thread, "run.start", **params)
            assert (failed["type"], failed["error"]) == ("error", "invalid_argument")
            assert failed["message"]
        lost = await command(api, thread, "input.respond", interrupt_id="x", response=1)
        assert lost["type"] == "error"
        for path, bodies in (
            ("commands", [b"{", b"[]", b"{}", b'{"id":"x","method":"run.start"}']),
            (
                "stream/events",
                [
                    b"{}",
                    b'{"channels":["nope"]}',
                    b'{"channels":["values"],"since":-1}',
                    b'{"channels":["values"],"namespaces":["x"]}',
                    b'{"channels":["values"],"depth":"deep"}',
                ],
            ),
        ):
            for body in bodies:
                refused = await api.http.post(f"/threads/{thread}/{path}", content=body)
                assert refused.status_code == 400, body
                assert refused.json()["detail"]


async def test_the_sdks_thread_streams(tmp_path: Path) -> None:
    async with serving(tmp_path, way="tcp") as api:
        with anyio.fail_after(20):
            async with api.sdk.threads.stream(assistant_id="agent") as stream:
                await stream.run.start(input=HELLO)
                [message] = [message async for message in stream.messages]
                said = [delta async for delta in message.text]
                assert said == ["tok0 ", "tok1 ", "tok2 "]
                output = await stream.output
            assert output["messages"][-1]["content"] == "tok0 tok1 tok2 "
            async with api.sdk.threads.stream(assistant_id="parent") as stream:
                await stream.run.start(input=HELLO)
                assert [inner.graph_name async for inner in stream.subgraphs] == ["child"]
            async with api.sdk.threads.stream(assistant_id="hitl") as stream:
                await stream.run.start(input={"n": 1})
                async for _snapshot in stream.values:
                    pass
                assert stream.interrupted
                assert stream.interrupts[0]["value"] == {"question": "approve?", "n": 2}
                await stream.run.respond("yes")
                assert (await stream.output)["answer"] == "yes"


def pieces(*chunks: dict[str, Any]) -> list[dict[str, Any]]:
    told = ContentBlockEncoder()
    return [piece for chunk in chunks for piece in told.encode({"id": "m", **chunk})]


def test_reasoning_text_and_tool_calls_are_blocks_of_their_own() -> None:
    chunk = {"type": "AIMessageChunk", "content": ""}
    told = pieces(
        {**chunk, "additional_kwargs": {"reasoning_content": "hm"}},
        {**chunk, "content": [{"type": "text", "text": "Let me"}]},
        {**chunk, "tool_call_chunks": [{"name": "ls", "args": "{", "id": "c1", "index": 0}]},
        {**chunk, "tool_call_chunks": [{"name": None, "args": "}", "id": None, "index": 0}]},
        {**chunk, "chunk_position": "last", "usage_metadata": {"total_tokens": 3}},
    )
    blocks = [piece["content"] for piece in told if piece["event"] == "content-block-finish"]
    assert blocks == [
        {"type": "reasoning", "reasoning": "hm"},
        {"type": "text", "text": "Let me"},
        {"type": "tool_call", "id": "c1", "name": "ls", "args": {}},
    ]
    assert [p["index"] for p in told if p["event"] == "content-block-start"] == [0, 1, 2]
    assert told[-1] == {"event": "message-finish", "usage": {"total_tokens": 3}}


def test_whole_messages_are_said_at_once() -> None:
    told = pieces({"type": "tool", "content": "done", "tool_call_id": "c1"})
    assert told[0] == {"event": "message-start", "role": "tool", "id": "m", "tool_call_id": "c1"}
    assert [piece["event"] for piece in told][1:] == [
        "content-block-start",
        "content-block-delta",
        "content-block-finish",
        "message-finish",
    ]


def test_the_calls_of_a_model_that_does_not_stream_are_blocks_too() -> None:
    call = {"name": "ls", "args": {"path": "/"}, "id": "c1", "type": "tool_call"}
    broken = {"name": "ls", "args": "{oh", "id": "c2", "error": None}
    picture = {"type": "image", "base64": "AA==", "mime_type": "image/png"}
    content = [{"type": "text", "text": "Let me look."}, {"type": "tool_use", "id": "c1"}, picture]
    whole = {
        "type": "ai",
        "content": content,
        "tool_calls": [call, {**call, "id": "c3"}],
        "invalid_tool_calls": [broken],
    }
    told = pieces(whole)
    assert [p["content"] for p in told if p["event"] == "content-block-finish"] == [
        {"type": "text", "text": "Let me look."},
        picture,
        call,
        {**call, "id": "c3"},
        {**broken, "type": "invalid_tool_call"},
    ]
    starts = [piece for piece in told if piece["event"] == "content-block-start"]
    assert [piece["index"] for piece in starts] == [0, 1, 2, 3, 4]
    assert starts[1]["content"] == {"type": "image", "mime_type": "image/png"}
    assert starts[2]["content"] == {**call, "args": {}}
    run = ProtocolEncoder("agent")
    event = RunEvent(1, "messages", dumps([{**whole, "id": "m"}, {}]))
    tools = [data for _, (method, data) in run.encode(event) if method == "tools"]
    assert [one["tool_call_id"] for one in tools] == ["c1", "c3"]
    assert tools[0]["input"] == {"path": "/"}


def test_arguments_that_are_no_json_stay_text() -> None:
    call = {"name": "ls", "args": "{oh", "id": "c1", "index": 0}
    last = {"type": "AIMessageChunk", "content": "", "chunk_position": "last"}
    told = pieces({**last, "tool_call_chunks": [call]})
    [block] = [piece["content"] for piece in told if piece["event"] == "content-block-finish"]
    assert (block["type"], block["args"]) == ("invalid_tool_call", "{oh")


def test_tools_get_their_own_events() -> None:
    run = ProtocolEncoder("agent")
    call = {"name": "ls", "args": '{"path": "/"}', "id": "c1", "index": 0}
    chunk = {"type": "AIMessageChunk", "id": "m", "content": "", "chunk_position": "last"}
    answers = [
        {"type": "tool", "id": "t1", "tool_call_id": "c1", "content": "a b", "status": "success"},
        {"type": "tool", "id": "t2", "tool_call_id": "c2", "content": "no", "status": "error"},
    ]
    told = [
        data
        for number, message in enumerate([{**chunk, "tool_call_chunks": [call]}, *answers])
        for _, (method, data) in run.encode(RunEvent(number, "messages", dumps([message, {}])))
        if method == "tools"
    ]
    assert told == [
        {
            "event": "tool-started",
            "tool_call_id": "c1",
            "tool_name": "ls",
            "input": {"path": "/"},
        },
        {"event": "tool-finished", "tool_call_id": "c1", "output": answers[0]},
        {"event": "tool-error", "tool_call_id": "c2", "message": "no"},
    ]


async def test_no_stream_contains_a_line_separator_of_unicode(tmp_path: Path) -> None:
    """A reader that splits lines as Python does would break one event into several."""
    text = "one\u2028two\u2029three\u0085four"
    request = {"assistant_id": "agent", "input": {"messages": [{"role": "user", "content": text}]}}
    async with serving(tmp_path) as api:
        thread = str((await api.sdk.threads.create())["thread_id"])
        run = await api.http.post(f"/threads/{thread}/runs/stream", json=request)
        assert_lines_are_fields(run.text, text)
        path, since = f"/threads/{thread}/stream", {"Last-Event-ID": "-"}
        params = {"stream_modes": "run_modes"}
        async with api.http.stream("GET", path, headers=since, params=params) as response:
            assert_lines_are_fields(await read_until(response, "run_done"), text)
        path, wanted = f"/threads/{thread}/stream/events", {"channels": EVERYTHING}
        async with api.http.stream("POST", path, json=wanted) as response:
            assert_lines_are_fields(await read_until(response, '"completed"'), text)


async def read_until(response: httpx.Response, end: str) -> str:
    read = ""
    with anyio.fail_after(20):
        async for chunk in response.aiter_text():
            read += chunk
            if end in read and read.endswith("\n\n"):
                return read
    raise AssertionError(f"{end} did not come: {read}")


def assert_lines_are_fields(stream: str, text: str) -> None:
    lines = [line for line in stream.splitlines() if line]
    assert all(line.startswith(("event: ", "data: ", "id: ", ":")) for line in lines), lines
    data = [orjson.loads(line[6:]) for line in lines if line.startswith("data: ")]
    assert json.dumps(text) in json.dumps(data)
