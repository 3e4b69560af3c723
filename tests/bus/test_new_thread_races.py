"""`/new` while committed messages are not yet dispatched: each is answered in the thread for which it was meant."""

from pathlib import Path

import anyio

from bus.messages import encode_inbound
from store.inbox import InboxRow, NewInboxRow
from tests.bus.harness import BusHarness, inbound_message, running_bus
from tests.eventually import eventually
from tests.fakes.langgraph import FakeRun, Script


async def commit(harness: BusHarness, text: str, event: str) -> InboxRow:
    """Accept a message as the intake does, and do not dispatch it yet."""
    inbound = inbound_message(text, event)
    new = NewInboxRow(
        key=inbound.key,
        event_id=event,
        message_id=event,
        kind="command" if text.startswith("/") else "chat",
        body=encode_inbound(inbound),
        received_at=1.0,
    )
    row = await harness.bus.inbox.accept(new, cap=20)
    assert isinstance(row, InboxRow)
    return row


def dispatch(harness: BusHarness, row: InboxRow, text: str) -> None:
    harness.bus.dispatcher.dispatch(row, inbound_message(text, row.event_id))


async def run_of(harness: BusHarness, text: str) -> FakeRun:
    """Wait until a run is started for a message, and return it."""
    await eventually(lambda: text in harness.prompts())
    return harness.server.runs[harness.prompts().index(text)]


async def test_messages_after_new_are_answered_in_the_new_thread(tmp_path: Path) -> None:
    """They are accepted before the new thread is stored, and dispatched after that (seed 2511002 of the proof)."""
    async with running_bus(tmp_path) as harness:
        await harness.send("first", event="first")
        await harness.expect_replies("Hello you")
        command = await commit(harness, "/new", "new")
        row = await commit(harness, "after", "after")
        dispatch(harness, command, "/new")
        await harness.expect_replies("Hello you", "New conversation started.")
        dispatch(harness, row, "after")
        first, after = await run_of(harness, "first"), await run_of(harness, "after")
        assert after.thread_id != first.thread_id
        found = await harness.bus.conversations.find(row.key)
        assert found is not None
        assert found.thread_id == after.thread_id


async def test_messages_before_new_are_answered_in_the_old_thread_in_order(
    tmp_path: Path,
) -> None:
    """They are accepted before the command, and dispatched after it ran, because commands go first."""
    async with running_bus(tmp_path) as harness:
        ends = anyio.Event()
        harness.server.scripts.append(Script(ends=ends))
        await harness.send("first", event="first")
        first = await run_of(harness, "first")
        row = await commit(harness, "before", "before")
        command = await commit(harness, "/new", "new")
        dispatch(harness, command, "/new")
        await harness.expect_replies("New conversation started.")
        dispatch(harness, row, "before")
        await harness.send("after", event="after")
        after = await run_of(harness, "after")
        assert harness.prompts() == ["first", "after"]
        ends.set()
        before = await run_of(harness, "before")
        assert before.thread_id == first.thread_id != after.thread_id
