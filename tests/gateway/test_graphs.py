"""Graphs of one's own: what may be named, what is told about what cannot be used."""

import json
from pathlib import Path

import anyio.to_thread
import pytest
from langchain_core.runnables import RunnableConfig

from gateway.config import load_config, prepare_process_for_agent
from gateway.graphs import GraphUnusable, find_graphs, load_graphs
from gateway.runtime.assistants import GraphSource

GRAPHS = """
from langgraph.func import entrypoint
from langgraph.graph import START, MessagesState, StateGraph
from own_words import polite

def answer(state):
    return {"messages": [("ai", polite(state["messages"][-1].content))]}

builder = StateGraph(MessagesState).add_node(answer).add_edge(START, "answer")
graph = builder.compile()

def make(config):
    return builder if config["configurable"]["wanted"] else None

async def make_later():
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


async def loaded(use: str, folder: Path) -> dict[str, GraphSource]:
    return await anyio.to_thread.run_sync(load_graphs, {"support": use}, folder)


@pytest.mark.parametrize("attribute", ["graph", "builder", "make", "make_later"])
async def test_graphs_builders_and_functions_are_assistants(folder: Path, attribute: str) -> None:
    sources = await loaded(f"./own_graphs.py:{attribute}", folder)
    graph = await sources["support"](CONFIG)
    state = await graph.ainvoke({"messages": [("human", "tea")]})
    assert state["messages"][-1].content == "tea, please"


async def test_a_function_of_the_functional_api_is_an_assistant(folder: Path) -> None:
    graph = await (await loaded("./own_graphs.py:function", folder))["support"](CONFIG)
    state = await graph.ainvoke({"messages": [("human", "tea")]})
    assert state["messages"][-1] == ("ai", "tea, please")


async def test_a_module_is_named_without_a_path(folder: Path) -> None:
    sources = await loaded("own_graphs:graph", folder)
    assert await sources["support"](CONFIG) is not None


@pytest.mark.parametrize(
    ("use", "told"),
    [
        ("./absent.py:graph", "graphs.support: there is no file "),
        ("./own_graphs.py:absent", "./own_graphs.py has no attribute 'absent'"),
        ("./own_graphs.py:number", "graphs.support: names a int"),
        ("./broken.py:graph", "cannot be imported: ZeroDivisionError"),
        ("no_such_module_here:graph", "graphs.support: Could not import module"),
        ("graph", "is not of the form module:name"),
    ],
)
def test_what_cannot_be_used_is_told(folder: Path, use: str, told: str) -> None:
    (folder / "broken.py").write_text("1 / 0\n")
    with pytest.raises(GraphUnusable) as caught:
        load_graphs({"support": use}, folder)
    assert told in caught.value.user_message


async def test_a_function_that_returns_no_graph_fails_its_run(folder: Path) -> None:
    sources = await loaded("./own_graphs.py:make", folder)
    with pytest.raises(GraphUnusable, match="NoneType"):
        await sources["support"]({"configurable": {"wanted": False}})


def test_a_langgraph_json_names_graphs_too(tmp_path: Path) -> None:
    graphs = {"lead_agent": "x:y", "a": "./a.py:graph", "b": {"path": "./b.py:graph"}}
    (tmp_path / "langgraph.json").write_text(json.dumps({"graphs": graphs}))
    found = find_graphs({"b": "./mine.py:graph"}, tmp_path)
    assert found == {"a": "./a.py:graph", "b": "./mine.py:graph"}


@pytest.mark.parametrize("text", ["{", '{"graphs": []}', '{"graphs": {"a": 7}}'])
def test_a_langgraph_json_that_cannot_be_read_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "langgraph.json").write_text(text)
    with pytest.raises(GraphUnusable, match=r"langgraph\.json"):
        find_graphs({}, tmp_path)


@pytest.mark.parametrize("name", ["lead_agent", "", "a b", "x" * 65])
def test_names_that_cannot_be_used_are_told(tmp_path: Path, name: str) -> None:
    with pytest.raises(GraphUnusable):
        find_graphs({name: "./a.py:graph"}, tmp_path)
