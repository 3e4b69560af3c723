"""The runs API with the stock SDK, over TCP and in process, under both prefixes."""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import httpx
import pytest
from langgraph_sdk.client import LangGraphClient
from typing_extensions import override

from tests.gateway.langgraph_server import PREFIXES, ApiServer, Way, serving

WAYS: list[tuple[Way, str]] = [
    ("tcp", PREFIXES[0]),
    ("process", PREFIXES[1]),
]
Opening = Callable[..., AbstractAsyncContextManager[ApiServer]]
HELLO = {"messages": [{"role": "user", "content": "hi", "id": "event-1"}]}


@pytest.fixture(params=WAYS, ids=["tcp", "process"])
def at(request: pytest.FixtureRequest, tmp_path: Path) -> Opening:
    way, prefix = request.param
    return lambda **more: serving(tmp_path, way=way, prefix=prefix, **more)


async def collect(stream: AsyncIterator[Any]) -> list[Any]:
    with anyio.fail_after(20):
        return [part async for part in stream]


@contextmanager
def refused(status: int, text: str = "") -> Iterator[None]:
    """Expect a status. The SDK's `wait` and `join` raise httpx's error, and its other methods raise the SDK's own."""
    with pytest.raises(httpx.HTTPStatusError) as caught:
        yield
    assert caught.value.response.status_code == status
    told = [str(caught.value), *getattr(caught.value, "__notes__", [])]
    assert text in "\n".join(told)


async def new_thread(api: ApiServer) -> str:
    return str((await api.sdk.threads.create())["thread_id"])


async def test_wait_returns_the_values(at: Opening) -> None:
    async with at() as api:
        thread = await new_thread(api)
        values = await api.sdk.runs.wait(thread, "instant", input={"n": 1})
        assert values == {"messages": [], "n": 2}
        runs = await api.sdk.runs.list(thread)
        assert [run["status"] for run in runs] == ["success"]
        found = await api.sdk.threads.get(thread)
        assert (found["status"], found["values"]["n"]) == ("idle", 2)
        assert found["metadata"]["graph_id"] == "instant"


async def test_stream_has_metadata_first_end_last_and_an_id_everywhere(at: Opening) -> None:
    async with at() as api:
        thread = await new_thread(api)
        created: list[Any] = []
        parts = await collect(
            api.sdk.runs.stream(
                thread,
                "agent",
                input=HELLO,
                stream_mode=["messages-tuple", "values"],
                on_run_created=created.append,
            )
        )
        assert [part.event for part in parts] == [
            "metadata",
            "values",
            *["messages"] * 4,
            "values",
            "end",
        ]
        assert [part.id for part in parts] == [str(n) for n in range(1, len(parts) + 1)]
        run_id = parts[0].data["run_id"]
        assert parts[-1].data == {"run_id": run_id, "status": "success"}
        assert created == [{"run_id": run_id, "thread_id": thread}]
        said = [part.data[0] for part in parts if part.event == "messages"]
        assert "".join(chunk["content"] for chunk in said) == "tok0 tok1 tok2 "
        assert said[-1]["chunk_position"] == "last"
        details = parts[2].data[1]
        assert details["langgraph_node"] == "agent"
        assert details["thread_id"] == thread
        assert "lc_versions" not in details
        final = parts[-2].data["messages"]
        assert {chunk["id"] for chunk in said} == {final[-1]["id"]}
        assert (final[0]["id"], final[0]["type"]) == ("event-1", "human")


async def test_a_broken_stream_is_resumed_by_the_sdk(at: Opening) -> None:
    """The Location header includes our prefix, and event ids make the resumption exact."""
    async with at() as api:
        thread = await new_thread(api)
        run = await api.sdk.runs.create(
            thread, "paced", input=HELLO, stream_mode=["messages-tuple", "values"]
        )
        for _ in range(6):
            api.graphs.tokens.release()
        whole = await collect(api.sdk.runs.join_stream(thread, run["run_id"]))
        assert [int(part.id) for part in whole] == list(range(1, len(whole) + 1))
        response = await api.http.get(
            f"/threads/{thread}/runs/{run['run_id']}/stream", headers={"Last-Event-ID": "4"}
        )
        rest = await collect(
            api.sdk.http.stream(response.headers["location"], "GET", headers={"Last-Event-ID": "4"})
        )
        assert [(part.id, part.event, part.data) for part in rest] == [
            (part.id, part.event, part.data) for part in whole[4:]
        ]


