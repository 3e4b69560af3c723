"""Turns waiting for memory extraction: debouncing, joining, expediting, dropping, closing."""

import tracemalloc
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.memory.pending import PendingTurns
from agent.memory.queue import (
    LATE_CONCURRENCY,
    MAX_DEBOUNCE_FACTOR,
    MAX_MESSAGES,
    MemoryQueue,
    MemoryQueueKey,
    QueuedTurn,
    due_at,
    merge_turns,
)
from agent.memory.scope import MemoryScope
from agent.memory.turns import MemoryMessage, MemoryTurn
from tests.eventually import eventually, is_waiting

NEVER = 1000.0  # an idle time that no test waits for, seconds


async def on_processed(key: MemoryQueueKey) -> None:
    """Do nothing: these tests save no rows."""


def key_of(one: MemoryTurn) -> MemoryQueueKey:
    return MemoryQueueKey(thread_id=one.thread_id, scope=one.scope)


def add_expedited(waiting: MemoryQueue, one: MemoryTurn) -> None:
    waiting.add(one)
    waiting.expedite(key_of(one))


def turn(
    *texts: str, thread: str = "t1", spot: MemoryScope | None = None, corrects: bool = False
) -> MemoryTurn:
    said = tuple(MemoryMessage(id=text, role="user", text=text) for text in texts)
    return MemoryTurn(
        scope=spot or MemoryScope(), thread_id=thread, messages=said, is_correction=corrects
    )


class RecordingExtractor:
    """Records the turns it gets. Tests may hold it up."""

    def __init__(self) -> None:
        self.learned: list[list[str]] = []
        self.active: list[MemoryScope] = []
        self.begun = anyio.Event()
        self.may_go_on = anyio.Event()
        self.may_go_on.set()
        self._changed = anyio.Event()

    async def learn(self, entries: Sequence[QueuedTurn]) -> bool:
        self.begun.set()
        scope = entries[0].key.scope
        self.active.append(scope)
        await self.may_go_on.wait()
        self.active.remove(scope)
        kept = [work for work in entries if not work.is_cancelled]
        if kept:
            self.learned.append([one.text for work in kept for one in work.turn.messages])
        self._changed.set()
        self._changed = anyio.Event()
        return bool(kept)

    async def until(self, condition: Callable[[], bool]) -> None:
        with anyio.fail_after(20):
            while not condition():
                await self._changed.wait()


@asynccontextmanager
async def queue(
    learner: RecordingExtractor, rest_s: float, late_s: float = NEVER
) -> AsyncIterator[MemoryQueue]:
    made = MemoryQueue(learner.learn, on_processed, rest_s=lambda: rest_s, gap_s=0, late_s=late_s)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.run)
        yield made
        tasks.cancel_scope.cancel()


def unprocessed(queue: MemoryQueue) -> list[MemoryTurn]:
    """Return the turns that are not processed yet, including those in progress."""
    entries = [*queue._busy, *queue._waiting.values()]
    return [entry.turn for entry in entries if not entry.is_cancelled]


# ---- timing ------------------------------------------------------------------------------------


@given(st.floats(0, 1e6), st.floats(0, 1e4), st.floats(0.01, 300))
def test_a_conversation_is_learned_from_when_it_rests_or_never_rests(
    first: float, busy_for: float, rest_s: float
) -> None:
    work = QueuedTurn(turn=turn("a"), first_at=first, last_at=first + busy_for)
    when = due_at(work, rest_s)
    assert when <= first + MAX_DEBOUNCE_FACTOR * rest_s
    assert when == work.last_at + rest_s or when == first + MAX_DEBOUNCE_FACTOR * rest_s
    work.is_expedited = True
    assert due_at(work, rest_s) == first


async def test_turns_of_one_document_are_learned_together_and_others_by_themselves() -> None:
    learner = RecordingExtractor()
    async with queue(learner, rest_s=0.05) as waiting:
        waiting.add(turn("a"))
        waiting.add(turn("x", thread="t2"))
        waiting.add(turn("y", spot=MemoryScope(scope="other")))
        waiting.add(turn("z", spot=MemoryScope(agent="writer")))
        waiting.add(turn("b"))
        await learner.until(lambda: len(learner.learned) == 3)
    assert sorted(learner.learned) == [["a", "b", "x"], ["y"], ["z"]]


async def test_nothing_is_learned_before_the_conversation_was_quiet() -> None:
    learner = RecordingExtractor()
    async with queue(learner, rest_s=NEVER) as waiting:
        waiting.add(turn("slow"))
        add_expedited(waiting, turn("fast", thread="t2", spot=MemoryScope(scope="other")))
        await learner.until(lambda: len(learner.learned) == 1)
        assert learner.learned == [["fast"]]
        assert [exchange.thread_id for exchange in unprocessed(waiting)] == ["t1"]


