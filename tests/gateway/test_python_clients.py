"""LangGraph's clients for synchronous programs, and RemoteGraph, against the service on a port."""

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import anyio.to_thread
import pytest
from langgraph.pregel.remote import RemoteGraph
from langgraph.types import Command
from langgraph_sdk import get_client, get_sync_client
from langgraph_sdk.client import SyncLangGraphClient
from langgraph_sdk.errors import AuthenticationError, ConflictError, NotFoundError

from tests.gateway.chat_ui import TOKEN, opened

AGENT = "lead_agent"


def human(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


async def in_a_thread(tmp_path: Path, talk: Callable[[str], None], prefix: str = "/api") -> None:
    """Run a synchronous program in a thread while the service keeps running."""
    async with opened(tmp_path) as front:
        with anyio.fail_after(60):
            await anyio.to_thread.run_sync(talk, f"{front.url}{prefix}")


async def test_the_sync_client_on_every_surface(tmp_path: Path) -> None:
    def talk(url: str) -> None:
        with get_sync_client(url=url, api_key=TOKEN, timeout=20) as client:
            _assistants(client)
            _threads(client)
            _runs(client)
            _streams(client)
            _store(client)
        with (
            get_sync_client(url=url, api_key="wrong") as stranger,
            pytest.raises(AuthenticationError, match="token"),
        ):
            stranger.threads.create()

    await in_a_thread(tmp_path, talk)


def _assistants(client: SyncLangGraphClient) -> None:
    [found] = client.assistants.search(graph_id=AGENT)
    assert client.assistants.get(found["assistant_id"])["graph_id"] == AGENT
    drawn = client.assistants.get_graph(found["assistant_id"], xray=True)
    assert {"model", "tools"} <= {str(node["id"]) for node in drawn["nodes"]}
    described = client.assistants.get_schemas(found["assistant_id"])
    assert described["state_schema"]
    client.assistants.get_subgraphs(found["assistant_id"])
    assert client.assistants.count(graph_id=AGENT) == 1
    assert client.assistants.get_versions(found["assistant_id"])[0]["version"] == 1


def _threads(client: SyncLangGraphClient) -> None:
    thread_id = str(uuid4())
    thread = client.threads.create(thread_id=thread_id, metadata={"of": "sync"}, graph_id="instant")
    again = client.threads.create(thread_id=thread_id, if_exists="do_nothing")
    assert again["thread_id"] == thread["thread_id"] == thread_id
    client.threads.update(thread_id, metadata={"colour": "red"})
    [found] = client.threads.search(metadata={"colour": "red"})
    assert found["metadata"] == {"of": "sync", "colour": "red", "graph_id": "instant"}
    assert client.threads.count(metadata={"colour": "red"}) == 1
    client.threads.update_state(thread_id, {"n": 5}, as_node="one")
    state: Any = client.threads.get_state(thread_id)
    assert state["values"] == {"messages": [], "n": 5}
    at = client.threads.get_state(thread_id, checkpoint=state["checkpoint"])
    assert at["values"] == state["values"]
    assert client.threads.get_history(thread_id, limit=5)[0]["values"] == state["values"]
    untyped: Any = client.threads  # the SDK types the result of `copy` as None
    copy = untyped.copy(thread_id)["thread_id"]
    assert client.threads.get_state(copy)["values"] == state["values"]
    client.threads.delete(thread_id)
    with pytest.raises(NotFoundError, match="not found"):
        client.threads.get(thread_id)


def _runs(client: SyncLangGraphClient) -> None:
    thread = client.threads.create()["thread_id"]
    run = client.runs.create(thread, AGENT, input=human("hello"))
    whole: Any = client.runs.join(thread, run["run_id"])
    assert whole["messages"][-1]["content"] == "You said: hello"
    parts = list(client.runs.join_stream(thread, run["run_id"], stream_mode="values"))
    assert (parts[0].event, parts[-1].event) == ("metadata", "values")
    after = list(client.runs.join_stream(thread, run["run_id"], last_event_id=parts[0].id))
    assert len(after) >= len(parts) - 1
    assert client.runs.get(thread, run["run_id"])["status"] == "success"
    assert [one["run_id"] for one in client.runs.list(thread)] == [run["run_id"]]
    hanging = client.runs.create(thread, AGENT, input=human("hang please"))
    with pytest.raises(ConflictError, match="running"):
        client.runs.create(thread, AGENT, input=human("x"), multitask_strategy="reject")
    client.runs.cancel(thread, hanging["run_id"], wait=True)
    assert client.runs.get(thread, hanging["run_id"])["status"] == "interrupted"
    client.runs.delete(thread, hanging["run_id"])
    asked: Any = client.runs.wait(thread, "hitl", input={"n": 1})
    assert asked["__interrupt__"][0]["value"]["question"] == "approve?"
    answered: Any = client.runs.wait(thread, "hitl", command={"resume": "yes"})
    assert answered["answer"] == "yes"
    with pytest.raises(Exception, match="boom"):
        client.runs.wait(None, "boom", input={"n": 1})
    one: Any = {"assistant_id": "instant", "input": {"n": 1}}
    assert len(client.runs.create_batch([one])) == 1


def _streams(client: SyncLangGraphClient) -> None:
    said = ""
    for part in client.runs.stream(
        None, AGENT, input=human("hi"), stream_mode=["messages-tuple", "values", "custom"]
    ):
        assert part.event != "error"
        if part.event == "messages":
            said += part.data[0]["content"]
    assert said == "You said: hi"
    # One such stream is enough, because the SDK takes two seconds to close it.
    with client.threads.stream(assistant_id="hitl") as stream:
        stream.run.start(input={"n": 1})
        for _snapshot in stream.values:
            pass
        assert stream.interrupts[0]["value"] == {"question": "approve?", "n": 2}
        stream.run.respond("yes")
        assert stream.output["answer"] == "yes"


def _store(client: SyncLangGraphClient) -> None:
    client.store.put_item(["sync", "x"], "one", {"colour": "red"})
    item: Any = client.store.get_item(["sync", "x"], "one")
    assert item["value"] == {"colour": "red"}
    found = client.store.search_items(["sync"], filter={"colour": "red"})
    assert [one["key"] for one in found["items"]] == ["one"]
    assert client.store.list_namespaces(["sync"])["namespaces"] == [["sync", "x"]]
    client.store.delete_item(["sync", "x"], "one")
    assert client.store.search_items(["sync"])["items"] == []


async def test_a_remote_graph_for_synchronous_programs(tmp_path: Path) -> None:
    def talk(url: str) -> None:
        with get_sync_client(url=url, api_key=TOKEN, timeout=20) as client:
            _remote(client)

    await in_a_thread(tmp_path, talk, "/api/langgraph")


def _remote(client: SyncLangGraphClient) -> None:
    thread: Any = {"configurable": {"thread_id": client.threads.create()["thread_id"]}}
    remote: Any = RemoteGraph(AGENT, sync_client=client)
    assert remote.invoke(human("hello"), thread)["messages"][-1]["content"] == "You said: hello"
    modes = ["values", "messages"]
    chunks = list(remote.stream(human("again"), thread, stream_mode=modes, version="v2"))
    said = [chunk["data"][0]["content"] for chunk in chunks if chunk["type"] == "messages"]
    assert "".join(said) == "You said: again"
    assert len(remote.get_state(thread).values["messages"]) == 4
    states = list(remote.get_state_history(thread, limit=3))
    assert len(states) == 3
    assert "model" in remote.get_graph(xray=True).nodes
    paused = list(remote.stream(human("list it"), thread, interrupt_before=["tools"]))
    assert paused
    assert remote.get_state(thread).next == ("tools",)
    assert remote.invoke(None, thread)["messages"][-1]["content"].startswith("The tool said")
    asking: Any = RemoteGraph("hitl", sync_client=client)
    thread = {"configurable": {"thread_id": client.threads.create()["thread_id"]}}
    asking.invoke({"n": 1}, thread)
    assert asking.invoke(Command(resume="yes"), thread)["answer"] == "yes"
    thread = {"configurable": {"thread_id": client.threads.create()["thread_id"]}}
    with asking.stream_events({"n": 1}, thread, version="v3") as run:
        for _snapshot in run.values:
            pass
        assert run.interrupted
    with asking.stream_events(Command(resume="sure"), thread, version="v3") as run:
        assert run.output["answer"] == "sure"


async def test_a_remote_graph_streams_events(tmp_path: Path) -> None:
    async with (
        opened(tmp_path) as front,
        get_client(url=f"{front.url}/api", api_key=TOKEN) as client,
    ):
        remote: Any = RemoteGraph(AGENT, client=client)
        with anyio.fail_after(30):
            async with await remote.astream_events(human("hello"), version="v3") as run:
                output = await run.output()
        assert output["messages"][-1]["content"] == "You said: hello"