@pytest.mark.parametrize("prefix", PREFIXES)
@pytest.mark.filterwarnings("ignore:Reconnecting")
async def test_a_dropped_connection_is_taken_up_again_by_the_sdk(
    tmp_path: Path, prefix: str
) -> None:
    """The connection breaks in the middle. The SDK follows Location with the last id it received."""
    async with serving(tmp_path, prefix=prefix) as api:
        thread = await new_thread(api)
        cutting = CuttingTransport(api.http._transport)
        async with httpx.AsyncClient(base_url=api.url, transport=cutting) as http:
            for _ in range(6):
                api.graphs.tokens.release()
            parts = await collect(
                LangGraphClient(http).runs.stream(
                    thread, "paced", input={}, stream_mode="messages-tuple"
                )
            )
        assert [part.id for part in parts] == [str(n) for n in range(1, 10)]
        assert parts[-1].event == "end"
        assert cutting.paths[-1].startswith(f"{prefix}/threads/{thread}/runs/")


class CuttingTransport(httpx.AsyncBaseTransport):
    """Breaks the first streamed answer after its first chunk."""

    def __init__(self, inner: httpx.AsyncBaseTransport) -> None:
        self.paths: list[str] = []
        self._inner = inner

    @override
    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.paths.append(request.url.path)
        response = await self._inner.handle_async_request(request)
        if len(self.paths) > 1:
            return response

        async def half() -> AsyncIterator[bytes]:
            async for chunk in response.aiter_raw():
                yield chunk
                break
            await response.aclose()
            raise httpx.ReadError("cut")

        return httpx.Response(response.status_code, headers=response.headers, content=half())


