"""The guarantees that conversations need from every run server: this process, another Parley, LangGraph's server."""

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import anyio
import anyio.lowlevel
import pytest
from anyio.from_thread import start_blocking_portal
from langgraph_sdk import get_client

from bus.errors import (
    AgentThreadBusy,
    AgentThreadNotFound,
    RewindUnsupported,
    RunError,
    SteeringUnsupported,
)
from bus.messages import ConversationKey, InboundMessage, ReplyTarget, RewindPoint, Sender
from bus.runs.port import Runs, StreamedPart
from bus.runs.remote import RemoteRuns
from bus.runs.requests import AgentRunRequest, SteeringMessage
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


@pytest.fixture(scope="module")
def langgraphs_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Run LangGraph's own server, which takes a second to start. Each test uses its own threads there."""
    folder = tmp_path_factory.mktemp("langgraph")
    file = Path(__file__).parent / "run_graph.py"
    config = folder / "langgraph.json"
    config.write_text(json.dumps({"dependencies": ["."], "graphs": {GRAPH: f"{file}:make_graph"}}))
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(langgraph_dev(folder, {}, {}, graphs=config)) as url,
    ):
        yield url


@asynccontextmanager
async def langgraphs_server(url: str) -> AsyncIterator[Runs]:
    async with get_client(url=url, api_key=None) as client:
        yield RemoteRuns(client)


@pytest.fixture(params=[embedded, another_parley], ids=lambda opening: opening.__name__)
def parley(request: pytest.FixtureRequest, tmp_path: Path) -> At:
    """Return a function that opens Parley's runtime, and can reopen it after it ended."""
    opening: Opening = request.param
    return lambda: opening(tmp_path)


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
    if request.param is langgraphs_server:
        url = request.getfixturevalue("langgraphs_url")
        return lambda: langgraphs_server(url)
    opening: Opening = request.param
    return lambda: opening(tmp_path)


def message(
    thread_id: str, text: str | None, *, resume: object = None, is_again: bool = False
) -> AgentRunRequest:
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
        is_again=is_again,
        answers_question=resume is not None,
    )


async def new_thread(runs: Runs) -> str:
    thread_id = str(uuid4())
    await runs.create_thread(thread_id, {"chat": "c"})
    return thread_id


async def say(
    runs: Runs, thread_id: str, text: str | None, *, resume: object = None, is_again: bool = False
) -> list[object]:
    """Start a run and return the parts of its stream."""
    run_id = await runs.start(message(thread_id, text, resume=resume, is_again=is_again))
    return [event.part for event in await read(runs, thread_id, run_id)]


async def read(runs: Runs, thread_id: str, run_id: str, after: str = "") -> list[StreamedPart]:
    with anyio.fail_after(30):
        return [event async for event in runs.events(thread_id, run_id, after)]


async def until_state(runs: Runs, thread_id: str, run_id: str) -> str:
    """Read a run's events up to its first state. Return the position of that state."""
    async with aclosing(runs.events(thread_id, run_id)) as events:
        async for event in events:
            if isinstance(event.part, StateSnapshot):
                return event.position
    raise AssertionError("there was no state")


async def until_ended(runs: Runs, thread_id: str, run_id: str) -> str:
    statuses = ("pending", "running")
    return await eventually(
        lambda: runs.get_status(thread_id, run_id), lambda status: status not in statuses
    )


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


async def test_an_unknown_thread_is_reported(at: At) -> None:
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


async def test_a_failed_run_reports_its_error(at: At) -> None:
    async with at() as runs:
        thread_id = await new_thread(runs)
        parts = await say(runs, thread_id, "fail")
        assert any(isinstance(part, RunFailed) for part in parts)
        found = await runs.find_run(thread_id, None, "fake:fail")
        assert found is not None
        assert found[1] == "error"


async def test_a_run_goes_on_without_a_reader_and_ends_when_it_is_canceled(at: At) -> None:
    async with at() as runs:
        thread_id = await new_thread(runs)
        run_id = await runs.start(message(thread_id, "wait"))
        await until_state(runs, thread_id, run_id)
        assert await runs.get_status(thread_id, run_id) in ("pending", "running")
        assert await runs.cancel(thread_id, run_id)

        parts = [event.part for event in await read(runs, thread_id, run_id)]
        assert not any(
            isinstance(part, StateSnapshot) and len(part.values["messages"]) > 1 for part in parts
        )
        assert await runs.get_status(thread_id, run_id) == "interrupted"
        assert not await runs.cancel(thread_id, run_id)  # A run that has ended is acceptable, too.


async def test_the_next_run_waits_for_the_one_before(at: At) -> None:
    async with at() as runs:
        thread_id = await new_thread(runs)
        first = await runs.start(message(thread_id, "wait"))
        with anyio.fail_after(60):
            async with anyio.create_task_group() as tasks:
                # Some servers report the run's ID only when it begins.
                tasks.start_soon(say, runs, thread_id, "hi")
                await eventually(lambda: runs.find_run(thread_id, None, "fake:hi"))
                assert await runs.get_status(thread_id, first) in ("pending", "running")
                await runs.cancel(thread_id, first)
        assert (await texts(runs, thread_id))[-1] == "You said: hi"


