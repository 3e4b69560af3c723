"""Your own graphs over the API: synchronous calls, DeltaChannels, inputs by schema, graph factories."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import httpx
import pytest

from gateway.graphs import load_graphs
from tests.gateway.langgraph_server import ApiServer, serving
from tests.gateway.test_langgraph_runs import new_thread

GRAPHS = """
from contextlib import asynccontextmanager
from operator import add
from typing import Annotated, Any, TypedDict

from langchain_core.messages import AIMessage, AnyMessage
from langchain_core.runnables import RunnableConfig
from langgraph.channels import DeltaChannel
from langgraph.func import entrypoint
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import _messages_delta_reducer
from langgraph_sdk.runtime import ServerRuntime


def answer(state):
    return {"messages": [AIMessage(f"re {state['messages'][-1].content}")]}


plain = StateGraph(MessagesState).add_node(answer).add_edge(START, "answer").compile()


def ask(state):
    return {"messages": plain.invoke(state)["messages"][-1:]}


calling = StateGraph(MessagesState).add_node(ask).add_edge(START, "ask").compile()


class Deltas(TypedDict):
    messages: Annotated[list[AnyMessage], DeltaChannel(_messages_delta_reducer)]
    title: str


deltas = StateGraph(Deltas).add_node(answer).add_edge(START, "answer").compile()


class Dicts(TypedDict, total=False):
    messages: Annotated[list[dict[str, Any]], add]
    kinds: list[str]


class Texts(TypedDict, total=False):
    messages: list[str]
    kinds: list[str]


class Objects(TypedDict, total=False):
    messages: list[AnyMessage]
    kinds: list[str]


class Bare(TypedDict, total=False):
    messages: list
    kinds: list[str]


def look(state):
    return {"kinds": [type(one).__name__ for one in state["messages"]]}


def looking(schema):
    return StateGraph(schema).add_node(look).add_edge(START, "look").compile()


dicts, texts, objects, bare = map(looking, (Dicts, Texts, Objects, Bare))


@entrypoint()
def function(given):
    return [type(one).__name__ for one in given["messages"]]


made = []


@asynccontextmanager
async def personal(config: RunnableConfig, runtime: ServerRuntime):
    options = config["configurable"]
    person = options["person"]
    made.append((person, runtime.access_context))

    def greet(state):
        assert made[-1] != "closed"
        return {"messages": [AIMessage(f"hello {person}")]}

    yield StateGraph(MessagesState).add_node(person, greet).add_edge(START, person)
    made.append("closed")


@asynccontextmanager
async def untidy():
    yield plain
    raise RuntimeError("cannot be closed")


def broken():
    raise RuntimeError("cannot be made")
