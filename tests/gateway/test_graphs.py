"""Loading your own graphs: valid names, and error messages for unusable graphs."""

import importlib
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio.to_thread
import pytest
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore
from langgraph_sdk.runtime import AccessContext

from gateway.config import load_config, prepare_process_for_agent
from gateway.graphs import GraphUnusable, find_graphs, load_graphs
from gateway.runtime.assistants import GraphSource
from gateway.runtime.execution import Graph
from gateway.runtime.graph_sources import GraphFactory, server_runtime

GRAPHS = """
from __future__ import annotations

from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING

from langgraph.func import entrypoint
from langgraph.graph import START, MessagesState, StateGraph
from own_words import polite

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph_sdk.runtime import ServerRuntime

def answer(state):
    return {"messages": [("ai", polite(state["messages"][-1].content))]}

builder = StateGraph(MessagesState).add_node(answer).add_edge(START, "answer")
graph = builder.compile()

def make(config):
    return builder if config["configurable"]["wanted"] else None

async def make_later():
    return graph

def make_for(runtime: "ServerRuntime[dict]"):
    assert runtime.store is not None
    assert (runtime.execution_runtime is None) == (runtime.access_context != "threads.create_run")
    return graph

async def make_for_config(settings: RunnableConfig, runtime: ServerRuntime):
    return make(settings)

def make_turned(rt: ServerRuntime, config):
    return make(config)

def make_plain(runtime, config=None):
    assert runtime.access_context and config["configurable"]
    return graph

def make_optional(config, /, *, greeting="hello", **more):
    return make(config)

opened = []

@asynccontextmanager
async def open_it(config: RunnableConfig, runtime: ServerRuntime):
    opened.append(runtime.access_context)
    try:
        yield make(config)
    finally:
        opened.append("closed")

@contextmanager
def open_plainly():
    opened.append("plain")
    yield graph
    opened.append("closed")

class Maker:
    def __call__(self, config):
        return make(config)

maker = Maker()

def make_from(settings, model):
    return graph

@entrypoint()
def function(state):
    return {"messages": [*state["messages"], ("ai", polite(state["messages"][-1][1]))]}

number = 7
"""
CONFIG: RunnableConfig = {"configurable": {"wanted": True}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "own_graphs.py").write_text(GRAPHS)
    (tmp_path / "own_words.py").write_text("def polite(text):\n    return f'{text}, please'\n")
    (tmp_path / "config.yaml").touch()
    prepare_process_for_agent(load_config(str(tmp_path / "config.yaml"), {}), {})
    return tmp_path


async def loaded(use: str, folder: Path) -> GraphSource:
    sources = await anyio.to_thread.run_sync(load_graphs, {"support": use}, folder)
    return sources["support"]


@asynccontextmanager
async def opened(
    source: GraphSource,
    access: AccessContext = "threads.create_run",
    config: RunnableConfig = CONFIG,
) -> AsyncIterator[Graph]:
    """Yield a graph as the runtime opens it, for a run or another purpose."""
    if isinstance(source, GraphFactory):
        async with source.open(config, server_runtime(access, InMemoryStore(), {})) as graph:
            yield graph
    else:
        yield await source(config)


FORMS = [
    "graph",
    "builder",
    "make",
    "make_later",
    "make_for",
    "make_for_config",
    "make_turned",
    "make_plain",
    "make_optional",
    "open_it",
    "open_plainly",
    "maker",
]


@pytest.mark.parametrize("access", ["threads.create_run", "threads.read"])
@pytest.mark.parametrize("attribute", FORMS)
async def test_graphs_builders_and_functions_are_assistants(
    folder: Path, attribute: str, access: AccessContext
) -> None:
    source = await loaded(f"./own_graphs.py:{attribute}", folder)
    async with opened(source, access) as graph:
        state = await graph.ainvoke({"messages": [("human", "tea")]})
    assert state["messages"][-1].content == "tea, please"


async def test_resources_of_a_graph_function_are_closed_after_use(folder: Path) -> None:
    source = await loaded("./own_graphs.py:open_it", folder)
    seen = sys.modules["parley_graph_support"].opened
    async with opened(source, "assistants.read"):
        assert seen == ["assistants.read"]
    assert seen == ["assistants.read", "closed"]


async def test_a_function_of_the_functional_api_is_an_assistant(folder: Path) -> None:
    async with opened(await loaded("./own_graphs.py:function", folder)) as graph:
        state = await graph.ainvoke({"messages": [("human", "tea")]})
    assert state["messages"][-1] == ("ai", "tea, please")


async def test_a_module_is_named_without_a_path(folder: Path) -> None:
    async with opened(await loaded("own_graphs:graph", folder)) as graph:
        assert graph is not None


async def test_the_graph_of_a_module_stays_without_a_checkpointer(folder: Path) -> None:
    """Its module may call it in a thread that no run has given a config."""
    async with opened(await loaded("own_graphs:graph", folder)) as graph:
        graph.checkpointer = InMemorySaver()
    own: Any = importlib.import_module("own_graphs")
    assert own.graph.invoke({"messages": [("human", "tea")]})["messages"][-1].content