async def test_an_interrupt_is_in_the_threads_state_and_can_be_resumed(at: At) -> None:
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


async def test_a_message_that_was_answered_is_not_run_again(at: At) -> None:
    async with at() as runs:
        thread_id = await new_thread(runs)
        first = await runs.start(message(thread_id, "hi"))
        await read(runs, thread_id, first)
        again = message(thread_id, "hi", is_again=True)
        assert await runs.start(again) == first
        await read(runs, thread_id, first)
        assert await texts(runs, thread_id) == ["hi", "You said: hi"]
        await say(runs, thread_id, "more")
        assert await runs.start(again) == first


async def test_a_message_whose_run_goes_on_is_not_run_again(at: At) -> None:
    async with at() as runs:
        thread_id = await new_thread(runs)
        first = await runs.start(message(thread_id, "wait"))
        assert await runs.start(message(thread_id, "wait", is_again=True)) == first
        assert await runs.cancel(thread_id, first)


async def test_only_one_of_several_simultaneous_starts_creates_the_run(tmp_path: Path) -> None:
    async with embedded(tmp_path) as runs:
        thread_id = await new_thread(runs)
        found: list[str] = []

        async def start() -> None:
            found.append(await runs.start(message(thread_id, "hi")))

        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(start)
        [run_id] = set(found)
        await read(runs, thread_id, run_id)
        assert await texts(runs, thread_id) == ["hi", "You said: hi"]


@pytest.mark.parametrize("text", ["fail", "wait"])
async def test_a_message_whose_run_failed_goes_on_from_the_thread(at: At, text: str) -> None:
    async with at() as runs:
        thread_id = await new_thread(runs)
        first = await runs.start(message(thread_id, text))
        await until_state(runs, thread_id, first)
        await runs.cancel(thread_id, first)
        await until_ended(runs, thread_id, first)
        second = await runs.start(message(thread_id, text, is_again=True))
        assert second != first
        await runs.cancel(thread_id, second)
        await until_ended(runs, thread_id, second)
        assert await texts(runs, thread_id) == [text]


async def test_a_run_is_lost_with_its_process_and_goes_on_from_the_thread(parley: At) -> None:
    async with parley() as runs:
        thread_id = await new_thread(runs)
        first = await runs.start(message(thread_id, "wait"))
        await until_state(runs, thread_id, first)
    async with parley() as runs:
        assert await runs.get_status(thread_id, first) == "interrupted"
        second = await runs.start(message(thread_id, "wait", is_again=True))
        assert second != first
        assert await runs.cancel(thread_id, second)
        assert await texts(runs, thread_id) == ["wait"]


async def test_a_run_whose_id_never_came_is_canceled_by_its_message(at: At) -> None:
    async with at() as runs:
        thread_id = await new_thread(runs)
        first = await runs.start(message(thread_id, "wait"))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(
                runs.start, message(thread_id, "hi")
            )  # This may take until that run begins.
            await eventually(lambda: runs.find_run(thread_id, None, "fake:hi"))
            tasks.cancel_scope.cancel()
        assert await runs.cancel(thread_id, "", "fake:hi")
        assert await runs.cancel(thread_id, "", "fake:wait")
        await until_ended(runs, thread_id, first)
        assert not await runs.cancel(thread_id, "", "fake:wait")
        assert not await runs.cancel(thread_id, "", "fake:never")
        assert "You said: hi" not in await texts(runs, thread_id)
        await say(runs, thread_id, "more")
        assert (await texts(runs, thread_id))[-1] == "You said: more"


async def test_a_cut_stream_is_read_on(parley: At) -> None:
    async with parley() as runs:
        thread_id = await new_thread(runs)
        run_id = await runs.start(message(thread_id, "hi"))
        position = await until_state(runs, thread_id, run_id)
        whole = await read(runs, thread_id, run_id)
        places = [event.position for event in whole]
        rest = await read(runs, thread_id, run_id, position)
        assert rest == whole[places.index(position) + 1 :]
        assert rest


async def test_an_unknown_position_in_the_event_stream_is_no_error(at: At) -> None:
    async with at() as runs:
        thread_id = await new_thread(runs)
        run_id = await runs.start(message(thread_id, "hi"))
        await read(runs, thread_id, run_id)
        await read(runs, thread_id, run_id, "no-position")


async def test_events_that_are_gone_are_replaced_by_the_state(parley: At) -> None:
    async with parley() as runs:
        thread_id = await new_thread(runs)
        run_id = await runs.start(message(thread_id, "ask"))
        await read(runs, thread_id, run_id)
    async with parley() as runs:
        parts = [event.part for event in await read(runs, thread_id, run_id, "3")]
        [state] = [part for part in parts if isinstance(part, StateSnapshot)]
        assert messages_in(state.values)[-1]["content"] == "ask"
        [asked] = (await runs.get_state(thread_id))[INTERRUPTS]
        assert asked["value"] == "Red or blue?"
        await say(runs, thread_id, None, resume={asked["id"]: "blue"})
        assert (await texts(runs, thread_id))[-1] == "You said: blue"


