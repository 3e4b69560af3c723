import anyio
from anyio.lowlevel import checkpoint

from gateway.runtime.event_log import EventLog, EventLogReader
from gateway.runtime.events import RunEvent

LONG_S = 20.0


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


async def test_a_reader_that_missed_events_is_told_and_given_the_state() -> None:
    log = EventLog(state=lambda: b'{"n":7}', max_bytes=2000)
    slow = log.subscribe()
    for number in range(100):
        log.append("messages", b"%d" % number)
    log.close()
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
    log = EventLog(max_bytes=1000)
    log.append("values", b"x" * 5000)
    log.close()
    assert [event.id for event in await everything(log.subscribe())] == [1]
