"""Checkpoints whose message lists are saved in chunks: the same states as whole lists, less work and disk space."""

import sqlite3
import sys
import tracemalloc
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, RemoveMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph, add_messages
from langgraph.graph.state import CompiledStateGraph

from store.checkpoint_chunks import MAX_IDLE_S, SIZE, MessageChunker
from store.checkpoints import open_checkpointer
from store.message_fingerprint import MessageFingerprint
from tests.store.conftest import SaverOpener

LONG = 5 * SIZE
Messages = list[AnyMessage]
Graph = CompiledStateGraph[Any, Any, Any, Any]


class State(TypedDict, total=False):
    messages: Annotated[Messages, add_messages]


def _graph(
    saver: BaseCheckpointSaver[str], answer: Callable[[Messages], Messages] | None = None
) -> Graph:
    """Return a graph of one node, which by default answers with the number of messages it received."""

    async def node(state: State) -> State:
        seen = state["messages"]
        return {"messages": answer(seen) if answer else [AIMessage(f"{len(seen)} seen")]}

    builder = StateGraph(State)
    builder.add_node("node", node)
    builder.add_edge(START, "node")
    builder.add_edge("node", END)
    return builder.compile(checkpointer=saver)


def _thread(thread_id: str = "t", **more: str) -> RunnableConfig:
    return {"configurable": {"thread_id": thread_id, **more}}


def _said(count: int, first: int = 0) -> dict[str, Messages]:
    return {
        "messages": [HumanMessage(f"number {n}", id=f"m{n}") for n in range(first, first + count)]
    }


async def _messages(graph: Graph, config: RunnableConfig | None = None) -> Messages:
    messages: Messages = (await graph.aget_state(config or _thread())).values["messages"]
    return messages


async def _texts(graph: Graph, config: RunnableConfig | None = None) -> list[str]:
    return [str(message.content) for message in await _messages(graph, config)]


def _rows(home: Path, sql: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(home / "checkpoints.db")) as connection:
        return connection.execute(sql).fetchall()


def _orphans(home: Path) -> int:
    return int(
        _rows(
            home,
            "SELECT count(*) FROM message_chunks WHERE name NOT IN ("
            "SELECT needed.value FROM checkpoints, json_each(checkpoints.chunks) AS needed"
            " WHERE checkpoints.chunks IS NOT NULL)",
        )[0][0]
    )


async def test_a_long_thread_reads_the_same_before_and_after_a_restart(
    open_saver: SaverOpener,
) -> None:
    async with open_saver() as saver:
        graph = _graph(saver)
        for turn in range(LONG):
            await graph.ainvoke(_said(1, turn), _thread(), durability="sync")
        before = await _messages(graph)
        assert len(before) == 2 * LONG
    async with open_saver() as saver:
        assert await _messages(_graph(saver)) == before
        await _graph(saver).ainvoke(_said(1, LONG), _thread())
        assert (await _messages(_graph(saver)))[:-2] == before