async def test_waiting_entries_are_not_scanned_for_each_new_turn() -> None:
    asked: list[float] = []

    def rest_s() -> float:
        asked.append(anyio.current_time())
        return NEVER

    learner = RecordingExtractor()
    made = MemoryQueue(learner.learn, on_processed, rest_s=rest_s, gap_s=0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.run)
        for number in range(50):
            made.add(turn(f"m{number}", thread=f"t{number}", spot=MemoryScope(scope=f"s{number}")))
            await anyio.lowlevel.checkpoint()
        assert len(unprocessed(made)) == 50
        # Each new turn asked once, and the loop asked before it first went to sleep.
        assert len(asked) < 60
        made.expedite(MemoryQueueKey(thread_id="t7", scope=MemoryScope(scope="s7")))
        await learner.until(lambda: learner.learned == [["m7"]])
        tasks.cancel_scope.cancel()


async def test_waiting_entries_can_be_expedited() -> None:
    learner = RecordingExtractor()
    async with queue(learner, rest_s=NEVER) as waiting:
        waiting.add(turn("a"))
        waiting.expedite(QueuedTurn(turn=turn(), first_at=0, last_at=0).key)
        await learner.until(lambda: learner.learned == [["a"]])


async def test_turns_added_during_an_update_are_learned_next_and_once() -> None:
    learner = RecordingExtractor()
    learner.may_go_on = anyio.Event()
    async with queue(learner, rest_s=0.01) as waiting:
        waiting.add(turn("a"))
        await learner.begun.wait()
        waiting.add(turn("a", "b"))
        learner.may_go_on.set()
        await learner.until(lambda: len(learner.learned) == 2)
        assert learner.learned[0] == ["a"]
        waiting.add(turn("a"))
        waiting.add(turn("b"))
        assert unprocessed(waiting) == []
    assert "b" in learner.learned[1]


@pytest.mark.parametrize(("late_s", "at_once"), [(NEVER, 1), (0.0, LATE_CONCURRENCY)])
async def test_late_conversations_are_learned_from_side_by_side(
    late_s: float, at_once: int
) -> None:
    """In sequence, a slow model would let the queue grow forever."""
    learner = RecordingExtractor()
    learner.may_go_on = anyio.Event()
    async with queue(learner, rest_s=NEVER, late_s=late_s) as waiting:
        for number in range(20):
            add_expedited(
                waiting, turn(str(number), thread=f"t{number}", spot=MemoryScope(scope=str(number)))
            )
        await eventually(lambda: len(learner.active) == at_once)
        await anyio.wait_all_tasks_blocked()
        assert len(learner.active) == at_once
        assert learner.active[0] == MemoryScope(scope="0")
        learner.may_go_on.set()
        await learner.until(lambda: len(learner.learned) == 20)


async def test_late_conversations_are_learned_from_without_a_pause() -> None:
    learner = RecordingExtractor()
    made = MemoryQueue(learner.learn, on_processed, rest_s=lambda: NEVER, gap_s=NEVER, late_s=0.0)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.run)
        for thread in ("t1", "t2", "t3"):
            add_expedited(made, turn(thread, thread=thread, spot=MemoryScope(scope=thread)))
        await learner.until(lambda: len(learner.learned) == 3)
        tasks.cancel_scope.cancel()


async def test_late_conversations_of_one_document_are_learned_from_together() -> None:
    learner = RecordingExtractor()
    learner.may_go_on = anyio.Event()
    async with queue(learner, rest_s=NEVER, late_s=0.0) as waiting:
        for thread in ("t1", "t2", "t3"):
            add_expedited(waiting, turn(thread, thread=thread))
        await learner.begun.wait()
        await anyio.wait_all_tasks_blocked()
        assert learner.active == [MemoryScope()]
        learner.may_go_on.set()
        await learner.until(lambda: len(learner.learned) == 1)
    assert learner.learned == [["t1", "t2", "t3"]]


def test_joining_keeps_each_message_once_and_all_flags() -> None:
    before = turn("a", "b", corrects=True)
    after = turn("b", "c")
    both = merge_turns(before, after)
    assert [one.text for one in both.messages] == ["a", "b", "c"]
    assert both.is_correction
    many = merge_turns(turn(*map(str, range(MAX_MESSAGES))), turn("last"))
    assert len(many.messages) == MAX_MESSAGES
    assert many.messages[-1].text == "last"


# ---- dropping and closing ----------------------------------------------------------------------


async def test_dropped_entries_are_not_learned_even_during_an_update() -> None:
    learner = RecordingExtractor()
    learner.may_go_on = anyio.Event()
    mine, agents = MemoryScope(scope="p"), MemoryScope(scope="p", agent="writer")
    async with queue(learner, rest_s=0.01) as waiting:
        add_expedited(waiting, turn("a", spot=mine))
        await learner.begun.wait()
        waiting.add(turn("b", spot=mine, thread="t2"))
        waiting.add(turn("c", spot=agents))
        waiting.add(turn("kept", spot=MemoryScope(scope="q")))
        waiting.drop(mine)
        assert [exchange.scope.scope for exchange in unprocessed(waiting)] == ["q"]
        learner.may_go_on.set()
        await learner.until(lambda: bool(learner.learned))
        assert learner.learned == [["kept"]]