"""
NAMES = [
    *("calling", "deltas", "dicts", "texts", "objects", "bare", "function"),
    *("personal", "untidy", "broken"),
]


@pytest.fixture(params=["sqlite", "postgres"])
def database_url(request: pytest.FixtureRequest) -> str:
    """Return the address of a PostgreSQL database; "" = SQLite."""
    return "" if request.param == "sqlite" else str(request.getfixturevalue("url"))


@asynccontextmanager
async def opened(folder: Path, database_url: str = "") -> AsyncIterator[ApiServer]:
    """Serve the graphs."""
    (folder / "others.py").write_text(GRAPHS)
    uses = {name: f"./others.py:{name}" for name in NAMES}
    sources = await anyio.to_thread.run_sync(load_graphs, uses, folder)
    async with serving(folder / "home", sources=sources, database_url=database_url) as api:
        yield api


def _said(text: str, number: int = 0) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text, "id": f"h{number}"}]}


def _texts(values: Any) -> list[str]:  # noqa: ANN401 - JSON
    return [message["content"] for message in values["messages"]]


async def test_nodes_call_graphs_synchronously(tmp_path: Path, database_url: str) -> None:
    async with opened(tmp_path, database_url) as api:

        async def talk() -> None:
            thread = await new_thread(api)
            values: Any = {}
            for number in range(3):
                asked = _said(f"q{number}", number)
                values = await api.sdk.runs.wait(thread, "calling", input=asked)
            assert _texts(values) == ["q0", "re q0", "q1", "re q1", "q2", "re q2"]

        async with anyio.create_task_group() as people:
            for _ in range(30):
                people.start_soon(talk)


async def test_a_graph_with_deltas_keeps_every_message(tmp_path: Path, database_url: str) -> None:
    expected: list[str] = []
    values: Any = {}
    async with opened(tmp_path, database_url) as api:
        thread = await new_thread(api)
        for number in range(100):
            asked = _said(f"q{number}", number)
            values = await api.sdk.runs.wait(thread, "deltas", input=asked)
            expected += [f"q{number}", f"re q{number}"]
            if number % 25 == 7:
                await api.sdk.threads.prune([thread], strategy="keep_latest")
        assert _texts(values) == expected
    async with opened(tmp_path, database_url) as api:
        for shown in (
            await api.sdk.threads.get(thread),
            await api.sdk.threads.get_state(thread),
            *await api.sdk.threads.search(ids=[thread]),
            *await api.sdk.threads.search(values={"messages": [{"content": "q3"}]}),
            (await api.sdk.threads.get_history(thread, limit=1))[0],
            await api.sdk.threads.copy(thread),
        ):
            assert _texts(shown["values"]) == expected
        run = (await api.sdk.runs.list(thread, limit=1))[0]
        assert _texts(await api.sdk.runs.join(thread, run["run_id"])) == expected
        forked = (await api.sdk.threads.get_history(thread, limit=5))[-1]
        values = await api.sdk.runs.wait(
            thread, "deltas", input=_said("other", 200), checkpoint=forked["checkpoint"]
        )
        assert _texts(values)[-2:] == ["other", "re other"]
        assert _texts(values)[:-2] == _texts(forked["values"])


@pytest.mark.parametrize(
    ("graph", "given", "kinds"),
    [
        ("dicts", [{"role": "user", "content": "a"}, {"anything": 1}], ["dict", "dict"]),
        ("texts", ["a", "b"], ["str", "str"]),
        ("bare", [{"role": "user", "content": "a"}, "b", 3], ["dict", "str", "int"]),
        ("objects", [{"role": "user", "content": "a"}, "b"], ["HumanMessage", "HumanMessage"]),
    ],
)
async def test_inputs_have_the_form_of_the_schema(
    tmp_path: Path, graph: str, given: list[Any], kinds: list[str]
) -> None:
    async with opened(tmp_path) as api:
        thread = await new_thread(api)
        values = await api.sdk.runs.wait(thread, graph, input={"messages": given})
        assert values["kinds"] == kinds
        await api.sdk.threads.update_state(thread, {"messages": given}, as_node="look")
        again = await api.sdk.threads.get_state(thread)
        shown = again["values"]["messages"]
        if graph != "objects":
            assert shown[-len(given) :] == given


async def test_inputs_of_functions_stay_what_they_are(tmp_path: Path) -> None:
    async with opened(tmp_path) as api:
        given = {"messages": [{"role": "user", "content": "a"}, "b", 3]}
        assert await api.sdk.runs.wait(None, "function", input=given) == ["dict", "str", "int"]


async def test_messages_of_a_graph_of_messages_are_still_checked(tmp_path: Path) -> None:
    async with opened(tmp_path) as api:
        with pytest.raises(httpx.HTTPStatusError, match="400"):
            await api.sdk.runs.wait(None, "objects", input={"messages": [{"anything": 1}]})


async def test_the_state_of_a_graph_that_depends_on_its_assistant(
    tmp_path: Path, database_url: str
) -> None:
    async with opened(tmp_path, database_url) as api:
        config = {"configurable": {"person": "ann"}}
        assistant = (await api.sdk.assistants.create("personal", config))["assistant_id"]
        assert "ann" in str(await api.sdk.assistants.get_graph(assistant))
        thread = await new_thread(api)
        values = await api.sdk.runs.wait(thread, assistant, input=_said("hi"))
        assert _texts(values) == ["hi", "hello ann"]
        update = {"messages": [{"role": "ai", "content": "changed"}]}
        await api.sdk.threads.update_state(thread, update, as_node="ann")
        state = await api.sdk.threads.get_state(thread)
        assert _texts(state["values"]) == ["hi", "hello ann", "changed"]
        # The run's options take precedence.
        values = await api.sdk.runs.wait(
            thread, assistant, input=_said("hi", 1), config={"configurable": {"person": "bob"}}
        )
        await api.sdk.threads.update_state(thread, update, as_node="bob")
        assert len(await api.sdk.threads.get_history(thread)) > 4
        made: list[Any] = sys.modules["parley_graph_personal"].made
    uses = [one for one in made if one != "closed"]
    assert len(uses) * 2 == len(made)
    assert {access for _, access in uses} == {
        *("assistants.read", "threads.create_run", "threads.read", "threads.update")
    }


async def test_a_function_that_fails_fails_only_its_own_runs(tmp_path: Path) -> None:
    async with opened(tmp_path) as api:
        thread = await new_thread(api)
        values = await api.sdk.runs.wait(thread, "untidy", input=_said("hi"))
        assert _texts(values) == ["hi", "re hi"]
        failed = await api.sdk.runs.wait(None, "broken", input=_said("hi"), raise_error=False)
        assert "cannot be made" in failed["__error__"]["message"]
        assert (await api.sdk.threads.get(thread))["status"] == "idle"