@pytest.mark.parametrize(
    ("use", "told"),
    [
        ("./absent.py:graph", "graphs.support: there is no file "),
        ("./own_graphs.py:absent", "./own_graphs.py has no attribute 'absent'"),
        ("./own_graphs.py:number", "graphs.support: names a int"),
        ("./broken.py:graph", "cannot be imported: ZeroDivisionError"),
        ("no_such_module_here:graph", "graphs.support: Could not import module"),
        ("graph", "is not of the form module:name"),
        ("./own_graphs.py:make_from", "graphs.support: the function has a parameter 'model'"),
    ],
)
def test_unusable_graphs_are_reported(folder: Path, use: str, told: str) -> None:
    (folder / "broken.py").write_text("1 / 0\n")
    with pytest.raises(GraphUnusable) as caught:
        load_graphs({"support": use}, folder)
    assert told in caught.value.user_message


async def test_a_function_that_returns_no_graph_fails_its_run(folder: Path) -> None:
    source = await loaded("./own_graphs.py:make", folder)
    with pytest.raises(GraphUnusable, match="NoneType"):
        async with opened(source, config={"configurable": {"wanted": False}}):
            pass


def test_a_langgraph_json_names_graphs_too(tmp_path: Path) -> None:
    graphs = {"lead_agent": "x:y", "a": "./a.py:graph", "b": {"path": "./b.py:graph"}}
    (tmp_path / "langgraph.json").write_text(json.dumps({"graphs": graphs}))
    found = find_graphs({"b": "./mine.py:graph"}, tmp_path)
    assert found == {"a": "./a.py:graph", "b": "./mine.py:graph"}


@pytest.mark.parametrize("text", ["{", '{"graphs": []}', '{"graphs": {"a": 7}}'])
def test_an_unreadable_langgraph_json_is_reported(tmp_path: Path, text: str) -> None:
    (tmp_path / "langgraph.json").write_text(text)
    with pytest.raises(GraphUnusable, match=r"langgraph\.json"):
        find_graphs({}, tmp_path)


@pytest.mark.parametrize("name", ["lead_agent", "", "a b", "x" * 65])
def test_invalid_names_of_graphs_are_reported(tmp_path: Path, name: str) -> None:
    with pytest.raises(GraphUnusable):
        find_graphs({name: "./a.py:graph"}, tmp_path)


WANTS = """
import os
from shop_words import polite
from langgraph.graph import START, MessagesState, StateGraph

def answer(state):
    return {"messages": [("ai", f"{polite('tea')} {os.environ['SHOP']} {os.environ['FLOOR']}")]}

graph = StateGraph(MessagesState).add_node(answer).add_edge(START, "answer").compile()
"""


async def test_a_langgraph_json_brings_folders_and_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    shared = tmp_path / "libs" / "shared"
    shared.mkdir(parents=True)
    (shared / "shop_words.py").write_text("def polite(text):\n    return f'{text}, please'\n")
    bots = tmp_path / "bots"
    bots.mkdir()
    (bots / "wants.py").write_text(WANTS)
    (bots / "config.yaml").touch()
    (bots / "shop.env").write_text("SHOP=corner\nFLOOR=3\n")
    document: dict[str, Any] = {
        "graphs": {"shop": "./wants.py:graph"},
        "dependencies": [".", "../libs/shared", "pytest>=7", "./gone", "no-such-package==1"],
        "env": "./shop.env",
        "python_version": "3.12",
        "http": {"app": "./app.py:app"},
        "auth": {"path": "./auth.py:auth"},
    }
    file = bots / "langgraph.json"
    file.write_text(json.dumps(document))
    config = load_config(str(bots / "config.yaml"), {"FLOOR": "9"})
    assert config.warnings == (
        f"{file}: dependencies: there is no folder {bots / 'gone'}",
        f"{file}: dependencies: no-such-package==1 is not installed: install it into Parley's environment",
        f"{file}: auth: Parley ignores this key",
        f"{file}: http: Parley ignores this key",
    )
    environ = {"FLOOR": "9"}
    prepare_process_for_agent(config, environ)
    assert (environ["SHOP"], environ["FLOOR"]) == ("corner", "9")
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    sources = await anyio.to_thread.run_sync(load_graphs, config.graphs, config.folder)
    async with opened(sources["shop"]) as graph:
        state = await graph.ainvoke({"messages": [("human", "tea")]})
    assert state["messages"][-1].content == "tea, please corner 9"


def test_the_variables_of_a_langgraph_json_may_be_in_it(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("log_level: $LEVEL\n")
    document = {"graphs": {"a": "./a.py:graph"}, "env": {"LEVEL": "debug", "PORT": 7}}
    (tmp_path / "langgraph.json").write_text(json.dumps(document))
    config = load_config(str(tmp_path / "config.yaml"), {})
    assert (config.log_level, config.environment["PORT"]) == ("debug", "7")
    (tmp_path / "langgraph.json").write_text(json.dumps({**document, "env": "./none.env"}))
    (tmp_path / "config.yaml").write_text("log_level: info\n")
    config = load_config(str(tmp_path / "config.yaml"), {})
    assert config.warnings == (
        f"{tmp_path / 'langgraph.json'}: env: there is no file {tmp_path / 'none.env'}",
    )


def test_a_langgraph_json_for_a_langgraph_server_alone_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").touch()
    document = {"graphs": {"lead_agent": "x:y"}, "env": {"A": "1"}, "http": {"app": "x:y"}}
    (tmp_path / "langgraph.json").write_text(json.dumps(document))
    config = load_config(str(tmp_path / "config.yaml"), {})
    assert (config.warnings, config.import_folders) == ((), ())
    assert "A" not in config.environment
