"""Odd values in all requests of the LangGraph API are rejected or repaired, and the thread still works afterwards."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gateway.composed import ComposedService, composed

DEEP = 85  # within the limit of nesting, including the levels around it

VALUES: dict[str, str] = {
    "a large integer": "123456789012345678901234567890",
    "64 bits without a sign": "18446744073709551615",
    "a small integer": "-99999999999999999999",
    "not a number": "NaN",
    "infinity": "1e999",
    "half a surrogate pair": '"a\\ud800b"',
    "nul": '"a\\u0000b"',
    "nested objects": json.dumps('{"a":' * DEEP + "1" + "}" * DEEP)[1:-1].replace("\\", ""),
    "nested lists": "[" * DEEP + "1" + "]" * DEEP,
    "too deep": "[" * 300 + "]" * 300,
    "a long text": json.dumps("x" * 100_000),
    "nul in a key": '{"a\\u0000": 1}',
    "an empty key": '{"": 1}',
    "a serialized object": '{"lc": 1, "type": "constructor", "id": ["a"], "kwargs": {}}',
    "nothing": "null",
}
WAIT = "POST /api/threads/{thread}/runs/wait"
RUN = '{{"assistant_id":"lead_agent","if_not_exists":"create",{}}}'
HUMAN = '"input":{"messages":[{"role":"user","content":"hi"}]}'
ANSWERED = """"input":{"messages":[{"role":"user","content":"hi"},
    {"role":"assistant","content":"","tool_calls":[{"name":"ls","id":"c1","args":{"a":VALUE}}]},
    {"role":"tool","tool_call_id":"c1","content":"x"},{"role":"user","content":"go"}]}"""

ENTRIES: dict[str, tuple[str, str]] = {
    "content": (WAIT, RUN.format('"input":{"messages":[{"role":"user","content":VALUE}]}')),
    "a block's text": (
        WAIT,
        RUN.format(
            '"input":{"messages":[{"role":"user","content":[{"type":"text","text":VALUE}]}]}'
        ),
    ),
    "a block": (WAIT, RUN.format('"input":{"messages":[{"role":"user","content":[VALUE]}]}')),
    "a block's type": (
        WAIT,
        RUN.format('"input":{"messages":[{"role":"user","content":[{"type":VALUE}]}]}'),
    ),
    "a block's data": (
        WAIT,
        RUN.format(
            '"input":{"messages":[{"role":"user","content":[{"type":"image","data":VALUE,"url":VALUE}]}]}'
        ),
    ),
    "additional_kwargs": (
        WAIT,
        RUN.format(
            '"input":{"messages":[{"role":"user","content":"hi","additional_kwargs":{"a":VALUE,"files":VALUE}}]}'
        ),
    ),
    "a name and an id": (
        WAIT,
        RUN.format('"input":{"messages":[{"role":"user","content":"hi","name":VALUE,"id":VALUE}]}'),
    ),
    "arguments of a call": (WAIT, RUN.format(ANSWERED)),
    "messages": (WAIT, RUN.format('"input":{"messages":VALUE}')),
    "input": (WAIT, RUN.format('"input":VALUE')),
    "other keys of the state": (
        WAIT,
        RUN.format(f'{HUMAN[:-1]},"title":VALUE,"todos":VALUE,"viewed_images":VALUE,"x":VALUE}}'),
    ),
    "metadata of a run": (WAIT, RUN.format(f'"metadata":{{"a":VALUE}},{HUMAN}')),
    "config": (
        WAIT,
        RUN.format(f'"config":{{"configurable":{{"a":VALUE}},"metadata":{{"b":VALUE}}}},{HUMAN}'),
    ),
    "tags": (WAIT, RUN.format(f'"config":{{"tags":[VALUE]}},{HUMAN}')),
    "context": (WAIT, RUN.format(f'"context":{{"a":VALUE}},{HUMAN}')),
    "resume": (WAIT, '{"assistant_id":"lead_agent","command":{"resume":VALUE}}'),
    "update of messages": (
        WAIT,
        '{"assistant_id":"lead_agent","command":{"update":{"messages":[{"role":"user","content":VALUE}]}}}',
    ),
    "update": (
        WAIT,
        '{"assistant_id":"lead_agent","command":{"update":{"messages":VALUE,"artifacts":VALUE}}}',
    ),
    "update in pairs": (
        WAIT,
        '{"assistant_id":"lead_agent","command":{"update":[["todos",VALUE],["artifacts",VALUE]]}}',
    ),
    "goto": (
        WAIT,
        '{"assistant_id":"lead_agent","command":{"goto":{"node":"model","input":{"messages":VALUE}}}}',
    ),
    "state": (
        "POST /api/threads/{thread}/state",
        '{"values":{"title":VALUE,"messages":[{"role":"user","content":VALUE}]},"as_node":"model"}',
    ),
    "another key of the state": (
        "POST /api/threads/{thread}/state",
        '{"values":{"artifacts":VALUE,"viewed_images":VALUE}}',
    ),
    "metadata of a thread": ("PATCH /api/threads/{thread}", '{"metadata":{"a":VALUE}}'),
    "history": ("POST /api/threads/{thread}/history", '{"metadata":{"a":VALUE}}'),
    "search": ("POST /api/threads/search", '{"metadata":{"a":VALUE},"values":{"b":VALUE}}'),
    "store": (
        "PUT /api/store/items",
        '{"namespace":["a"],"key":"k","value":{"a":VALUE}}',
    ),
    "store key": ("PUT /api/store/items", '{"namespace":[VALUE],"key":VALUE,"value":{"a":1}}'),
    "store search": (
        "POST /api/store/items/search",
        '{"namespace_prefix":["a"],"filter":{"a":VALUE}}',
    ),
    "assistant": (
        "POST /api/assistants",
        '{"graph_id":"lead_agent","metadata":{"a":VALUE},"context":{"b":VALUE},"name":"n"}',
    ),
}


@pytest.fixture(params=["sqlite", "postgres"])
def config(request: pytest.FixtureRequest) -> str:
    """Return the text of a configuration with either engine."""
    if request.param == "sqlite":
        return "{}"
    return f"database: {{url: {request.getfixturevalue('url')}}}"


def _threads() -> Iterator[str]:
    number = 0
    while True:
        number += 1
        yield f"0190f6e2-1111-7000-8000-{number:012d}"


@pytest.mark.timeout(900)
async def test_odd_values_harm_no_thread(tmp_path: Path, config: str) -> None:
    threads = _threads()
    harmed: list[str] = []
    async with composed(tmp_path, config) as service:
        for entry, (where, body) in ENTRIES.items():
            thread = next(threads)
            assert await _answers(service, thread)
            refused = [
                name
                for name, value in VALUES.items()
                if await _send(service, where.format(thread=thread), body, value) is None
            ]
            if refused or not await _answers(service, thread):
                harmed += [f"{entry}: {name}" for name in refused]
                harmed += await _harming(service, entry, threads)
                thread = next(threads)
                await _answers(service, thread)
            if not await _is_listed(service, thread):
                harmed.append(f"{entry}: lists")
    assert harmed == []


async def _harming(service: ComposedService, entry: str, threads: Iterator[str]) -> list[str]:
    """Return the values that break a thread. Each value is sent to its own thread."""
    where, body = ENTRIES[entry]
    found = []
    for name, value in VALUES.items():
        thread = next(threads)
        await _answers(service, thread)
        said = await _send(service, where.format(thread=thread), body, value)
        if not await _answers(service, thread):
            found.append(f"{entry}: {name}: {said}")
    return found or [f"{entry}: all values together"]


async def _send(service: ComposedService, where: str, body: str, value: str) -> str | None:
    """Send a value. Return the answer, or None if the server should not give such an answer."""
    method, _, path = where.partition(" ")
    content = body.replace("VALUE", value).encode()
    headers = {"Content-Type": "application/json"}
    answer = await service.client.request(method, path, content=content, headers=headers)
    return None if answer.status_code >= httpx.codes.INTERNAL_SERVER_ERROR else answer.text[:200]


async def _answers(service: ComposedService, thread: str) -> bool:
    """Return whether the server answers a turn on a thread and returns its state."""
    asked: dict[str, Any] = {
        "assistant_id": "lead_agent",
        "if_not_exists": "create",
        "input": {"messages": [{"role": "user", "content": "and now?"}]},
    }
    turn = await service.client.post(f"/api/threads/{thread}/runs/wait", json=asked)
    state = await service.client.get(f"/api/threads/{thread}/state?select=values.title")
    return turn.is_success and state.is_success and "__error__" not in turn.json()


async def _is_listed(service: ComposedService, thread: str) -> bool:
    """Return whether the server returns the lists with a thread and with stored items."""
    client = service.client
    shown = [
        await client.get(f"/api/threads/{thread}"),
        await client.get(f"/api/threads/{thread}/runs"),
        await client.post(f"/api/threads/{thread}/history", json={"limit": 5}),
        await client.post("/api/threads/search", json={"limit": 3}),
        await client.post("/api/store/items/search", json={"namespace_prefix": []}),
        await client.post("/api/assistants/search", json={}),
    ]
    return all(one.is_success for one in shown)


async def test_other_routes_refuse_or_repair_them_too(tmp_path: Path, config: str) -> None:
    schedule = '{"channel":"terminal","chat":VALUE,"prompt":"x","kind":"every","expression":"1d"}'
    async with composed(tmp_path, config) as service:
        for value in ('"a\\ud800b"', '"\\udc00\\ud800"'):
            assert '"A value cannot be stored' in str(
                await _send(service, "POST /api/schedules", schedule, value)
            )
            line = '{"text":VALUE}'
            said = await _send(service, "POST /api/channels/terminal/odd/messages", line, value)
            assert said == '{"result":"accepted"}'
        rows = (await service.client.get("/api/channels/inbox")).json()["rows"]
        assert [row["preview"] for row in rows] == ["\ufffd\ufffd", "a\ufffdb"]
        ready = await service.client.get("/health/ready")
        assert ready.is_success, ready.text