async def test_an_answer_that_was_taken_is_not_given_again(at: At) -> None:
    async with at() as runs:
        thread_id = await new_thread(runs)
        await say(runs, thread_id, "ask")
        [asked] = (await runs.get_state(thread_id))[INTERRUPTS]
        answer = message(thread_id, None, resume={asked["id"]: "blue"})
        run_id = await runs.start(answer)
        await read(runs, thread_id, run_id)
        assert await runs.start(replace(answer, is_again=True)) == run_id
        assert await texts(runs, thread_id) == ["ask", "You said: blue"]


async def test_a_run_that_has_ended_takes_no_message(at: At) -> None:
    async with at() as runs:
        thread_id = await new_thread(runs)
        run_id = await runs.start(message(thread_id, "hi"))
        await read(runs, thread_id, run_id)
        assert not await is_injected(runs, thread_id, run_id)


async def is_injected(runs: Runs, thread_id: str, run_id: str) -> bool:
    inbound = message(thread_id, "more").inbound
    steering = SteeringMessage(assistant_id=GRAPH, message_id="m2", inbound=inbound, text="more")
    try:
        return await runs.inject(thread_id, run_id, steering)
    except SteeringUnsupported:
        return False


async def test_a_thread_that_a_run_holds_is_not_rewound(at: At) -> None:
    async with at() as runs:
        thread_id = await new_thread(runs)
        await say(runs, thread_id, "one")
        run_id = await runs.start(message(thread_id, "wait"))
        await until_state(runs, thread_id, run_id)
        with pytest.raises((AgentThreadBusy, RewindUnsupported)):
            await runs.rewind(thread_id, "fake:one")
        await runs.cancel(thread_id, run_id)
        await until_ended(runs, thread_id, run_id)
        assert (await texts(runs, thread_id))[:2] == ["one", "You said: one"]


async def test_replaced_messages_are_removed_from_the_thread_once(at: At) -> None:
    async with at() as runs:
        thread_id = await new_thread(runs)
        await say(runs, thread_id, "one")
        new = message(thread_id, "two")
        point = RewindPoint(thread_id=thread_id, message_id="fake:one", text="one")
        new = replace(new, inbound=replace(new.inbound, rewind_point=point))
        run_id = await runs.start(new)
        await read(runs, thread_id, run_id)
        assert await texts(runs, thread_id) == ["two", "You said: two"]
        assert await runs.start(replace(new, is_again=True)) == run_id
        assert await texts(runs, thread_id) == ["two", "You said: two"]


@pytest.mark.parametrize("thread_id", ["00000000-0000-4000-8000-000000000000", "no id"])
async def test_whatever_is_wrong_is_a_run_error(at: At, thread_id: str) -> None:
    run_id = str(uuid4())
    async with at() as runs:
        for call in (
            lambda: runs.start(message(thread_id, "hi")),
            lambda: runs.start(message(thread_id, "hi", is_again=True)),
            lambda: runs.get_status(thread_id, run_id),
            lambda: runs.get_state(thread_id),
            lambda: runs.rewind(thread_id, "m"),
        ):
            with pytest.raises(RunError):
                await call()
        with suppress(RunError):  # Or the stream reports it.
            events = await read(runs, thread_id, run_id)
            assert all(isinstance(event.part, RunFailed) for event in events)
        with suppress(RunError):
            assert not await runs.cancel(thread_id, run_id)
        with suppress(RunError):
            assert await runs.find_run(thread_id, None, "m") is None
        assert not await is_injected_or_refused(runs, thread_id, run_id)


async def is_injected_or_refused(runs: Runs, thread_id: str, run_id: str) -> bool:
    with suppress(RunError):
        return await is_injected(runs, thread_id, run_id)
    return False


async def test_a_start_that_is_canceled_anywhere_leaves_nothing_open(parley: At) -> None:
    async with parley() as runs:
        for steps in (*range(12), 15, 20, 30, 40, 60, 80, 120):
            thread_id = await new_thread(runs)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(say, runs, thread_id, "wait")
                for _ in range(steps):
                    await anyio.lowlevel.checkpoint()
                tasks.cancel_scope.cancel()
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(cancel_again_and_again, runs, thread_id)
                await say(runs, thread_id, "hi")
                tasks.cancel_scope.cancel()
            assert "You said: hi" in await texts(runs, thread_id)


async def cancel_again_and_again(runs: Runs, thread_id: str) -> None:
    """Keep canceling a start that was canceled while its server was about to accept it."""
    while True:
        await runs.cancel(thread_id, "", "fake:wait")
        await anyio.sleep(0.02)
