"""Assistants created over the API: versions, runs with their settings, deletion."""

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from langgraph_sdk.errors import ConflictError, NotFoundError

from gateway.runtime.assistants import assistant_id_for_graph
from store.assistants import MAX_VERSIONS, Assistant, AssistantStore, AssistantUpdate
from store.config import StoreConfig
from store.database import Database
from tests.gateway.langgraph_server import ApiServer, serving
from tests.gateway.test_langgraph_protocol import command

TALL: dict[str, Any] = {
    "name": "tall",
    "description": "Looks far",
    "metadata": {"team": "a"},
    "config": {"recursion_limit": 7, "tags": ["t"], "metadata": {"m": 1}},
    "context": {"height": 3, "width": 1},
}


async def looked(api: ApiServer, assistant: str, **asked: Any) -> dict[str, Any]:  # noqa: ANN401 - options
    thread = (await api.sdk.threads.create())["thread_id"]
    values = await api.sdk.runs.wait(thread, assistant, input={"n": 1}, **asked)
    return dict(values["seen"])


async def test_an_assistant_from_its_making_to_its_end(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        made = await api.sdk.assistants.create("looking", **TALL)
        assert made.keys() == (await api.sdk.assistants.get("agent")).keys()
        assert {key: made[key] for key in TALL} == TALL
        assert (made["version"], made["graph_id"]) == (1, "looking")
        ident = made["assistant_id"]
        assert await api.sdk.assistants.get(ident.upper()) == made
        assert (await api.sdk.assistants.get_schemas(ident))["graph_id"] == "looking"
        await api.sdk.assistants.delete(ident)
        with pytest.raises(NotFoundError):
            await api.sdk.assistants.get(ident)
        with pytest.raises(NotFoundError):
            await api.sdk.assistants.delete(ident)
        with pytest.raises(NotFoundError):
            await api.sdk.assistants.update(ident, name="x")
        with pytest.raises(NotFoundError):
            await api.sdk.runs.create(None, ident, input={})


async def test_an_assistant_outlives_the_process(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        made = await api.sdk.assistants.create("looking", **TALL)
    async with serving(tmp_path) as api:
        assert await api.sdk.assistants.get(made["assistant_id"]) == made
        seen = await looked(api, made["assistant_id"])
        assert seen["context"]["height"] == 3


async def test_a_run_has_its_assistants_settings_unless_it_sets_them_itself(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        ident = (await api.sdk.assistants.create("looking", **TALL))["assistant_id"]
        seen = await looked(api, ident)
        assert seen["recursion_limit"] == 7
        assert seen["context"].items() >= {"height": 3, "width": 1}.items()
        assert seen["configurable"].items() >= {"height": 3, "width": 1}.items()
        for given in ({"config": {"configurable": {"height": 9}}}, {"context": {"height": 9}}):
            seen = await looked(api, ident, **given)
            assert (seen["context"]["height"], seen["context"]["width"]) == (9, 1)
        seen = await looked(api, ident, config={"recursion_limit": 9})
        assert seen["recursion_limit"] == 9


async def test_runs_and_threads_name_the_assistant(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        ident = (await api.sdk.assistants.create("looking", **TALL))["assistant_id"]
        thread = (await api.sdk.threads.create())["thread_id"]
        run = await api.sdk.runs.create(thread, ident, input={"n": 1})
        assert run["assistant_id"] == ident
        assert run["kwargs"]["context"] == {}
        assert run["metadata"] == {"graph_id": "looking", "assistant_id": ident}
        await api.sdk.runs.join(thread, run["run_id"])
        metadata = (await api.sdk.threads.get(thread))["metadata"]
        assert metadata == {"graph_id": "looking", "assistant_id": ident}
        [found] = await api.sdk.threads.search(metadata={"assistant_id": ident})
        assert found["thread_id"] == thread


async def test_assistants_have_versions(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        first = await api.sdk.assistants.create("looking", **TALL)
        ident = first["assistant_id"]
        second = await api.sdk.assistants.update(
            ident, context={"height": 4}, metadata={"new": True}, name="taller"
        )
        assert second["version"] == 2
        assert second["created_at"] == first["created_at"]
        assert second["metadata"] == {"team": "a", "new": True}
        assert (second["context"], second["name"]) == ({"height": 4}, "taller")
        assert (second["config"], second["description"]) == (first["config"], "Looks far")
        listed = await api.sdk.assistants.get_versions(ident)
        assert [one["version"] for one in listed] == [2, 1]
        assert [one["context"]["height"] for one in listed] == [4, 3]
        only_new = await api.sdk.assistants.get_versions(ident, metadata={"new": True})
        assert [one["version"] for one in only_new] == [2]
        assert [v["version"] for v in await api.sdk.assistants.get_versions(ident, offset=1)] == [1]
        assert (await looked(api, ident))["context"]["height"] == 4
        back = await api.sdk.assistants.set_latest(ident, 1)
        assert (back["version"], back["name"], back["context"]) == (1, "tall", TALL["context"])
        assert (await looked(api, ident))["context"]["height"] == 3
        third = await api.sdk.assistants.update(ident, description="x")
        assert (third["version"], third["name"]) == (3, "tall")
        with pytest.raises(NotFoundError):
            await api.sdk.assistants.set_latest(ident, 9)


async def test_an_id_is_taken_once(tmp_path: Path) -> None:
    ident = str(uuid4())
    async with serving(tmp_path) as api:
        made = await api.sdk.assistants.create("looking", assistant_id=ident, **TALL)
        with pytest.raises(ConflictError):
            await api.sdk.assistants.create("looking", assistant_id=ident)
        with pytest.raises(ConflictError):
            await api.sdk.assistants.create("agent", assistant_id=assistant_id_for_graph("agent"))
        same = await api.sdk.assistants.create(
            "agent", assistant_id=ident, if_exists="do_nothing", name="other"
        )
        assert same == made


async def test_the_assistants_of_graphs_change_but_stay(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        plain = await api.sdk.assistants.get("looking")
        changed = await api.sdk.assistants.update("looking", context={"height": 5})
        assert changed["assistant_id"] == plain["assistant_id"]
        assert (changed["version"], changed["metadata"]) == (2, {"created_by": "system"})
        for name in ("looking", plain["assistant_id"]):
            assert (await looked(api, name))["context"]["height"] == 5
        with pytest.raises(ConflictError):
            await api.sdk.assistants.delete("looking")
        back = await api.sdk.assistants.set_latest("looking", 1)
        assert {**back, "updated_at": ""} == {**plain, "updated_at": ""}
        everything = await api.sdk.assistants.search(limit=100)
        assert [one["name"] for one in everything] == list(api.graphs.sources)


async def test_assistants_are_found_sorted_counted_and_paged(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        for name in ("Zed", "zulu", "yak"):
            await api.sdk.assistants.create("looking", name=name, metadata={"kind": name[0]})
        found = await api.sdk.assistants.search(name="z")
        assert [one["name"] for one in found] == ["Zed", "zulu"]
        assert await api.sdk.assistants.count(name="z") == 2
        assert await api.sdk.assistants.count(graph_id="looking") == 4
        [yak] = await api.sdk.assistants.search(metadata={"kind": "y"}, select=["name"])
        assert yak == {"name": "yak"}
        body = {"graph_id": "looking", "sort_by": "name", "sort_order": "asc", "limit": 3}
        answer = await api.http.post("/assistants/search", json=body)
        assert [one["name"] for one in answer.json()] == ["Zed", "looking", "yak"]
        assert answer.headers["x-pagination-total"] == "4"
        assert answer.headers["x-pagination-next"] == "3"
        answer = await api.http.post("/assistants/search", json={**body, "offset": 3})
        assert [one["name"] for one in answer.json()] == ["zulu"]
        assert "x-pagination-next" not in answer.headers


async def test_its_threads_go_with_it_if_that_is_asked_for(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        keeping, taking = [
            (await api.sdk.assistants.create("slow", name=name))["assistant_id"] for name in "kt"
        ]
        threads = []
        for ident in (keeping, taking, taking):
            threads.append((await api.sdk.threads.create())["thread_id"])
            await api.sdk.runs.create(threads[-1], ident, input={"n": 1})
        await api.graphs.reached.wait()
        await api.sdk.assistants.delete(taking, delete_threads=True)
        left = {one["thread_id"] for one in await api.sdk.threads.search()}
        assert left == {threads[0]}
        await api.sdk.assistants.delete(keeping)
        assert len(await api.sdk.threads.search()) == 1
        api.graphs.gate.set()


async def test_an_answer_goes_to_the_assistant_that_asked_or_its_graph(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        made = await api.sdk.assistants.create("hitl", name="asks", context={"height": 3})
        ident = made["assistant_id"]
        for is_gone in (False, True):
            thread = str(uuid4())
            begun = await command(api, thread, "run.start", assistant_id=ident, input={"n": 1})
            await api.sdk.runs.join(thread, begun["result"]["run_id"])
            [[asked]] = (await api.sdk.threads.get(thread))["interrupts"].values()
            if is_gone:
                await api.sdk.assistants.delete(ident)
            answer = {"interrupt_id": asked["id"], "response": "yes"}
            told = await command(api, thread, "input.respond", **answer)
            assert told["type"] == "success", told
            [last, _] = await api.sdk.runs.list(thread)
            assert await api.sdk.runs.join(thread, last["run_id"])
            assert (last["assistant_id"] == ident) != is_gone
            state = await api.sdk.threads.get_state(thread)
            assert state["values"]["answer"] == "yes"


UNUSABLE: list[tuple[int, dict[str, Any]]] = [
    (404, {"graph_id": "nope"}),
    (422, {}),
    (422, {"graph_id": 5}),
    (422, {"graph_id": "agent", "assistant_id": "not-an-id"}),
    (422, {"graph_id": "agent", "config": []}),
    (422, {"graph_id": "agent", "config": {"configurable": 5}}),
    (422, {"graph_id": "agent", "if_exists": "replace"}),
    (422, {"graph_id": "agent", "name": "x" * 1001}),
    (400, {"graph_id": "agent", "config": {"configurable": {"a": 1}}, "context": {"a": 2}}),
]


async def test_assistants_that_no_run_could_use_are_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as api:
        before = await api.sdk.assistants.count()
        for status, body in UNUSABLE:
            answer = await api.http.post("/assistants", json=body)
            assert answer.status_code == status, answer.text
            assert answer.json().keys() == {"detail"}
            if body and not body.keys() & {"if_exists", "assistant_id"}:
                patched = await api.http.patch("/assistants/looking", json=body)
                assert patched.status_code == status
        assert await api.sdk.assistants.count() == before


async def test_only_so_many_versions_are_kept(tmp_path: Path) -> None:
    async with Database.open(StoreConfig(), tmp_path) as database:
        assistants = AssistantStore(database)
        made = await assistants.create(Assistant(assistant_id="a", graph_id="g", name="n"))
        assert (await assistants.list_versions("a")) == [made]
        work = MAX_VERSIONS + 2
        for number in range(work):
            change = AssistantUpdate(context={"n": number})
            await assistants.update("a", change, base=None, now=1.0)
        kept = await assistants.list_versions("a")
        assert [one.version for one in kept] == list(range(work + 1, work + 1 - MAX_VERSIONS, -1))
        assert await AssistantStore(database).find("a") == await assistants.find("a") == kept[0]


@pytest.mark.parametrize(
    ("metadata", "found"),
    [
        ({"owner": {"team": "a"}}, True),
        ({"owner": {"team": "b"}}, False),
        ({"owner": {}}, True),
        ({"owner": "a"}, False),
        ({"labels": [{"name": "x"}]}, True),
        ({"labels": ["new"]}, True),
        ({"labels": ["old"]}, False),
    ],
)
async def test_a_part_of_nested_metadata_finds_an_assistant(
    tmp_path: Path, metadata: dict[str, Any], *, found: bool
) -> None:
    """Like PostgreSQL's operator `@>`, which LangGraph's server uses."""
    whole = {"owner": {"team": "a", "name": "Ann"}, "labels": ["new", {"name": "x", "n": 1}]}
    async with serving(tmp_path) as api:
        made = await api.sdk.assistants.create("looking", metadata=whole)
        listed = await api.sdk.assistants.search(metadata=metadata)
        assert (made in listed) is found
        assert (await api.sdk.assistants.count(metadata=metadata) == 1) is found
        versions = await api.sdk.assistants.get_versions(made["assistant_id"], metadata=metadata)
        assert len(versions) == int(found)
