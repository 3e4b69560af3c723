"""Functions of LangGraph's functional API (`@entrypoint`) as assistants, with values of any type."""

from pathlib import Path
from typing import Any

import anyio
import pytest
from langchain_core.messages import AIMessage
from langgraph.func import entrypoint, task
from langgraph.types import interrupt

from gateway.runtime.assistants import GraphSource
from tests.gateway.langgraph_server import serving
from tests.gateway.test_langgraph_runs import collect, new_thread


@task
async def _shout(said: str) -> str:
    return said.upper()


@entrypoint()
async def _text(said: str) -> str:
    return await _shout(said)


@entrypoint()
async def _list(said: Any) -> list[Any]:  # noqa: ANN401 - any JSON of a client
    return ["__interrupt__", said]


@entrypoint()
async def _number(_said: object) -> int:
    return 0


@entrypoint()
async def _nothing(_said: object) -> None:
    return None


@entrypoint()
async def _messages(said: dict[str, Any], *, previous: Any = None) -> Any:  # noqa: ANN401 - LangGraph's protocol
    known = [*(previous or []), *said["messages"]]
    answered = [*known, AIMessage(f"answer {len(known)}", id=f"a{len(known)}")]
    return entrypoint.final(value={"messages": answered, "title": "Talk"}, save=answered)


@entrypoint()
async def _asking(_said: object) -> str:
    return f"You chose {interrupt({'question': 'Which?'})}."


def _source(graph: Any) -> GraphSource:  # noqa: ANN401 - a Pregel of any state
    async def same(_config: object) -> Any:  # noqa: ANN401
        return graph

    return same


SOURCES = {
    "text": _source(_text),
    "list": _source(_list),
    "number": _source(_number),
    "nothing": _source(_nothing),
    "messages": _source(_messages),
    "asking": _source(_asking),
}


@pytest.mark.parametrize(
    ("graph", "value"),
    [("text", "HELLO"), ("list", ["__interrupt__", "hello"]), ("number", 0), ("nothing", None)],
)
async def test_a_value_that_is_no_mapping_is_the_result(
    tmp_path: Path, graph: str, value: object
) -> None:
    async with serving(tmp_path, sources=SOURCES) as api:
        thread = await new_thread(api)
        assert await api.sdk.runs.wait(thread, graph, input="hello") == value
        assert await api.sdk.runs.wait(None, graph, input="hello") == value
        parts = await collect(api.sdk.runs.stream(thread, graph, input="hello"))
        assert [(part.event, part.data) for part in parts[1:-1]] == [("values", value)]
        run_id = parts[0].data["run_id"]
        assert await api.sdk.runs.join(thread, run_id) == value
        assert (await api.sdk.threads.get(thread))["values"] == value
        assert (await api.sdk.threads.get_state(thread))["values"] == value
        assert (await api.sdk.threads.get(thread))["status"] == "idle"
        [found] = await api.sdk.threads.search(ids=[thread])
        assert found["values"] == value
        assert await api.sdk.threads.search(values={"n": 1}) == []
        assert (await api.sdk.assistants.get_graph(graph))["nodes"]
        assert (await api.sdk.assistants.get_schemas(graph))["graph_id"] == graph
    async with serving(tmp_path, sources=SOURCES) as api:
        joined = await api.sdk.runs.join(thread, run_id)
        assert joined == ({} if value is None else value)  # the same as on LangGraph's server


async def test_a_function_goes_on_with_what_it_saved(tmp_path: Path) -> None:
    async with serving(tmp_path, sources=SOURCES) as api:
        thread = await new_thread(api)
        for number, expected in ((1, "answer 1"), (2, "answer 3")):
            asked = {"messages": [{"role": "user", "content": "hi", "id": f"h{number}"}]}
            values = await api.sdk.runs.wait(thread, "messages", input=asked)
            assert values["messages"][-1]["content"] == expected
        state = await api.sdk.threads.get_state(thread)
        assert [one["id"] for one in state["values"]["messages"]] == ["h1", "a1", "h2", "a3"]


async def test_an_interrupt_of_a_function_is_resumed(tmp_path: Path) -> None:
    async with serving(tmp_path, sources=SOURCES) as api:
        thread = await new_thread(api)
        asked = await api.sdk.runs.wait(thread, "asking", input="x")
        assert asked["__interrupt__"][0]["value"] == {"question": "Which?"}
        assert (await api.sdk.threads.get(thread))["status"] == "interrupted"
        answer = await api.sdk.runs.wait(thread, "asking", command={"resume": "tea"})
        assert answer == "You chose tea."
        assert (await api.sdk.threads.get(thread))["status"] == "idle"


async def test_a_canceled_function_has_no_values(tmp_path: Path) -> None:
    started = anyio.Event()

    @entrypoint()
    async def waiting(_said: object) -> str:
        started.set()
        await anyio.sleep_forever()
        return "never"

    async with serving(tmp_path, sources={"waiting": _source(waiting)}) as api:
        thread = await new_thread(api)
        run = await api.sdk.runs.create(thread, "waiting", input="x")
        with anyio.fail_after(20):
            await started.wait()
            await api.sdk.runs.cancel(thread, run["run_id"], wait=True)
        assert await api.sdk.runs.join(thread, run["run_id"]) == {}
        assert (await api.sdk.threads.get(thread))["status"] == "interrupted"