async def test_unchanged_pieces_are_saved_once(tmp_path: Path) -> None:
    async with open_checkpointer(tmp_path) as saver:
        graph = _graph(saver)
        await graph.ainvoke(_said(LONG), _thread())
        for turn in range(SIZE // 2):
            await graph.ainvoke(_said(1, LONG + turn), _thread())
        [[pieces]] = _rows(tmp_path, "SELECT count(*) FROM message_chunks")
        assert pieces == (await _count(graph)) // SIZE
        [[newest]] = _rows(
            tmp_path,
            "SELECT length(checkpoint) FROM checkpoints ORDER BY checkpoint_id DESC LIMIT 1",
        )
        kind, blob = saver.serde.dumps_typed(await _messages(graph))
        assert kind == "msgpack"
        assert newest < len(blob) / 2


async def _count(graph: Graph) -> int:
    return len(await _messages(graph))


async def test_checkpoints_equal_those_of_langgraphs_own_saver(tmp_path: Path) -> None:
    """A checkpoint with chunks has the same history and type as one without."""
    (tmp_path / "plain").mkdir()
    states = []
    path = str(tmp_path / "plain" / "checkpoints.db")
    async with (
        open_checkpointer(tmp_path) as ours,
        AsyncSqliteSaver.from_conn_string(path) as theirs,
    ):
        for saver in (ours, theirs):
            graph = _graph(saver, lambda seen: [AIMessage("yes", id=f"answer {len(seen)}")])
            for turn in range(3):
                await graph.ainvoke(_said(LONG, turn * LONG), _thread())
            history = [one async for one in graph.aget_state_history(_thread())]
            found = await saver.aget_tuple(_thread())
            assert found is not None
            states.append(([one.values for one in history], sorted(found.checkpoint)))
    assert states[0] == states[1]


async def test_a_fork_from_an_older_checkpoint(open_saver: SaverOpener) -> None:
    async with open_saver() as saver:
        graph = _graph(saver)
        await graph.ainvoke(_said(LONG), _thread())
        old = (await graph.aget_state(_thread())).config
        await graph.ainvoke(_said(LONG, LONG), _thread())
        assert await _count(graph) == 2 * LONG + 2
        assert len(await _messages(graph, old)) == LONG + 1
        assert await _count(graph) == 2 * LONG + 2
        await graph.ainvoke({"messages": [HumanMessage("instead")]}, old)
        assert (await _texts(graph))[-3:] == [f"{LONG} seen", "instead", f"{LONG + 2} seen"]
        await graph.aupdate_state(old, {"messages": [HumanMessage("by hand")]}, as_node="node")
        assert (await _texts(graph))[-2:] == [f"{LONG} seen", "by hand"]


async def test_a_rollback_takes_the_pieces_of_the_run_along(tmp_path: Path) -> None:
    async with open_checkpointer(tmp_path) as saver:
        graph = _graph(saver)
        await graph.ainvoke(_said(LONG), _thread(run_id="first"))
        before = await _messages(graph)
        await graph.ainvoke(_said(LONG, LONG), _thread(run_id="second"))
        await saver.rollback_run("t", "second")
        assert await _messages(graph) == before
        assert _orphans(tmp_path) == 0
        await graph.ainvoke(_said(LONG, LONG), _thread(run_id="third"))
        assert await _count(graph) == 2 * LONG + 2
        assert _orphans(tmp_path) == 0


async def test_a_rollback_undoes_what_a_run_changed_in_place(open_saver: SaverOpener) -> None:
    def vandal(seen: Messages) -> Messages:
        seen[3].content = "painted over"
        seen[4].additional_kwargs["mark"] = 1
        return [AIMessage("done")]

    async with open_saver() as saver:
        graph = _graph(saver)
        await graph.ainvoke(_said(LONG), _thread(run_id="first"))
        before = await _texts(graph)
        await _graph(saver, vandal).ainvoke(_said(1, LONG), _thread(run_id="second"))
        changed = await _messages(graph)
        assert (changed[3].content, changed[4].additional_kwargs) == ("painted over", {"mark": 1})
        await saver.rollback_run("t", "second")
        assert await _texts(graph) == before
        assert (await _messages(graph))[4].additional_kwargs == {}


@pytest.mark.parametrize("restart", [False, True])
async def test_a_message_changed_in_place_is_saved_as_it_is_now(
    open_saver: SaverOpener, *, restart: bool
) -> None:
    """Code should not do this, but some middleware does, even deep inside a list of blocks."""

    def vandal(seen: Messages) -> Messages:
        content = seen[0].content
        assert isinstance(content, list)
        block = content[0]
        assert isinstance(block, dict)
        block["text"] = "after"
        return [AIMessage("done")]

    blocks = HumanMessage([{"type": "text", "text": "before"}], id="blocks")
    async with open_saver() as saver:
        await _graph(saver).ainvoke({"messages": [blocks, *_said(LONG)["messages"]]}, _thread())
        await _graph(saver, vandal).ainvoke(_said(1, LONG), _thread())
        if not restart:
            assert (await _messages(_graph(saver)))[0].content == [
                {"type": "text", "text": "after"}
            ]
    if restart:
        async with open_saver() as saver:
            assert (await _messages(_graph(saver)))[0].content == [
                {"type": "text", "text": "after"}
            ]


async def test_changes_of_a_readers_copy_do_not_affect_others(open_saver: SaverOpener) -> None:
    async with open_saver() as saver:
        graph = _graph(saver)
        await graph.ainvoke(_said(LONG), _thread())
        mine = await _messages(graph)
        mine[0].content = "scribble"
        mine.clear()
        assert (await _texts(graph))[0] == "number 0"
        assert await _count(graph) == LONG + 1


async def test_a_replaced_and_a_removed_message(open_saver: SaverOpener) -> None:
    async with open_saver() as saver:
        graph = _graph(saver)
        await graph.ainvoke(_said(LONG), _thread())
        await graph.ainvoke({"messages": [HumanMessage("other", id="m3")]}, _thread())
        assert (await _texts(graph))[2:5] == ["number 2", "other", "number 4"]
        await graph.ainvoke({"messages": [RemoveMessage("m1")]}, _thread())
        texts = await _texts(graph)
        assert texts[:3] == ["number 0", "number 2", "other"]
        assert len(texts) == LONG + 2
    async with open_saver() as saver:
        assert await _texts(_graph(saver)) == texts


async def test_trimming_drops_unused_chunks(tmp_path: Path) -> None:
    async with open_checkpointer(tmp_path) as saver:
        graph = _graph(saver)
        await graph.ainvoke(_said(LONG), _thread())
        await graph.ainvoke(_said(LONG), _thread("other"))
        await graph.ainvoke({"messages": [RemoveMessage("m0")]}, _thread())
        for turn in range(11):
            await graph.ainvoke(_said(1, LONG + turn), _thread())
        assert (
            _rows(tmp_path, "SELECT count(*) FROM message_chunks WHERE thread_id = 't'")[0][0] > 6
        )
        texts = await _texts(graph)
        await saver.trim_thread("t")
        assert _orphans(tmp_path) == 0
        needed = len(texts) // SIZE
        held = _rows(tmp_path, "SELECT count(*) FROM message_chunks WHERE thread_id = 't'")
        assert held == [(needed,)]
        assert await _texts(graph) == texts
    async with open_checkpointer(tmp_path) as saver:
        history = [one async for one in _graph(saver).aget_state_history(_thread())]
        assert len(history) == 20
        assert [m.content for m in history[0].values["messages"]] == texts
        assert await _count(_graph(saver)) == len(texts)
        assert len(await _messages(_graph(saver), _thread("other"))) == LONG + 1


async def test_a_deleted_thread_leaves_no_pieces(tmp_path: Path) -> None:
    async with open_checkpointer(tmp_path) as saver:
        await _graph(saver).ainvoke(_said(LONG), _thread())
        await saver.adelete_thread("t")
        assert _rows(tmp_path, "SELECT count(*) FROM message_chunks") == [(0,)]
        await _graph(saver).ainvoke(_said(LONG), _thread())
        assert await _count(_graph(saver)) == LONG + 1


async def test_pieces_are_saved_compressed(tmp_path: Path) -> None:
    async with open_checkpointer(tmp_path) as saver:
        graph = _graph(saver)
        await graph.ainvoke(_said(LONG), _thread())
        _, plain = saver.serde.dumps_typed((await _messages(graph))[:SIZE])
    for kind, size in _rows(tmp_path, "SELECT type, length(value) FROM message_chunks"):
        assert kind == "msgpack"
        assert size < len(plain) / 2


async def test_a_turn_compares_the_pieces_when_they_are_loaded_and_after_its_node(
    open_saver: SaverOpener,
) -> None:
    async with open_saver() as saver:
        graph = _graph(saver)
        await graph.ainvoke(_said(LONG), _thread())
        await graph.ainvoke(_said(1, LONG), _thread())
        compared = 0

        def count(frame: FrameType, event: str, _: object) -> None:
            nonlocal compared
            compared += event == "call" and frame.f_code is MessageFingerprint.matches.__code__

        sys.setprofile(count)
        await graph.ainvoke(_said(1, LONG + 1), _thread(), durability="sync")
        sys.setprofile(None)
    assert compared == 2 * (LONG // SIZE)


async def test_an_older_program_fails_instead_of_losing_messages(tmp_path: Path) -> None:
    async with open_checkpointer(tmp_path) as saver:
        await _graph(saver).ainvoke(_said(LONG), _thread())
    async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "checkpoints.db")) as old:
        with pytest.raises(NotImplementedError, match="Unknown serialization type"):
            await old.aget_tuple(_thread())


