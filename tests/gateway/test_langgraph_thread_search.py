"""Threads: search by values, copies, pruning, TTL. Also graph drawings and the key-value store."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import pytest
from langgraph.pregel.remote import RemoteGraph

from gateway.runtime.expiry import expire_threads
from store.key_value_store import ItemStore
from tests.gateway.langgraph_server import serving
from tests.gateway.test_langgraph_runs import HELLO, refused
from tests.gateway.test_langgraph_threads import thread_of

Ask = Callable[[], Awaitable[Any]]


async def test_threads_are_found_by_their_values(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        for n in (1, 5, 5):
            thread = await thread_of(api, kind="x")
            await api.sdk.runs.wait(thread, "instant", input={"n": n, **HELLO})
        await thread_of(api, kind="empty")
        found = await api.sdk.threads.search(values={"n": 6}, limit=1)
        assert [one["values"]["n"] for one in found] == [6]
        assert await api.sdk.threads.count(values={"n": 6}) == 2
        assert await api.sdk.threads.count(values={"messages": [{"content": "hi"}]}) == 3
        assert await api.sdk.threads.count(values={"n": 6}, metadata={"kind": "empty"}) == 0
        page = await api.http.post("/threads/search", json={"values": {"n": 6}, "limit": 1})
        assert page.headers["x-pagination-total"] == "2"
        assert page.headers["x-pagination-next"] == "1"


async def test_a_search_shows_what_is_wanted(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        thread = await thread_of(api)
        await api.sdk.runs.wait(thread, "instant", input={"n": 1, **HELLO})
        extract = {
            "last": "values.messages[-1].content",
            "g": "metadata.graph_id",
            "no": "values.x[3]",
        }
        [found] = await api.sdk.threads.search(
            select=["thread_id", "status", "values.n"], extract=extract
        )
        assert found == {
            "thread_id": thread,
            "status": "idle",
            "values": {"n": 2},
            "extracted": {"last": "hi", "g": "instant", "no": None},
        }
        for bad in (
            {"a": "values[x]"},
            {"a": "__import__('os')"},
            {str(n): "values" for n in range(11)},
        ):
            with refused(422, "extract"):
                await api.sdk.threads.search(extract=bad)
        with refused(422, "select"):
            await api.sdk.threads.search(select=["secrets"])
        state = await api.sdk.threads.get_state(thread, select=["next", "values.n"])
        assert state == {"next": [], "values": {"n": 2}}
        [newest] = await api.sdk.threads.get_history(thread, limit=1, select=["checkpoint_id"])
        assert newest.keys() == {"checkpoint_id"}


async def test_a_search_by_values_is_bounded(tmp_path: Path) -> None:
    async with serving(tmp_path, max_searched_threads=2) as api:
        for _ in range(3):
            await thread_of(api)
        with refused(422, "filter by metadata"):
            await api.sdk.threads.search(values={"n": 1})


async def test_a_copy_has_the_state_and_its_past(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        thread = await thread_of(api, user="u1")
        for _ in range(2):
            await api.sdk.runs.wait(thread, "agent", input=HELLO)
        copied = await api.sdk.threads.copy(thread)
        copy = copied["thread_id"]
        assert copy != thread
        assert copied["metadata"]["user"] == "u1"
        one, other = [await api.sdk.threads.get_state(t) for t in (thread, copy)]
        assert other["values"] == one["values"]
        assert other["checkpoint"]["thread_id"] == other["metadata"]["thread_id"] == copy
        pasts = [await api.sdk.threads.get_history(t, limit=20) for t in (thread, copy)]
        assert [s["checkpoint_id"] for s in pasts[0]] == [s["checkpoint_id"] for s in pasts[1]]
        await api.sdk.threads.delete(thread)
        again = await api.sdk.runs.wait(copy, "agent", input={"messages": "and"})
        assert len(again["messages"]) == len(one["values"]["messages"]) + 2


async def test_pruning(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        threads = [await thread_of(api) for _ in range(2)]
        for thread in threads:
            await api.sdk.runs.wait(thread, "instant", input={"n": 1})
            await api.sdk.runs.wait(thread, "instant", input={})
        kept = await api.sdk.threads.prune([*threads, threads[0]], strategy="keep_latest")
        assert kept == {"pruned_count": 2}
        assert len(await api.sdk.threads.get_history(threads[0])) == 1
        assert (await api.sdk.threads.get(threads[0]))["values"]["n"] == 3
        missing = "0b63b403-e0ed-40b2-9589-e740f38a62a3"
        assert await api.sdk.threads.prune([threads[1], missing]) == {"pruned_count": 1}
        assert await api.sdk.threads.count() == 1
        with refused(422, "UUID"):
            await api.sdk.threads.prune(["x"])


async def test_threads_expire_after_their_ttl(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        discarded: list[str] = []

        async def discard(thread_id: str) -> None:
            discarded.append(thread_id)

        gone = (await api.sdk.threads.create(ttl=1))["thread_id"]
        kept = (await api.sdk.threads.create(ttl={"ttl": 1, "strategy": "keep_latest"}))[
            "thread_id"
        ]
        for_ever = await thread_of(api)
        for _ in range(2):
            await api.sdk.runs.wait(kept, "instant", input={"n": 1})
        shown = await api.sdk.threads.get(kept, include=["ttl"])
        assert (shown["ttl"]["ttl_minutes"], shown["ttl"]["strategy"]) == (1, "keep_latest")
        assert "ttl" not in await api.sdk.threads.get(kept)
        assert await expire_threads(api.runs, discard) == 0
        busy = (await api.sdk.threads.create(ttl=1))["thread_id"]
        await api.sdk.runs.create(busy, "slow", input={"n": 1})
        await api.graphs.reached.wait()
        earlier = api.runs.now
        api.runs.now = lambda: earlier() + 61
        assert await expire_threads(api.runs, discard) == 2
        assert discarded == [gone]
        assert {one["thread_id"] for one in await api.sdk.threads.search()} == {
            kept,
            for_ever,
            busy,
        }
        assert len(await api.sdk.threads.get_history(kept)) == 1
        assert await expire_threads(api.runs, discard) == 0
        await api.sdk.threads.update(for_ever, metadata={}, ttl=2)
        api.runs.now = lambda: earlier() + 61 + 121
        await expire_threads(api.runs, discard)
        assert discarded == [gone, for_ever]
        for bad in (0, -5, {"ttl": 1, "strategy": "odd"}):
            with refused(422, "ttl"):
                await api.sdk.threads.create(ttl=bad)


async def test_a_thread_may_be_made_with_a_past(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        steps: Any = [
            {"updates": [{"values": {"n": 1, **HELLO}, "as_node": "__start__"}]},
            {"updates": [{"values": {"n": 7}, "as_node": "one"}]},
        ]
        made = await api.sdk.threads.create(supersteps=steps, graph_id="slow")
        assert made["values"]["n"] == 7
        state = await api.sdk.threads.get_state(made["thread_id"])
        assert state["next"] == ["nap"]
        assert state["values"]["messages"][0]["type"] == "human"
        assert len(await api.sdk.threads.get_history(made["thread_id"])) == 2
        assert (await api.sdk.threads.get(made["thread_id"]))["status"] == "interrupted"
        with refused(422, "graph_id"):
            await api.sdk.threads.create(supersteps=steps)
        bad: Any = [{"updates": [{"values": {}, "as_node": "nobody"}]}]
        with refused(400):
            await api.sdk.threads.create(supersteps=bad, graph_id="slow")
        assert await api.sdk.threads.count() == 1


async def test_graphs_are_drawn_and_described(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        drawn = await api.sdk.assistants.get_graph("parent")
        assert [node["id"] for node in drawn["nodes"]] == ["__start__", "one", "child", "__end__"]
        assert drawn["nodes"][1] == {"id": "one", "type": "runnable", "data": {"name": "one"}}
        assert {"source": "__start__", "target": "one"} in drawn["edges"]
        opened = await api.sdk.assistants.get_graph("parent", xray=True)
        assert "child:child_agent" in [node["id"] for node in opened["nodes"]]
        described = await api.sdk.assistants.get_schemas("agent")
        assert described["graph_id"] == "agent"
        assert set(described["state_schema"]["properties"]) >= {"messages", "n", "title"}
        inner = await api.sdk.assistants.get_subgraphs("parent", recurse=True)
        assert set(inner) == {"child"}
        assert set(await api.sdk.assistants.get_subgraphs("parent", namespace="child")) == {"child"}
        [only] = await api.sdk.assistants.get_versions("agent")
        one = await api.sdk.assistants.get("agent")
        assert await api.sdk.assistants.set_latest("agent", 1) == one
        assert one == only | {"updated_at": one["updated_at"]}
        with refused(422, "xray"):
            await api.sdk.assistants.get_graph("agent", xray=0)


async def test_the_key_value_store(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        store = api.sdk.store
        await store.put_item(["u", "1"], key="k", value={"a": 1, "name": "Ann"})
        await store.put_item(["u", "2"], key="k", value={"a": 5})
        item = await store.get_item(["u", "1"], key="k")
        assert (item["namespace"], item["value"]) == (["u", "1"], {"a": 1, "name": "Ann"})
        assert item["created_at"].endswith("+00:00")
        assert await store.get_item(["u", "1"], key="other") is None
        found = (await store.search_items(["u"], filter={"a": {"$gte": 2}}))["items"]
        assert [one["namespace"] for one in found] == [["u", "2"]]
        assert found[0]["score"] is None
        assert len((await store.search_items(["u"], filter={"name": "Ann"}))["items"]) == 1
        assert len((await store.search_items(["u"], limit=1, offset=1))["items"]) == 1
        assert (await store.search_items(["us"]))["items"] == []
        spaces = await store.list_namespaces(prefix=["u"], max_depth=2)
        assert spaces["namespaces"] == [["u", "1"], ["u", "2"]]
        assert (await store.list_namespaces(suffix=["2"]))["namespaces"] == [["u", "2"]]
        assert (await store.list_namespaces(max_depth=1))["namespaces"] == [["u"]]
        await store.delete_item(["u", "1"], key="k")
        assert await store.get_item(["u", "1"], key="k") is None
        for namespace in ([""], ["a.b"], ["langgraph"], []):
            answer = await api.http.put(
                "/store/items", json={"namespace": namespace, "key": "k", "value": {}}
            )
            assert answer.status_code == 422
        with refused(422, "$near"):
            await store.search_items(["u"], filter={"a": {"$near": 2}})


@pytest.mark.parametrize("label", ["a\x00b", "\x00"])
async def test_namespaces_that_nothing_can_be_kept_under(tmp_path: Path, label: str) -> None:
    async with serving(tmp_path) as api:
        item = {"namespace": [label], "key": "k"}
        answers = [
            await api.http.get("/store/items", params={"namespace": label, "key": "k"}),
            await api.http.put("/store/items", json={**item, "value": {}}),
            await api.http.request("DELETE", "/store/items", json=item),
            await api.http.post("/store/items/search", json={"namespace_prefix": [label]}),
            await api.http.post("/store/namespaces", json={"prefix": [label]}),
        ]
        assert [answer.status_code for answer in answers] == [422, 422, 422, 422, 200]


async def test_graphs_share_the_store_and_it_outlives_the_process(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        assert (await api.sdk.runs.wait(None, "keeping", input={}))["n"] == 1
    async with serving(tmp_path) as api:
        assert (await api.sdk.runs.wait(None, "keeping", input={}))["n"] == 2
        assert (await api.sdk.store.get_item(["runs"], key="count"))["value"] == {"n": 2}
        kept = await anyio.to_thread.run_sync(api.runs.items.get, ("runs",), "count")
        assert kept is not None
        assert kept.value == {"n": 2}
        with pytest.raises(RuntimeError, match="asynchronous methods"):
            api.runs.items.get(("runs",), "count")


async def test_items_expire_unless_they_are_read(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        now = 1000.0
        items = ItemStore(api.runs.items._database, now=lambda: now)
        await items.aput(("t",), "read", {"a": 1}, ttl=1)
        await items.aput(("t",), "left", {"a": 1}, ttl=1)
        await items.aput(("t",), "ever", {"a": 1})
        now += 50
        assert await items.aget(("t",), "read") is not None
        now += 50
        assert await items.aget(("t",), "left") is None
        assert {one.key for one in await items.asearch(("t",))} == {"read", "ever"}
        assert await items.delete_expired() == 1


async def test_a_remote_graph_works_on_this_server(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        remote = RemoteGraph("hitl", client=api.sdk)
        thread: Any = {"configurable": {"thread_id": await thread_of(api)}}
        drawn = await remote.aget_graph()
        assert "ask" in drawn.nodes
        asked = await remote.ainvoke({"n": 1}, thread)
        assert asked is not None
        state = await remote.aget_state(thread)
        assert state.next == ("ask",)
        assert state.interrupts[0].value["question"] == "approve?"
        await remote.aupdate_state(thread, {"n": 40}, as_node="one")
        assert [s.values.get("n") async for s in remote.aget_state_history(thread)][:2] == [40, 2]
        streaming: Any = RemoteGraph("parent", client=api.sdk)
        modes = ["values", "messages"]
        chunks = [
            chunk
            async for chunk in streaming.astream(
                HELLO, thread_of_its_own(await thread_of(api)), stream_mode=modes, subgraphs=True
            )
        ]
        said = [data[0]["content"] for _, mode, data in chunks if mode == "messages"]
        assert "".join(said) == "tok0 tok1 "
        assert any(namespace and namespace[0].startswith("child:") for namespace, _, _ in chunks)
        with pytest.raises(Exception, match="boom"):
            await RemoteGraph("boom", client=api.sdk).ainvoke({"n": 1})


def thread_of_its_own(thread_id: str) -> Any:  # noqa: ANN401 - a RunnableConfig
    return {"configurable": {"thread_id": thread_id}}