async def test_the_events_of_a_run_before_a_restart_are_gone_but_not_its_state(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as api:
        thread = await new_thread(api)
        run = await api.sdk.runs.create(thread, "instant", input={"n": 1})
        await api.sdk.runs.join(thread, run["run_id"])
    async with serving(tmp_path) as api:
        with anyio.fail_after(20):
            parts = await collect(
                api.sdk.runs.join_stream(thread, run["run_id"], last_event_id="2")
            )
        assert [(part.event, part.id) for part in parts] == [
            ("gap", "3"),
            ("values", "4"),
            ("end", "5"),
        ]
        assert parts[1].data["n"] == 2
        assert parts[2].data == {"run_id": run["run_id"], "status": "success"}
        assert (await api.sdk.runs.join(thread, run["run_id"]))["n"] == 2


async def test_a_late_joiner_of_a_live_run_gets_everything(at: Opening) -> None:
    async with at() as api:
        thread = await new_thread(api)
        run = await api.sdk.runs.create(thread, "paced", input=HELLO, stream_mode="messages-tuple")
        for _ in range(3):
            api.graphs.tokens.release()
        seen: list[Any] = []
        with anyio.fail_after(20):
            async for part in api.sdk.runs.join_stream(thread, run["run_id"]):
                seen.append(part)
                if len(seen) == 4:
                    for _ in range(3):
                        api.graphs.tokens.release()
        assert [part.event for part in seen] == ["metadata", *["messages"] * 7, "end"]


async def test_replay_can_be_limited_to_modes(at: Opening) -> None:
    async with at() as api:
        thread = await new_thread(api)
        run = await api.sdk.runs.create(
            thread, "agent", input=HELLO, stream_mode=["messages-tuple", "values", "updates"]
        )
        await api.sdk.runs.join(thread, run["run_id"])
        for asked in ("values", ["values"], ["values", "updates"]):
            parts = await collect(
                api.sdk.runs.join_stream(thread, run["run_id"], stream_mode=asked)
            )
            events = {part.event for part in parts}
            wanted = {asked} if isinstance(asked, str) else set(asked)
            assert events == {"metadata", "end", *wanted}
        listed = await api.http.get(
            f"/threads/{thread}/runs/{run['run_id']}/stream",
            params={"stream_mode": '["messages-tuple"]'},
        )
        assert "event: messages\n" in listed.text
        assert "event: values\n" not in listed.text


async def test_a_finished_run_can_be_joined(at: Opening) -> None:
    async with at() as api:
        thread = await new_thread(api)
        run = await api.sdk.runs.create(thread, "instant", input={"n": 5})
        assert run["status"] == "pending"
        assert (await api.sdk.runs.join(thread, run["run_id"]))["n"] == 6
        assert (await api.sdk.runs.get(thread, run["run_id"]))["status"] == "success"
        with refused(404):
            await api.sdk.runs.join(thread, str(uuid4()))
        with refused(404):
            await collect(api.sdk.runs.join_stream(thread, str(uuid4())))


async def test_errors_of_the_graph_are_streamed(at: Opening) -> None:
    async with at() as api:
        thread = await new_thread(api)
        parts = await collect(
            api.sdk.runs.stream(thread, "boom", input={"n": 1}, stream_mode="updates")
        )
        assert [part.event for part in parts] == ["metadata", "updates", "error", "end"]
        assert parts[2].data == {"error": "ValueError", "message": "boom: graph node failed"}
        assert parts[3].data["status"] == "error"
        with pytest.raises(Exception, match="ValueError: boom: graph node failed"):
            await api.sdk.runs.wait(thread, "boom", input={"n": 1})
        raw = await api.sdk.runs.wait(thread, "boom", input={"n": 1}, raise_error=False)
        assert raw["__error__"]["error"] == "ValueError"
        found = await api.sdk.threads.get(thread)
        assert found["status"] == "error"
        assert found["error"] == {"error": "ValueError", "message": "boom: graph node failed"}
        assert [run["status"] for run in await api.sdk.runs.list(thread)] == ["error"] * 3
        hidden = await api.sdk.runs.wait(thread, "secretive", input={}, raise_error=False)
        assert hidden["__error__"] == {
            "error": "OSError",
            "message": "An internal error occurred",
        }


async def test_an_error_among_tokens_keeps_the_text_before_it(at: Opening) -> None:
    async with at() as api:
        parts = await collect(
            api.sdk.runs.stream(None, "cut", input=HELLO, stream_mode="messages-tuple")
        )
        assert [part.event for part in parts] == [
            "metadata",
            "messages",
            "messages",
            "error",
            "end",
        ]


async def test_an_interrupted_run_can_be_resumed(at: Opening) -> None:
    async with at() as api:
        thread = await new_thread(api)
        parts = await collect(
            api.sdk.runs.stream(thread, "hitl", input={"n": 1}, stream_mode=["values", "updates"])
        )
        assert parts[-3].event == "updates"
        asked = parts[-2].data["__interrupt__"][0]
        assert asked["value"] == {"question": "approve?", "n": 2}
        assert parts[-1].data["status"] == "success"
        found = await api.sdk.threads.get(thread)
        assert found["status"] == "interrupted"
        [[waiting]] = found["interrupts"].values()
        assert waiting == {"id": asked["id"], "value": asked["value"]}
        state = await api.sdk.threads.get_state(thread)
        assert state["next"] == ["ask"]
        assert state["tasks"][0]["interrupts"] == [waiting]
        values = await api.sdk.runs.wait(thread, "hitl", command={"resume": "yes"})
        assert values == {"messages": [], "answer": "yes", "n": 102}
        assert (await api.sdk.threads.get(thread))["status"] == "idle"
        waited = await api.sdk.runs.wait(thread, "hitl", input={"n": 1})
        assert waited["__interrupt__"][0]["value"]["question"] == "approve?"


async def test_nodes_that_ask_side_by_side(at: Opening) -> None:
    """Each question has its own `values` event. A client that waits for the result gets all of them."""
    async with at() as api:
        thread = await new_thread(api)
        waited = await api.sdk.runs.wait(thread, "asking-twice", input={"n": 1})
        asked = {one["id"] for one in waited["__interrupt__"]}
        assert len(asked) == 2
        assert waited["n"] == 1
        [run] = await api.sdk.runs.list(thread)
        joined = await api.sdk.runs.join(thread, run["run_id"])
        assert {one["id"] for one in joined["__interrupt__"]} == asked


async def test_a_node_that_ends_beside_a_question_does_not_hide_it(at: Opening) -> None:
    """LangGraph's last `values` event has the writes of the other nodes but not the interrupts."""
    async with at() as api:
        thread = await new_thread(api)
        waited = await api.sdk.runs.wait(thread, "asking-beside", input={"n": 1})
        assert [one["value"]["question"] for one in waited["__interrupt__"]] == ["approve?"]
        found = await api.sdk.threads.get(thread)
        assert found["status"] == "interrupted"
        assert len(found["interrupts"]) == 1


async def test_an_update_may_be_a_list_of_pairs(at: Opening) -> None:
    """The SDK's type allows tuples in a command's update, which become lists in JSON."""
    async with at() as api:
        thread = await new_thread(api)
        await api.sdk.runs.wait(thread, "hitl", input={"n": 1})
        values = await api.sdk.runs.wait(
            thread, "hitl", command={"update": [("title", "Pairs")], "goto": "after"}
        )
        assert values["title"] == "Pairs"
        for wrong in ("text", [["title"]], [[1, 2]], 5):
            with refused(422, "command.update"):
                await api.sdk.runs.wait(thread, "hitl", command={"update": wrong, "goto": "after"})


async def test_a_recursion_limit_is_a_number(at: Opening) -> None:
    async with at() as api:
        thread = await new_thread(api)
        for wrong in ("25", 2.5, True):
            with refused(422, "recursion_limit"):
                await api.sdk.runs.wait(thread, "instant", config={"recursion_limit": wrong})


async def test_interrupt_before_stops_before_a_step(at: Opening) -> None:
    async with at() as api:
        thread = await new_thread(api)
        parts = await collect(
            api.sdk.runs.stream(
                thread,
                "hitl",
                input={"n": 1},
                interrupt_before=["ask"],
                stream_mode=["values", "updates"],
            )
        )
        assert parts[-2].data == {"__interrupt__": []}
        assert (await api.sdk.threads.get(thread))["status"] == "interrupted"


async def test_cancel_ends_the_run_and_its_stream(at: Opening) -> None:
    async with at() as api:
        thread = await new_thread(api)
        run = await api.sdk.runs.create(thread, "slow", input={"n": 1}, stream_mode="values")
        await api.graphs.reached.wait()
        assert (await api.sdk.threads.get(thread))["status"] == "busy"
        assert (await api.sdk.runs.get(thread, run["run_id"]))["status"] == "running"
        with anyio.fail_after(20):
            await api.sdk.runs.cancel(thread, run["run_id"], wait=True)
        assert api.graphs.stopped.is_set()
        parts = await collect(api.sdk.runs.join_stream(thread, run["run_id"]))
        assert parts[-1].data["status"] == "interrupted"
        assert "error" not in [part.event for part in parts]
        assert (await api.sdk.runs.get(thread, run["run_id"]))["status"] == "interrupted"
        found = await api.sdk.threads.get(thread)
        assert (found["status"], found["values"]["n"]) == ("interrupted", 2)
        assert (await api.sdk.runs.join(thread, run["run_id"]))["n"] == 2
        for unknown in (run["run_id"], str(uuid4())):
            with refused(404):
                await api.sdk.runs.cancel(thread, unknown)


async def test_cancel_closes_the_models_stream(at: Opening) -> None:
    async with at() as api:
        thread = await new_thread(api)
        run = await api.sdk.runs.create(thread, "paced", input=HELLO, stream_mode="messages-tuple")
        api.graphs.tokens.release()
        with anyio.fail_after(20):
            async for part in api.sdk.runs.join_stream(thread, run["run_id"]):
                if part.event == "messages":
                    await api.sdk.runs.cancel(thread, run["run_id"])
                    await api.graphs.closed.wait()


async def test_a_run_goes_on_from_its_checkpoint(at: Opening) -> None:
    async with at() as api:
        thread = await new_thread(api)
        run = await api.sdk.runs.create(thread, "slow", input={"n": 1}, durability="sync")
        await api.graphs.reached.wait()
        await api.sdk.runs.cancel(thread, run["run_id"], wait=True)
        api.graphs.gate.set()
        values = await api.sdk.runs.wait(thread, "slow", input=None)
        assert values["n"] == 102
        assert api.graphs.calls == {"one": 1, "nap": 2, "after": 1}
        assert values["title"] == "Rested"
        assert (await api.runs.threads.get(thread)).title == "Rested"


async def test_the_reject_strategy_refuses_a_second_run(at: Opening) -> None:
    async with at() as api:
        thread = await new_thread(api)
        await api.sdk.runs.create(thread, "slow", input={"n": 1})
        with refused(409, "already running a task"):
            await api.sdk.runs.wait(thread, "instant", input={}, multitask_strategy="reject")
        with refused(409):
            await api.sdk.threads.update_state(thread, {"n": 3})
        assert len(await api.sdk.runs.list(thread)) == 1


async def test_enqueue_runs_in_order(at: Opening) -> None:
    async with at() as api:
        thread = await new_thread(api)
        first = await api.sdk.runs.create(thread, "slow", input={"n": 1})
        await api.graphs.reached.wait()
        second = await api.sdk.runs.create(thread, "instant", input={"n": 10})
        third = await api.sdk.runs.create(thread, "instant")
        rows = await api.sdk.runs.list(thread)
        assert [run["run_id"] for run in rows] == [
            third["run_id"],
            second["run_id"],
            first["run_id"],
        ]
        assert [run["status"] for run in rows] == ["pending", "pending", "running"]
        api.graphs.gate.set()
        assert (await api.sdk.runs.join(thread, first["run_id"]))["n"] == 102
        assert (await api.sdk.runs.join(thread, second["run_id"]))["n"] == 11
        with anyio.fail_after(20):
            await api.sdk.runs.join(thread, third["run_id"])
        assert (await api.sdk.threads.get(thread))["status"] == "idle"
        assert {run["status"] for run in await api.sdk.runs.list(thread)} == {"success"}


async def test_a_waiting_run_can_be_canceled(at: Opening) -> None:
    async with at() as api:
        thread = await new_thread(api)
        await api.sdk.runs.create(thread, "slow", input={"n": 1})
        waiting = await api.sdk.runs.create(thread, "instant", input={"n": 1})
        await api.sdk.runs.cancel(thread, waiting["run_id"], wait=True)
        assert (await api.sdk.runs.get(thread, waiting["run_id"]))["status"] == "interrupted"
        assert (await api.sdk.threads.get(thread))["status"] == "busy"


async def test_the_interrupt_strategy_ends_the_first_run(at: Opening) -> None:
    async with at() as api:
        thread = await new_thread(api)
        first = await api.sdk.runs.create(thread, "slow", input={"n": 1})
        await api.graphs.reached.wait()
        values = await api.sdk.runs.wait(
            thread, "instant", input={"n": 10}, multitask_strategy="interrupt"
        )
        assert values["n"] == 11
        assert (await api.sdk.runs.get(thread, first["run_id"]))["status"] == "interrupted"
        assert (await api.sdk.threads.get(thread))["status"] == "idle"


async def test_rollback_takes_the_thread_back(at: Opening) -> None:
    async with at() as api:
        thread = await new_thread(api)
        await api.sdk.runs.wait(thread, "instant", input={"n": 1, "answer": "kept"})
        first = await api.sdk.runs.create(
            thread, "slow", input={"n": 50, "answer": "undone"}, durability="sync"
        )
        await api.graphs.reached.wait()
        values = await api.sdk.runs.wait(
            thread, "instant", input={"n": 10}, multitask_strategy="rollback"
        )
        assert (values["n"], values["answer"]) == (11, "kept")
        with refused(404):
            await api.sdk.runs.get(thread, first["run_id"])
        assert len(await api.sdk.runs.list(thread)) == 2


async def test_rollback_of_a_resumed_run_asks_again(at: Opening) -> None:
    async with at() as api:
        thread = await new_thread(api)
        await api.sdk.runs.wait(thread, "hitl", input={"n": 1})
        run = await api.sdk.runs.create(
            thread, "hitl", command={"resume": "yes"}, interrupt_before=["after"], durability="sync"
        )
        await api.sdk.runs.join(thread, run["run_id"])
        assert (await api.sdk.threads.get_state(thread))["next"] == ["after"]
        await api.checkpointer.rollback_run(thread, run["run_id"])
        state = await api.sdk.threads.get_state(thread)
        assert state["next"] == ["ask"]
        assert state["interrupts"][0]["value"]["question"] == "approve?"
        values = await api.sdk.runs.wait(thread, "hitl", command={"resume": "no"})
        assert values["answer"] == "no"


async def test_cancel_with_rollback_removes_the_run(at: Opening) -> None:
    async with at() as api:
        thread = await new_thread(api)
        run = await api.sdk.runs.create(thread, "slow", input={"n": 1})
        await api.graphs.reached.wait()
        await api.sdk.runs.cancel(thread, run["run_id"], wait=True, action="rollback")
        with refused(404):
            await api.sdk.runs.get(thread, run["run_id"])
        found = await api.sdk.threads.get(thread)
        assert (found["status"], found["values"]) == ("idle", None)


async def test_disconnect_cancels_when_asked_to(at: Opening) -> None:
    async with at() as api:
        thread = await new_thread(api)
        request = {"assistant_id": "slow", "input": {}, "on_disconnect": "cancel"}
        async with api.http.stream("POST", f"/threads/{thread}/runs/stream", json=request):
            await api.graphs.reached.wait()
        with anyio.fail_after(20):
            await api.graphs.stopped.wait()
            [run] = await api.sdk.runs.list(thread)
            assert (await api.sdk.runs.join(thread, run["run_id"]))["n"] == 1
        assert (await api.sdk.runs.get(thread, run["run_id"]))["status"] == "interrupted"


async def test_disconnect_leaves_the_run_alone_by_default(at: Opening) -> None:
    async with at() as api:
        thread = await new_thread(api)
        request = {"assistant_id": "slow", "input": {"n": 1}}
        async with api.http.stream("POST", f"/threads/{thread}/runs/stream", json=request):
            await api.graphs.reached.wait()
        api.graphs.gate.set()
        [run] = await api.sdk.runs.list(thread)
        assert (await api.sdk.runs.join(thread, run["run_id"]))["n"] == 102


async def test_stateless_runs_leave_no_thread(at: Opening) -> None:
    async with at() as api:
        assert await api.sdk.runs.wait(None, "instant", input={"n": 1}) == {"messages": [], "n": 2}
        parts = await collect(api.sdk.runs.stream(None, "instant", input={"n": 1}))
        assert [part.event for part in parts] == ["metadata", "values", "values", "end"]
        run_id = parts[0].data["run_id"]
        again = await api.http.get(f"/runs/{run_id}/stream", headers={"Last-Event-ID": "3"})
        assert again.text.startswith("event: end")
        assert (await api.http.get(f"/runs/{run_id}/join")).json()["n"] == 2
        assert await api.sdk.threads.count() == 0
        kept = await api.sdk.runs.create(None, "instant", input={"n": 1}, on_completion="keep")
        await api.sdk.runs.join(kept["thread_id"], kept["run_id"])
        assert (await api.sdk.threads.get(kept["thread_id"]))["values"]["n"] == 2
        with refused(400, "thread_id when resuming"):
            await api.sdk.runs.wait(None, "hitl", command={"resume": "yes"})


async def test_the_graph_gets_the_runs_configuration(at: Opening) -> None:
    async with at() as api:
        thread = await new_thread(api)
        seen = (
            await api.sdk.runs.wait(
                thread,
                "looking",
                input={},
                context={"model_name": "m", "is_plan_mode": True},
                config={
                    "recursion_limit": 5000,
                    "configurable": {
                        "model_name": "m",
                        "thread_id": "evil",
                        "__pregel_x": 1,
                        "checkpoint_ns": "x",
                    },
                },
            )
        )["seen"]
        [run] = await api.sdk.runs.list(thread)
        wanted = {
            "model_name": "m",
            "is_plan_mode": True,
            "thread_id": thread,
            "run_id": run["run_id"],
        }
        assert seen["context"] == wanted
        assert wanted.items() <= seen["configurable"].items()
        assert seen["configurable"].keys() - wanted.keys() == {
            "checkpoint_id",
            "checkpoint_map",
            "checkpoint_ns",
        }
        assert seen["configurable"]["checkpoint_ns"].startswith("look:")
        assert seen["recursion_limit"] == 1000
        with refused(400, "contradict each other about 'model_name'"):
            await api.sdk.runs.wait(
                thread,
                "looking",
                context={"model_name": "a"},
                config={"configurable": {"model_name": "b"}},
            )


async def test_requests_that_are_refused(at: Opening) -> None:
    async with at() as api:
        thread = await new_thread(api)
        missing = str(uuid4())
        with refused(404):
            await api.sdk.runs.wait(missing, "instant", input={})
        created = await api.sdk.runs.wait(
            missing, "instant", input={"n": 1}, if_not_exists="create"
        )
        assert created["n"] == 2
        with refused(422, "'nope'"):
            await api.sdk.runs.wait(thread, "nope")
        with refused(404):
            await api.sdk.runs.wait(thread, str(uuid4()))
        with refused(422, "must be a UUID"):
            await api.sdk.runs.wait("slack:C1:123", "instant")
        with refused(422, "nonsense"):
            await collect(api.sdk.runs.stream(thread, "instant", stream_mode="nonsense"))
        with refused(400, "input.messages[0]"):
            await api.sdk.runs.wait(thread, "agent", input={"messages": [{"content": "x"}]})
        bodies: list[bytes] = [b"{", b"{}", b'{"assistant_id":"instant","multitask_strategy":"x"}']
        for body in bodies:
            told = await api.http.post(f"/threads/{thread}/runs/wait", content=body)
            assert told.status_code == 422
            assert told.json()["detail"]
        extra = {"assistant_id": "instant", "input": {"n": 1}, "strict_resume": True, "later": 1}
        accepted = await api.http.post(f"/threads/{thread}/runs/wait", json=extra)
        assert accepted.status_code == 200


async def test_idle_streams_send_heartbeats(at: Opening) -> None:
    async with at(heartbeat_s=0.02) as api:
        thread = await new_thread(api)
        body = {"assistant_id": "slow", "input": {"n": 1}}

        async with api.http.stream("POST", f"/threads/{thread}/runs/stream", json=body) as response:
            heard: list[bytes] = []
            async for chunk in response.aiter_bytes():
                heard.append(chunk)
                if b": heartbeat\n\n" in chunk:
                    api.graphs.gate.set()
            assert b"event: end" in b"".join(heard)
            assert response.headers["content-type"] == "text/event-stream; charset=utf-8"


async def test_a_quick_answer_has_no_signs_of_life_before_it(at: Opening) -> None:
    async with at(heartbeat_s=60) as api:
        thread = await new_thread(api)
        body = {"assistant_id": "instant", "input": {"n": 1}}
        quick = await api.http.post(f"/threads/{thread}/runs/wait", json=body)
        assert quick.json()["n"] == 2
        assert not quick.content.startswith(b"\n")


async def test_wait_keeps_the_line_open(at: Opening) -> None:
    async with at(heartbeat_s=0.02) as api:
        thread = await new_thread(api)
        body = {"assistant_id": "slow", "input": {"n": 1}}
        async with api.http.stream("POST", f"/threads/{thread}/runs/wait", json=body) as response:
            whole = b""
            async for chunk in response.aiter_bytes():
                whole += chunk
                api.graphs.gate.set()
        assert whole.startswith(b"\n")
        assert b'"n":102' in whole


async def test_subgraphs_and_the_other_modes(at: Opening) -> None:
    async with at() as api:
        parts = await collect(
            api.sdk.runs.stream(
                None,
                "parent",
                input=HELLO,
                stream_mode=["values", "updates", "messages-tuple"],
                stream_subgraphs=True,
            )
        )
        names = {part.event.partition(":")[0] for part in parts}
        assert {"values|child", "messages|child", "updates|child", "values", "updates"} <= names
        flat = await collect(
            api.sdk.runs.stream(None, "parent", input=HELLO, stream_mode="messages-tuple")
        )
        assert [part.event for part in flat] == ["metadata", "messages", "end"]
        assert flat[1].data[0]["content"] == "tok0 tok1 "
        everything = await collect(
            api.sdk.runs.stream(
                None, "custom", input={}, stream_mode=["custom", "tasks", "checkpoints", "debug"]
            )
        )
        custom = [part.data for part in everything if part.event == "custom"]
        assert custom == [{"phase": "start"}, {"phase": "end"}]
        checkpoints = [part.data for part in everything if part.event == "checkpoints"]
        for one in checkpoints:
            assert not [k for k in one["config"]["configurable"] if k.startswith("__")]
        older = await collect(
            api.sdk.runs.stream(None, "agent", input=HELLO, stream_mode="messages")
        )
        assert [part.event for part in older][:3] == [
            "metadata",
            "messages/metadata",
            "messages/partial",
        ]
        assert older[-2].data[0]["content"] == "tok0 tok1 tok2 "
        assert older[-2].data[0]["type"] == "ai"


async def test_fast_tokens_are_all_there(at: Opening) -> None:
    async with at() as api:
        parts = await collect(
            api.sdk.runs.stream(None, "many", input=HELLO, stream_mode="messages-tuple")
        )
        said = [part.data[0]["content"] for part in parts if part.event == "messages"]
        assert "".join(said) == "".join(f"tok{n} " for n in range(500))


async def test_metadata_that_only_the_server_sets_is_dropped(at: Opening) -> None:
    """LangGraph's server (0.16.7) does the same, except that it accepts `graph_id` from the client."""
    reserved = dict.fromkeys(("thread_id", "assistant_id", "run_id", "cron_id"), "mine")
    async with at() as api:
        thread = await new_thread(api)
        given = {**reserved, "graph_id": "mine", "kept": "this"}
        run = await api.sdk.runs.create(
            thread, "instant", input={"n": 1}, metadata=given, config={"metadata": reserved}
        )
        await api.sdk.runs.join(thread, run["run_id"])
        told = (await api.sdk.runs.get(thread, run["run_id"]))["metadata"]
        wanted = {"graph_id": "mine", "kept": "this", "assistant_id": run["assistant_id"]}
        assert told == run["metadata"] == wanted
        saved = (await api.sdk.threads.get_state(thread))["metadata"]
        assert (saved["run_id"], saved["kept"]) == (run["run_id"], "this")
        assert not {"assistant_id", "cron_id"} & saved.keys()
        assert (await api.sdk.threads.get(thread))["metadata"]["graph_id"] == "instant"


async def test_a_run_that_was_interrupted_before_joins_with_the_threads_values(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as api:
        thread = await new_thread(api)
        run = await api.sdk.runs.create(thread, "slow", input={"n": 1})
        await api.graphs.reached.wait()
        await api.sdk.runs.cancel(thread, run["run_id"], wait=True)
    async with serving(tmp_path) as api:
        values = (await api.sdk.threads.get(thread))["values"]
        assert values["n"] == 2
        assert await api.sdk.runs.join(thread, run["run_id"]) == values