async def test_dropping_an_agent_s_leaves_the_rest_of_the_scope() -> None:
    async with queue(RecordingExtractor(), rest_s=NEVER) as waiting:
        waiting.add(turn("a", spot=MemoryScope(scope="p")))
        waiting.add(turn("b", spot=MemoryScope(scope="p", agent="writer")))
        waiting.drop(MemoryScope(scope="p", agent="writer"))
        assert [exchange.scope.agent for exchange in unprocessed(waiting)] == [None]


async def test_closing_learns_everything_at_once() -> None:
    learner = RecordingExtractor()
    async with queue(learner, rest_s=NEVER) as waiting:
        for number in range(20):
            waiting.add(turn(str(number), thread=f"t{number}"))
        with anyio.fail_after(20):
            await waiting.flush()
        assert unprocessed(waiting) == []
    assert sum(map(len, learner.learned)) == 20
    assert len(learner.learned) == 3


async def test_a_room_that_never_rests_is_learned_from_at_a_bounded_pace() -> None:
    """At most one call per interval for all threads of a room, however much people write."""
    calls: list[float] = []
    learned: list[str] = []

    async def learn(entries: Sequence[QueuedTurn]) -> bool:
        calls.append(anyio.current_time())
        learned.extend(one.text for work in entries for one in work.turn.messages)
        write()
        return True

    def write() -> None:
        if len(calls) < 5:
            for thread in range(3):
                made.add(turn(f"{len(calls)} in {thread}", thread=f"t{thread}"))

    made = MemoryQueue(
        learn, on_processed, rest_s=lambda: 0.01, spacing_s=lambda: 0.2, gap_s=0, late_s=NEVER
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(made.run)
        write()
        await eventually(lambda: len(learned) == 15)
        tasks.cancel_scope.cancel()
    assert all(after - before >= 0.2 for before, after in pairwise(calls))


async def test_a_full_conversation_does_not_wait_for_a_pause() -> None:
    learner = RecordingExtractor()
    async with queue(learner, rest_s=NEVER) as waiting:
        for number in range(MAX_MESSAGES):
            waiting.add(turn(f"m{number}"))
        await learner.until(lambda: len(learner.learned) == 1)
    assert len(learner.learned[0]) == MAX_MESSAGES


@pytest.mark.parametrize("is_busy", [True, False])
async def test_closing_waits_for_learning_and_can_be_canceled(*, is_busy: bool) -> None:
    learner = RecordingExtractor()
    learner.may_go_on = anyio.Event()
    async with queue(learner, rest_s=NEVER) as waiting:
        waiting.add(turn("a"))
        if is_busy:
            waiting.expedite(key_of(turn("a")))
            await learner.begun.wait()
        assert await is_waiting(waiting.flush)
        assert [one.text for exchange in unprocessed(waiting) for one in exchange.messages] == ["a"]


# ---- on disk until the next start --------------------------------------------------------------


def test_saved_turns_are_loaded(tmp_path: Path) -> None:
    pending = PendingTurns(tmp_path / "memory")
    assert pending.load() == []
    first = turn("你好", spot=MemoryScope(scope="p", agent="w"), corrects=True)
    second = [turn("b"), turn("half a surrogate pair: \ud800")]
    pending.save(key_of(first), [first])
    pending.save(key_of(second[0]), second)
    assert sorted(pending.load(), key=str) == sorted([first, *second], key=str)
    folder = tmp_path / "memory" / "pending"
    assert [path.stat().st_mode & 0o777 for path in folder.iterdir()] == [0o600] * 2
    pending.save(key_of(first), [])
    assert pending.load() == second
    pending.save(key_of(second[0]), [])
    pending.save(key_of(second[0]), [])
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize("text", ["", "{", "{}", '[1, "a", {"scope": {}}]', "\x00"])
def test_a_broken_file_of_pending_turns_is_skipped(tmp_path: Path, text: str) -> None:
    (tmp_path / "pending").mkdir()
    (tmp_path / "pending" / "a.json").write_text(text)
    assert PendingTurns(tmp_path).load() == []


def test_a_disk_that_refuses_does_not_stop_the_stop(tmp_path: Path) -> None:
    (tmp_path / "memory").write_text("a file where the folder should be")
    PendingTurns(tmp_path / "memory").save(key_of(turn("a")), [turn("a")])


# ---- memory ------------------------------------------------------------------------------------


async def test_a_waiting_conversation_takes_less_than_two_kilobytes() -> None:
    waiting = MemoryQueue(
        RecordingExtractor().learn, on_processed, rest_s=lambda: NEVER, gap_s=NEVER
    )
    waiting.add(turn("warm up", thread="warm up"))
    tracemalloc.start()
    try:
        for number in range(500):
            waiting.add(turn(f"{number}: " + "How are things there? " * 200, thread=f"t{number}"))
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used / 500 < 2000
    (found,) = waiting.unprocessed_of(key_of(turn("", thread="t7")))
    assert found.messages[0].text.startswith("7: How are things there?")
