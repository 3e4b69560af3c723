import random
from collections.abc import Sequence

import anyio
import pytest
from anyio.lowlevel import checkpoint
from langchain_core.messages import AIMessageChunk

from gateway.runtime.event_log import EventLog, EventLogReader
from gateway.runtime.events import RunEvent
from gateway.runtime.serialization import dumps
from gateway.runtime.stream_modes import StreamEncoder, parse_stream_modes

LONG_S = 20.0

Frames = Sequence[tuple[str, bytes]]


async def everything(reader: EventLogReader) -> list[RunEvent]:
    events: list[RunEvent] = []
    with anyio.fail_after(LONG_S):
        while (batch := await reader.receive()) is not None:
            events += batch
    return events


def filled(count: int) -> EventLog:
    log = EventLog()
    for number in range(count):
        log.append("values", b"%d" % number)
    return log


async def test_every_reader_gets_everything_from_where_it_starts() -> None:
    log = filled(5)
    log.close()
    for after in range(6):
        events = await everything(log.subscribe(after))
        assert [event.id for event in events] == list(range(after + 1, 6))
    assert await everything(log.subscribe(99)) == []


async def test_readers_follow_a_live_log() -> None:
    log = filled(2)
    seen: dict[int, list[RunEvent]] = {}

    async def follow(after: int) -> None:
        seen[after] = await everything(log.subscribe(after))

    async with anyio.create_task_group() as tasks:
        for after in (0, 1, 2):
            tasks.start_soon(follow, after)
        for number in range(200):
            log.append("messages", b"%d" % number)
            if number % 7 == 0:
                await checkpoint()
        log.close()
    for after, events in seen.items():
        assert [event.id for event in events] == list(range(after + 1, 203))


async def test_a_burst_is_one_batch() -> None:
    log = EventLog()
    reader = log.subscribe(coalesce_s=0.05)
    batches: list[int] = []

    async def follow() -> None:
        with anyio.fail_after(LONG_S):
            while (batch := await reader.receive()) is not None:
                batches.append(len(batch))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(follow)
        for number in range(100):
            log.append("messages", b"%d" % number)
            await checkpoint()
        log.close()
    assert sum(batches) == 100
    assert len(batches) < 20


async def test_a_reader_that_missed_events_gets_a_gap_and_the_state() -> None:
    log = EventLog(state=lambda: b'{"n":7}', max_bytes=lambda: 2000)
    slow = log.subscribe()
    for number in range(100):
        log.append("messages", b"%d" % number)
    log.close(b'{"n":7}')
    assert log.bytes <= 2000
    events = await everything(slow)
    gap, state, *rest = events
    assert (gap.name, state.name, state.data) == ("gap", "values", b'{"n":7}')
    assert [event.id for event in rest] == list(range(rest[0].id, 101))
    assert gap.id == state.id == rest[0].id - 1
    resumed = await everything(log.subscribe(gap.id))
    assert resumed == rest
    assert b'"resumes_at":%d' % rest[0].id in gap.data


async def test_a_late_reader_gets_a_long_log_in_pieces() -> None:
    log = filled(1000)
    log.close()
    reader = log.subscribe()
    first = await reader.receive() or []
    assert len(first) == 256
    assert [event.id for event in [*first, *await everything(reader)]] == list(range(1, 1001))


async def test_one_event_is_kept_however_large_it_is() -> None:
    log = EventLog(max_bytes=lambda: 1000)
    log.append("values", b"x" * 5000)
    log.close()
    assert [event.id for event in await everything(log.subscribe())] == [1]


def similar_events(seed: int, count: int = 400) -> list[tuple[str, bytes, str | None]]:
    """Return events (name, data, key) of several sequences that grow, shrink and change in the middle."""
    rng = random.Random(seed)  # noqa: S311 - test data
    texts = {key: bytearray(rng.randbytes(rng.randrange(4000))) for key in ("a", "b", "c")}
    events: list[tuple[str, bytes, str | None]] = []
    for _ in range(count):
        key = rng.choice(sorted(texts))
        text = texts[key]
        at = rng.choice([0, len(text), rng.randrange(len(text) + 1)])
        text[at : at + rng.choice([0, 0, 7, 500])] = rng.randbytes(rng.choice([0, 3, 40, 2000]))
        events.append(("messages/partial", bytes(text), key))
    return events


