"""PackedRun: a run that ended some time ago reads the same, but takes less memory."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from gateway.runtime.event_log import EventLog, EventLogReader
from gateway.runtime.events import RunEvent
from gateway.runtime.live_run import LiveRun
from gateway.runtime.packed_run import pack_run
from gateway.runtime.serialization import dumps
from tests.gateway.test_runtime_runs import THREAD, ended_run

Frames = Sequence[tuple[str, bytes]]

TEXT = "ab\n\u2028" * 40
SMALL: Frames = (
    ("metadata", dumps({"run_id": "1"})),
    *(("messages", dumps([{"content": TEXT[:n]}, {"node": "x"}])) for n in range(120)),
    *(("values", dumps({"text": TEXT * n})) for n in range(1, 9)),
    ("updates|child:1", b"{}"),
    ("custom\nname", b""),
    ("end", b"null"),
)
LARGE: Frames = tuple(("values", dumps({"text": "x" * 20_000 + str(n)})) for n in range(9))


async def everything(reader: EventLogReader) -> list[RunEvent]:
    events: list[RunEvent] = []
    while batch := await reader.receive():
        events += batch
    return events


def ended(frames: Frames, *, first: int = 7) -> LiveRun:
    live = ended_run(THREAD, b"{}")
    live.log = EventLog(first=first)
    for name, data in frames:
        live.log.append(name, data)
    live.close_log()
    live.finished.set()
    return live


@pytest.mark.parametrize("frames", [SMALL, LARGE, (*SMALL, *LARGE, *SMALL)])
async def test_a_packed_run_is_read_as_before(frames: Frames) -> None:
    live = ended(frames)
    packed = pack_run(live)
    assert packed is not None
    assert packed.stored_bytes < live.stored_bytes / (1 if frames is LARGE else 1.5)
    assert bool(packed.large) == (LARGE[0] in frames)
    again = packed.unpack()
    assert (again.log.last_id, again.log.closed) == (live.log.last_id, True)
    for after in (0, *range(6, live.log.last_id + 2)):
        expected = await everything(live.log.subscribe(after))
        assert await everything(again.log.subscribe(after)) == expected
    assert again.log.last_data("values") == live.log.last_data("values")
    assert again.log.last_data("missing") is None
    assert again.result == live.result
    assert again.row == replace(live.row, kwargs={}, metadata={})
    for name in ("graph_id", "attempt_id", "is_finished", "temporary"):
        assert getattr(again, name) == getattr(live, name)
    await again.finished.wait()
    await again.stopped.wait()


async def test_large_events_of_packed_runs_are_stored_as_differences_from_later_ones() -> None:
    live, later = ended((*SMALL, *LARGE)), ended(LARGE)
    expected = await everything(live.log.subscribe())
    packed = pack_run(live)
    assert packed is not None
    before = packed.stored_bytes
    packed.rebase(later)
    rebased = packed.stored_bytes
    assert rebased < before / 2
    packed.compress()
    assert packed.stored_bytes <= rebased
    assert await everything(packed.unpack().log.subscribe()) == expected


async def test_a_packed_run_that_dropped_events_tells_of_the_gap() -> None:
    live = ended(())
    live.log = EventLog(state=lambda: b"{}", max_bytes=lambda: 2000)
    for number in range(100):
        live.log.append("messages", b"%d" % number)
    live.log.close(b'{"n":100}')
    live._result = b'{"n":100}'
    before = await everything(live.log.subscribe(3))
    assert [event.name for event in before[:2]] == ["gap", "values"]
    packed = pack_run(live)
    assert packed is not None
    again = packed.unpack()
    assert await everything(again.log.subscribe(3)) == before
    assert again.result == b'{"n":100}'


async def test_only_runs_without_a_row_keep_their_request() -> None:
    live = ended(SMALL)
    asked = {"input": {"n": 1}, "metadata": {"who": "\u2028"}}
    live.row = replace(live.row, kwargs=asked, metadata=asked)
    packed = pack_run(live)
    assert packed is not None
    assert packed.unpack().row == replace(live.row, kwargs={}, metadata={})
    live.temporary = True
    packed = pack_run(live)
    assert packed is not None
    assert packed.unpack().row == live.row


async def test_a_run_of_many_events_is_not_packed() -> None:
    assert pack_run(ended([("messages", b"%d" % number * 300) for number in range(300)])) is None
