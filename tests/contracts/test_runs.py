"""What conversations rely on, whichever server executes a run: this process, another Parley, or LangGraph's own."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from pathlib import Path
from uuid import uuid4

import anyio
import pytest
from langgraph_sdk import get_client

from bus.errors import AgentThreadNotFound, RunError
from bus.messages import ConversationKey, InboundMessage, ReplyTarget, Sender
from bus.runs.port import Runs
from bus.runs.remote import RemoteRuns
from bus.runs.requests import AgentRunRequest
from bus.runs.stream import INTERRUPTS, RunFailed, StateSnapshot, messages_in
from gateway.embedded_runs import EmbeddedRuns
from gateway.runtime.graph_sources import FixedGraph
from tests.contracts.run_graph import make_graph
from tests.eventually import eventually
from tests.gateway.langgraph_server import serving
from tests.journeys.peer import PROGRAM, langgraph_dev

GRAPH = "person"
Opening = Callable[[Path], AbstractAsyncContextManager[Runs]]
At = Callable[[], AbstractAsyncContextManager[Runs]]


@asynccontextmanager
async def embedded(folder: Path) -> AsyncIterator[Runs]:
    async with serving(folder, sources={GRAPH: FixedGraph(make_graph())}) as api:
        yield EmbeddedRuns(lambda: api.app.state.services)


@asynccontextmanager
async def another_parley(folder: Path) -> AsyncIterator[Runs]:
    async with (
        serving(folder, way="tcp", sources={GRAPH: FixedGraph(make_graph())}) as api,
        get_client(url=api.url, api_key=None) as client,
    ):
        yield RemoteRuns(client)


@asynccontextmanager
async def langgraphs_server(folder: Path) -> AsyncIterator[Runs]:
    file = Path(__file__).parent / "run_graph.py"
    config = folder / "langgraph.json"
    config.write_text(json.dumps({"dependencies": ["."], "graphs": {GRAPH: f"{file}:make_graph"}}))
    async with (
        langgraph_dev(folder, {}, {}, graphs=config) as url,
        get_client(url=url, api_key=None) as client,
    ):
        yield RemoteRuns(client)


@pytest.fixture(
    params=[
        embedded,
        another_parley,
        pytest.param(
            langgraphs_server,
            marks=pytest.mark.skipif(
                not PROGRAM.exists(), reason="needs `make peers-python` (langgraph-cli[inmem])"
            ),
        ),
    ],
    ids=lambda opening: opening.__name__,
)
def at(request: pytest.FixtureRequest, tmp_path: Path) -> At:
    opening: Opening = request.param
    return lambda: opening(tmp_path)


def message(thread_id: str, text: str | None, *, resume: object = None) -> AgentRunRequest:
    key = ConversationKey(channel="fake", workspace="w", chat="c")
    inbound = InboundMessage(
        event_id="e",
        message_id="e",
        key=key,
        reply_target=ReplyTarget(chat="c", reply_to="e"),
        sender=Sender(user_id="u", name="Ann Lee"),
        text=text or "",
        is_private=True,
        is_addressed=True,
    )
    return AgentRunRequest(
        thread_id=thread_id,
        assistant_id=GRAPH,
        message_id=f"fake:{text}",
        inbound=inbound,
        text=text,
        resume=resume,
    )


async def new_thread(runs: Runs) -> str:
    thread_id = str(uuid4())
    await runs.create_thread(thread_id, {"chat": "c"})
    return thread_id


async def say(
    runs: Runs, thread_id: str, text: str | None, *, resume: object = None
) -> list[object]:
    """Start a run and return the parts of its stream."""
    run_id = await runs.start(message(thread_id, text, resume=resume))
    with anyio.fail_after(30):
        return [event.part async for event in runs.events(thread_id, run_id)]


async def texts(runs: Runs, thread_id: str) -> list[object]:
    return [one["content"] for one in messages_in(await runs.get_state(thread_id))]


async def test_a_run_is_read_to_its_end(at: At) -> None:
    async with at() as runs:
        thread_id = await new_thread(runs)
        assert await runs.get_state(thread_id) == {}
        parts = await say(runs, thread_id, "hi")
        states = [part.values for part in parts if isinstance(part, StateSnapshot)]
        assert [one["content"] for one in messages_in(states[-1])] == ["hi", "You said: hi"]
        assert await texts(runs, thread_id) == ["hi", "You said: hi"]
        found = await runs.find_run(thread_id, None, "fake:hi")
        assert found is not None
        assert found[1] == await runs.get_status(thread_id, found[0]) == "success"
        assert await runs.find_run(thread_id, None, "fake:else") is None


async def test_a_thread_that_exists_is_left_as_it_is(at: At) -> None:
    async with at() as runs:
        thread_id = await new_thread(runs)
        await say(runs, thread_id, "hi")
        await runs.create_thread(thread_id, {"chat": "other"})
        assert await texts(runs, thread_id) == ["hi", "You said: hi"]


async def test_a_thread_that_the_server_does_not_know_is_told(at: At) -> None:
    async with at() as runs:
        thread_id = str(uuid4())
        with pytest.raises(AgentThreadNotFound):
            await runs.start(message(thread_id, "hi"))
        with pytest.raises(AgentThreadNotFound):
            await runs.get_state(thread_id)


async def test_a_run_that_the_server_refuses_is_no_other_error(at: At) -> None:
    async with at() as runs:
        thread_id = await new_thread(runs)
        request = message(thread_id, "hi")
        with pytest.raises(RunError):
            await runs.start(
                AgentRunRequest(
                    thread_id=thread_id,
                    assistant_id="no-such-graph",
                    message_id="m",
                    inbound=request.inbound,
                    text="hi",
                )
            )


async def test_a_failed_run_says_so(at: At) -> None:
    async with at() as runs:
        thread_id = await new_thread(runs)
        parts = await say(runs, thread_id, "fail")
        assert any(isinstance(part, RunFailed) for part in parts)
        found = await runs.find_run(thread_id, None, "fake:fail")
        assert found is not None
        assert found[1] == "error"


async def test_a_run_goes_on_without_a_reader_and_ends_when_it_is_cancelled(at: At) -> None:
    async with at() as runs:
        thread_id = await new_thread(runs)
        run_id = await runs.start(message(thread_id, "wait"))
        async with aclosing(runs.events(thread_id, run_id)) as events:
            async for event in events:
                if isinstance(event.part, StateSnapshot):
                    break
        assert await runs.get_status(thread_id, run_id) in ("pending", "running")
        await runs.cancel(thread_id, run_id)

        with anyio.fail_after(30):
            parts = [event.part async for event in runs.events(thread_id, run_id)]
        assert not any(
            isinstance(part, StateSnapshot) and len(part.values["messages"]) > 1 for part in parts
        )
        assert await runs.get_status(thread_id, run_id) == "interrupted"
        await runs.cancel(thread_id, run_id)  # one that has ended is fine


async def test_the_next_run_waits_for_the_one_before(at: At) -> None:
    async with at() as runs:
        thread_id = await new_thread(runs)
        first = await runs.start(message(thread_id, "wait"))
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                # Some servers name the run only when it begins.
                tasks.start_soon(say, runs, thread_id, "hi")
                await eventually(lambda: runs.find_run(thread_id, None, "fake:hi"))
                assert await runs.get_status(thread_id, first) in ("pending", "running")
                await runs.cancel(thread_id, first)
        assert (await texts(runs, thread_id))[-1] == "You said: hi"


async def test_what_a_thread_waits_for_is_in_its_state_and_resumes(at: At) -> None:
    async with at() as runs:
        thread_id = await new_thread(runs)
        await say(runs, thread_id, "ask")
        [asked] = (await runs.get_state(thread_id))[INTERRUPTS]
        assert asked["value"] == "Red or blue?"
        await say(runs, thread_id, None, resume={asked["id"]: "blue"})
        state = await runs.get_state(thread_id)
        assert INTERRUPTS not in state
        assert messages_in(state)[-1]["content"] == "You said: blue"


async def test_a_message_is_taken_back_with_its_answer(at: At) -> None:
    async with at() as runs:
        thread_id = await new_thread(runs)
        for words in ("one", "two", "three"):
            await say(runs, thread_id, words)
        await runs.rewind(thread_id, "fake:two")
        assert await texts(runs, thread_id) == ["one", "You said: one"]
        await runs.rewind(thread_id, "fake:two")
        await say(runs, thread_id, "four")
        assert await texts(runs, thread_id) == ["one", "You said: one", "four", "You said: four"]