async def test_equal_pieces_of_one_list_are_not_the_same_objects(open_saver: SaverOpener) -> None:
    chunks = MessageChunker(JsonPlusSerializer())
    values = {"log": [HumanMessage("again") for _ in range(2 * SIZE + 1)]}
    split = chunks.split("t", "", values)
    assert len(split.parts["log"]) == 2
    assert len(split.names) == 1
    whole, _ = chunks.join(split.values, split.parts, held=chunks.held("t", ""), saved={})
    assert whole == values
    assert len({id(message) for message in whole["log"]}) == 2 * SIZE + 1


async def test_only_long_lists_of_messages_are_cut() -> None:
    chunks = MessageChunker(JsonPlusSerializer())
    values: dict[str, Any] = {
        "short": _said(SIZE - 1)["messages"],
        "numbers": list(range(100)),
        "mixed": [*_said(SIZE)["messages"], "text"],
    }
    split = chunks.split("t", "", values)
    assert (split.values, split.parts, split.names) == (values, {}, [])
    assert chunks.bytes == 0


async def test_the_chunks_in_memory_are_bounded() -> None:
    serde = JsonPlusSerializer()
    one = len(serde.dumps_typed(_said(SIZE)["messages"])[1])
    chunks = MessageChunker(serde, max_bytes=5 * one // 2)
    for thread_id in ("a", "b", "c"):
        chunks.split(thread_id, "", _said(SIZE))
    assert chunks.bytes == 2 * one
    assert [len(chunks.held(name, "")) for name in "abc"] == [0, 1, 1]
    chunks.split("huge", "", _said(SIZE * 10))
    assert (chunks.bytes, chunks.held("huge", "")) == (2 * one, {})


async def test_unused_threads_leave_memory() -> None:
    """Threads end without notice. Filling the cache takes an hour of light use and would look like a leak."""
    now = 0.0
    chunks = MessageChunker(JsonPlusSerializer(), clock=lambda: now)
    for thread_id in ("left", "used"):
        chunks.split(thread_id, "", _said(SIZE))
    whole = chunks.bytes
    now = MAX_IDLE_S - 1
    chunks.split("used", "", _said(SIZE))
    assert chunks.bytes == whole
    now = MAX_IDLE_S + 1
    chunks.split("new", "", _said(SIZE))
    assert [len(chunks.held(name, "")) for name in ("left", "used", "new")] == [0, 1, 1]
    assert chunks.bytes == whole


async def test_a_message_that_json_cannot_encode_is_saved_again_each_time(
    open_saver: SaverOpener,
) -> None:
    """Otherwise, changes to it would go unnoticed."""
    odd = HumanMessage("odd", id="odd", additional_kwargs={"set": {1}})

    def vandal(seen: Messages) -> Messages:
        seen[0].additional_kwargs["set"].add(2)
        return [AIMessage("done")]

    async with open_saver() as saver:
        await _graph(saver).ainvoke({"messages": [odd, *_said(LONG)["messages"]]}, _thread())
        await _graph(saver, vandal).ainvoke(_said(1, LONG), _thread())
        assert (await _messages(_graph(saver)))[0].additional_kwargs == {"set": {1, 2}}


async def test_two_threads_do_not_share(open_saver: SaverOpener) -> None:
    async with open_saver() as saver:
        graph = _graph(saver)
        for thread_id in ("t", "u"):
            await graph.ainvoke(_said(LONG), _thread(thread_id))
        await saver.adelete_thread("u")
        assert await saver.aget_tuple(_thread("u")) is None
        assert await _count(graph) == LONG + 1
    async with open_saver() as saver:
        assert await _count(_graph(saver)) == LONG + 1


async def test_pieces_just_looked_at_are_taken_by_identity() -> None:
    """This applies to a run's first checkpoint. A later one, or a different list, includes changes made since."""
    chunks = MessageChunker(JsonPlusSerializer())
    values = _said(SIZE)
    first = chunks.split("t", "", values)
    values["messages"][0].content = "changed"
    assert chunks.split("t", "", values, unchanged_since_join=True).names == first.names
    changed = chunks.split("t", "", values)
    assert changed.names != first.names
    values["messages"][1] = HumanMessage("replaced", id="m1")
    assert chunks.split("t", "", values, unchanged_since_join=True).names not in (
        first.names,
        changed.names,
    )


def test_an_imprint_sees_every_change() -> None:
    message = HumanMessage("hello", id="1", color="blue")
    imprint = MessageFingerprint.from_messages([message])
    assert imprint is not None
    assert imprint.matches([HumanMessage("hello", id="1", color="blue")])
    assert not imprint.matches([message, message])
    assert not imprint.matches([AIMessage("hello", id="1", color="blue")])
    assert not imprint.matches([HumanMessage("hello", id="1")])
    assert message.model_extra is not None
    message.model_extra["color"] = "red"
    assert not imprint.matches([message])
    message.additional_kwargs["odd"] = {1}
    assert not imprint.matches([message])
    assert MessageFingerprint.from_messages([message]) is None
    assert MessageFingerprint.from_messages(["text"]) is None


async def test_a_thread_that_is_marked_as_unchanged_is_loaded_once_without_comparing(
    open_saver: SaverOpener,
) -> None:
    async with open_saver() as saver:
        graph = _graph(saver)
        await graph.ainvoke(_said(LONG), _thread())
        await _messages(graph)
        saver.mark_unchanged("t")
        assert [await _comparisons(graph) for _ in range(2)] == [0, LONG // SIZE]
        saver.mark_unchanged("t")
        mine = await _messages(graph)
        mine[0].content = "scribble"
        assert (await _texts(graph))[0] == "number 0"
        saver.mark_unchanged("another")
        saver.mark_unchanged("t")
        await saver.adelete_thread("t")
        await graph.ainvoke(_said(LONG), _thread())
        assert await _comparisons(graph) == LONG // SIZE


async def _comparisons(graph: Graph) -> int:
    """Return how many chunks loading a thread compares."""
    compared = 0

    def count(frame: FrameType, event: str, _: object) -> None:
        nonlocal compared
        compared += event == "call" and frame.f_code is MessageFingerprint.matches.__code__

    sys.setprofile(count)
    await _messages(graph)
    sys.setprofile(None)
    return compared


def test_a_kept_fingerprint_takes_its_length_in_memory() -> None:
    """orjson's own results take up to ten times their length."""
    messages = _said(SIZE)["messages"]
    length = len(MessageFingerprint.from_messages(messages).fields)  # type: ignore[union-attr]  # all are messages
    tracemalloc.start()
    try:
        kept = [MessageFingerprint.from_messages(messages) for _ in range(100)]
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used / len(kept) < length + 500
