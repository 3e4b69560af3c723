"""The reducers, alone and in a compiled graph."""

from typing import Any

import pytest
from langchain_core.runnables import RunnableLambda
from langgraph.graph import END, START, StateGraph

from agent.state import (
    ThreadState,
    Todo,
    ViewedImage,
    merge_artifacts,
    merge_sandbox,
    merge_todos,
    merge_viewed_images,
)

PNG = ViewedImage(mime_type="image/png", size=1)
JPG = ViewedImage(mime_type="image/jpeg", size=2)
STEP = Todo(id="todo-1", title="look", status="pending")


@pytest.mark.parametrize(
    ("existing", "new", "merged"),
    [
        (None, None, []),
        (None, ["a"], ["a"]),
        (["a"], None, ["a"]),
        (["a", "b"], ["b", "c", "c"], ["a", "b", "c"]),
        (["a"], [], ["a"]),
    ],
)
def test_artifacts(existing: list[str] | None, new: list[str] | None, merged: list[str]) -> None:
    before = list(existing or [])
    assert merge_artifacts(existing, new) == merged
    assert (existing or []) == before


@pytest.mark.parametrize(
    ("existing", "new", "merged"),
    [
        (None, None, None),
        (None, [], []),
        ([STEP], None, [STEP]),
        ([STEP], [], []),
        ([], [STEP], [STEP]),
    ],
)
def test_todos(
    existing: list[Todo] | None, new: list[Todo] | None, merged: list[Todo] | None
) -> None:
    assert merge_todos(existing, new) == merged


@pytest.mark.parametrize(
    ("existing", "new", "merged"),
    [
        (None, None, {}),
        (None, {"a": PNG}, {"a": PNG}),
        ({"a": PNG}, None, {"a": PNG}),
        ({"a": PNG}, {}, {}),
        ({"a": PNG, "b": PNG}, {"a": JPG}, {"a": JPG, "b": PNG}),
    ],
)
def test_viewed_images(
    existing: dict[str, ViewedImage] | None,
    new: dict[str, ViewedImage] | None,
    merged: dict[str, ViewedImage],
) -> None:
    before = dict(existing or {})
    assert merge_viewed_images(existing, new) == merged
    assert (existing or {}) == before


def test_sandbox_keeps_the_last_one_named() -> None:
    assert merge_sandbox(None, None) is None
    assert merge_sandbox({"sandbox_id": "a"}, None) == {"sandbox_id": "a"}
    assert merge_sandbox(None, {"sandbox_id": "a"}) == {"sandbox_id": "a"}


async def test_parallel_nodes_may_write_the_same_fields() -> None:
    update = {
        "sandbox": {"sandbox_id": "local:t"},
        "artifacts": ["a"],
        "viewed_images": {"a": PNG},
        "todos": [STEP],
        "messages": [],
    }
    graph: StateGraph[Any, Any, Any, Any] = StateGraph(ThreadState)
    for name in ("one", "two"):
        graph.add_node(name, RunnableLambda(lambda _: update))
        graph.add_edge(START, name)
        graph.add_edge(name, END)
    state = await graph.compile().ainvoke({"messages": [], "artifacts": ["z"]})
    assert state["sandbox"] == {"sandbox_id": "local:t"}
    assert state["artifacts"] == ["z", "a"]
    assert state["viewed_images"] == {"a": PNG}
    assert state["todos"] == [STEP]