@pytest.mark.parametrize("seed", range(20))
async def test_events_stored_as_differences_are_read_unchanged(seed: int) -> None:
    log = EventLog()
    events = similar_events(seed)
    live = log.subscribe()
    seen: list[RunEvent] = []
    for number, (name, data, key) in enumerate(events):
        log.append(name, data, key)
        if number % 5 == 0:
            seen += live.read()
    log.close()
    seen += await everything(live)
    assert [(event.name, event.data) for event in seen] == [(n, d) for n, d, _ in events]
    for after in (0, 1, 57, 398, 399):
        again = await everything(log.subscribe(after))
        assert again == seen[after:]


@pytest.mark.parametrize("seed", range(10))
async def test_events_after_a_gap_are_read_unchanged(seed: int) -> None:
    log = EventLog(max_bytes=lambda: 20_000)
    slow = log.subscribe()
    events = similar_events(seed)
    for name, data, key in events:
        log.append(name, data, key)
    log.close(b"{}")
    gap, _state, *rest = await everything(slow)
    assert gap.name == "gap"
    assert [event.data for event in rest] == [data for _, data, _ in events[-len(rest) :]]


def test_the_memory_of_an_answer_is_linear_in_every_stream_mode() -> None:
    """The answer has 20,000 characters in 2,000 tokens. In `messages` mode, the stream sends 40 MB."""
    log = EventLog()
    encoder = StreamEncoder(parse_stream_modes(["messages", "values"]), log.append)
    said = ""
    for number in range(2_000):
        token = f"token{number:04d} "
        said += token
        encoder.encode((), "messages", (AIMessageChunk(content=token, id="m"), {"step": 1}))
        if number % 100 == 0:
            encoder.encode((), "values", {"messages": ["an earlier message"] * 500, "said": said})
    assert log.last_id > 2_000
    assert log.bytes < 40 * len(said)
    last = log.subscribe(log.last_id - 1).read()[0]
    assert said.encode() in last.data


async def test_a_finished_run_holds_little_of_a_long_threads_state() -> None:
    """Each run's first `values` event holds the whole thread. Its result is the last one."""
    earlier = [f"message number {number} of this conversation" for number in range(5_000)]
    log = EventLog()
    live = log.subscribe()
    states = [dumps({"messages": [*earlier, *range(count)]}) for count in range(4)]
    log.append("values", states[0])
    seen = live.read()
    for state in states[1:]:
        log.append("values", state)
    assert len(states[0]) < log.bytes < 1.1 * len(states[0])
    log.close()
    log.seal()
    assert log.bytes < len(states[0]) / 4
    assert log.final_state() == states[-1]
    seen += await everything(live)
    assert [event.data for event in seen] == states
    assert await everything(log.subscribe(2)) == seen[2:]


SMALL: Frames = (
    ("metadata", dumps({"run_id": "1"})),
    *(("messages", dumps([{"content": "ab\n\u2028" * n}, {"node": "x"}])) for n in range(120)),
    ("updates|child:1", b"{}"),
    ("custom\nname", b""),
    ("end", b"null"),
)
LARGE: Frames = tuple(("values", dumps({"text": "x" * 20_000 + str(n)})) for n in range(9))


@pytest.mark.parametrize("state", [None, b'{"n":"\n"}'])
@pytest.mark.parametrize("frames", [(), SMALL, LARGE, (*SMALL, *LARGE, *SMALL)])
async def test_a_sealed_log_is_read_as_before(frames: Frames, state: bytes | None) -> None:
    log = EventLog(first=7)
    for name, data in frames:
        log.append(name, data)
    halfway = log.subscribe(60)
    seen = halfway.read()
    log.close(state)
    starts = (0, *range(6, log.last_id + 2))
    before = [await everything(log.subscribe(after)) for after in starts]
    final_state, size = log.final_state(), log.bytes
    for _ in range(2):
        log.seal()
        assert [await everything(log.subscribe(after)) for after in starts] == before
        assert log.final_state() == final_state
    assert not frames or log.bytes < size / 2
    assert seen + await everything(halfway) == await everything(log.subscribe(60))


async def test_a_sealed_log_that_dropped_events_has_a_gap_event() -> None:
    log = EventLog(state=lambda: b"{}", max_bytes=lambda: 20_000)
    for name, data, key in similar_events(1):
        log.append(name, data, key)
    log.close(b'{"n":100}')
    before = await everything(log.subscribe(3))
    assert [(event.name, event.data) for event in before[:2]][1] == ("values", b'{"n":100}')
    log.seal()
    assert await everything(log.subscribe(3)) == before


async def test_a_read_is_limited_in_bytes() -> None:
    log = EventLog()
    for number in range(200):
        log.append("values", dumps({"n": number, "text": str(number) * 20_000}))
    first = await log.subscribe().receive() or []
    assert 1 < len(first) < 20
