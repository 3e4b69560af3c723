"""Parley's answers have the same fields and order of events as recorded answers of LangGraph Server.

This file and docs/reference/langgraph-api.md list the differences.
"""

from itertools import groupby
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
import pytest

from tests.gateway.langgraph_server import ApiServer, serving
from tests.gateway.recording import recorded
from tests.gateway.test_langgraph_runs import collect, new_thread

RECORDED = {exchange.number: exchange for exchange in recorded()}
HUMAN = {"messages": [{"role": "user", "content": "hi"}]}


def golden(number: int) -> Any:  # noqa: ANN401 - JSON
    return orjson.loads(RECORDED[number].text)


def golden_events(number: int) -> list[str]:
    lines = RECORDED[number].text.splitlines()
    return [line[7:].strip() for line in lines if line.startswith("event: ")]


def runs_of(names: list[str]) -> list[str]:
    """Return the names without consecutive repetitions and without task ids."""
    return [name for name, _ in groupby(name.partition(":")[0] for name in names)]


async def answer(api: ApiServer, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - JSON
    response = await api.http.request(method, path, json=body)
    assert response.status_code == 200, response.text
    return response.json()


async def test_threads_runs_and_assistants_have_the_same_fields(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        made = await answer(api, "POST", "/threads", {"metadata": {"user": "u1"}})
        assert made.keys() - golden(8).keys() == {"error", "interrupts"}
        assert golden(8).keys() <= made.keys()
        thread = made["thread_id"]
        empty = await answer(api, "GET", f"/threads/{thread}/state")
        assert empty == golden(17)
        body = {"assistant_id": "boom", "input": {"n": 1}, "stream_mode": ["values", "updates"]}
        run = await answer(api, "POST", f"/threads/{thread}/runs", body)
        assert golden(69).keys() - run.keys() == {"langsmith_session_name"}
        assert run["kwargs"].keys() == golden(69)["kwargs"].keys()
        await answer(api, "GET", f"/threads/{thread}/runs/{run['run_id']}/join")
        failed = await answer(api, "GET", f"/threads/{thread}")
        assert failed.keys() == golden(48).keys()
        assert (failed["status"], failed["error"]) == (golden(48)["status"], golden(48)["error"])
        agent = await answer(api, "GET", f"/assistants/{golden(5)['assistant_id']}")
        assert agent.keys() == golden(5).keys()
        assert agent["name"] == golden(5)["name"]
        drawn = await answer(api, "GET", "/assistants/agent/graph?xray=false")
        assert drawn == golden(7)
        described = await answer(api, "GET", "/assistants/agent/schemas")
        assert described.keys() == golden(6).keys()


async def test_states_have_the_same_fields(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        thread = await new_thread(api)
        body = {"assistant_id": "hitl", "input": {"n": 1}}
        waited = await answer(api, "POST", f"/threads/{thread}/runs/wait", body)
        assert waited.keys() == golden(61).keys()
        state = await answer(api, "GET", f"/threads/{thread}/state")
        theirs = golden(55)
        assert state.keys() == theirs.keys()
        assert state["tasks"][0].keys() == theirs["tasks"][0].keys()
        assert state["checkpoint"].keys() == theirs["checkpoint"].keys()
        assert (state["next"], state["values"]) == (theirs["next"], theirs["values"])
        asked = await answer(api, "GET", f"/threads/{thread}")
        assert asked.keys() == golden(54).keys()
        [[one]], [[other]] = asked["interrupts"].values(), golden(54)["interrupts"].values()
        assert one.keys() == other.keys()
        history = await answer(api, "GET", f"/threads/{thread}/history?limit=2")
        assert history[0].keys() == golden(60)[0].keys()
        written = await answer(api, "POST", f"/threads/{thread}/state", {"values": {"n": 3}})
        assert written.keys() == golden(126).keys()
        assert written["checkpoint"].keys() == golden(126)["checkpoint"].keys()


@pytest.mark.parametrize(
    ("number", "graph", "body"),
    [
        (20, "agent", {"stream_mode": ["values"]}),
        (21, "agent", {"stream_mode": ["updates"]}),
        (22, "agent", {"stream_mode": ["messages"]}),
        (23, "agent", {"stream_mode": ["messages-tuple"]}),
        (25, "agent", {"stream_mode": ["events"]}),
        (26, "agent", {"stream_mode": ["debug"]}),
        (27, "agent", {"stream_mode": ["tasks"]}),
        (28, "agent", {"stream_mode": ["checkpoints"]}),
        (32, "agent", {}),
        (47, "boom", {"stream_mode": ["values", "updates"]}),
        (53, "hitl", {"stream_mode": ["values", "updates"]}),
        (62, "hitl", {"stream_mode": ["values"]}),
        (63, "hitl", {"stream_mode": ["messages-tuple"]}),
        (67, "hitl", {"stream_mode": ["values", "updates"], "interrupt_before": ["ask"]}),
    ],
)
async def test_events_come_in_the_same_order(
    tmp_path: Path, number: int, graph: str, body: dict[str, Any]
) -> None:
    async with serving(tmp_path) as api:
        thread = await new_thread(api)
        given = HUMAN if graph == "agent" else {"n": 1}
        request = {"assistant_id": graph, "input": given, **body}
        parts = await collect(
            api.sdk.http.stream(f"/threads/{thread}/runs/stream", "POST", json=request)
        )
        ours = [part.event for part in parts]
        assert ours.pop() == "end"
        assert runs_of(ours) == runs_of(golden_events(number))


@pytest.mark.parametrize(
    ("number", "method", "path", "body"),
    [
        (12, "POST", "/threads", {"thread_id": "slack:C1:1"}),
        (13, "GET", "/threads/{unknown}", None),
        (39, "POST", "/threads/{unknown}/runs/wait", {"assistant_id": "agent"}),
        (41, "POST", "/threads/{thread}/runs/wait", {"assistant_id": "nope"}),
        (42, "POST", "/threads/{thread}/runs/wait", {"assistant_id": str(UUID(int=5))}),
        (43, "POST", "/threads/{thread}/runs/wait", {"input": {}}),
        (65, "POST", "/runs/wait", {"assistant_id": "hitl", "command": {"resume": 1}}),
        (99, "POST", "/threads/{thread}/runs/{unknown}/cancel", None),
        (137, "DELETE", "/threads/{unknown}", None),
        (29, "POST", "/threads/{thread}/runs/stream", {"assistant_id": "agent", "stream_mode": ["tools"]}),
        (120, "POST", "/threads/{thread}/runs/wait", {"assistant_id": "agent", "multitask_strategy": "bogus"}),
        (158, "POST", "/threads/{thread}/stream/events", {"channels": ["nope"]}),
        (159, "POST", "/threads/{thread}/stream/events", {}),
    ],
)  # fmt: skip
async def test_refusals_have_the_same_status(
    tmp_path: Path, number: int, method: str, path: str, body: object
) -> None:
    async with serving(tmp_path) as api:
        names = {"thread": await new_thread(api), "unknown": str(UUID(int=7))}
        refused = await api.http.request(method, path.format(**names), json=body)
        assert refused.status_code == RECORDED[number].status
        assert refused.json().keys() == {"detail"}
