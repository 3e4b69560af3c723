"""Schedules: the cost of many while none is due, and the delay when many are due at the same time.

The real `parley serve` on SQLite, with 100,000 schedules of chats.
"""

import sqlite3
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio
import psutil

from bus.messages import InboundMessage, ReplyTarget, Sender, encode_inbound
from store.conversations import ConversationKey
from tests.eventually import eventually
from tests.fakes.migrated import place_database
from tests.journeys.service import Service
from tests.lab.benchmarks.figures import Figure

SCHEDULES = 100_000
DUE = 100
"""Schedules that are due at the same second."""

IDLE_S = 30.0
"""How long the service's CPU time is measured, seconds."""

SETTLE_S = 10.0
"""How long to wait after the start, seconds."""

DUE_IN_S = 90.0
"""When they are due after the start, seconds."""

_INSERT = """
INSERT INTO schedule VALUES (?, 'terminal', '', ?, '', NULL, '', 'news', 'cron', '0 9 * * *', 'UTC', ?, NULL, '',
    'once', 'queue', '', '', NULL, ?, '{}', 1, '', ?, 0, 0, ?, ?, '')
"""
_LATE = "SELECT max(created_at - due_at), count(*) FROM schedule_occurrence"


def run() -> Iterator[Figure]:
    """Measure, and yield the figures."""
    yield from anyio.run(_measure)


async def _measure() -> list[Figure]:
    with TemporaryDirectory() as folder:
        async with _serving(Path(folder), count=0) as service:
            alone = await _idle_share(service)
    with TemporaryDirectory() as folder:
        async with _serving(Path(folder), count=SCHEDULES) as service:
            idle = await _idle_share(service)
            home = Path(folder) / "home"
            late, count = await eventually(
                lambda: _lateness(home), lambda found: found[1] >= DUE, within_s=2 * DUE_IN_S
            )
    assert count == DUE
    return [
        Figure(
            f"{SCHEDULES:,} schedules, none due: share of a core", 100 * (idle - alone), "%", "< 1"
        ),
        Figure("the service without schedules: share of a core", 100 * alone, "%"),
        Figure(f"{DUE} schedules due at once: latest start", late, "s", "< 2"),
    ]


@asynccontextmanager
async def _serving(folder: Path, *, count: int) -> AsyncIterator[Service]:
    home = place_database(folder / "home")
    if count:
        _fill(home, count)
    service = Service(folder, {})
    await service.start()
    try:
        await anyio.sleep(SETTLE_S)
        yield service
    finally:
        await service.stop()


def _fill(home: Path, count: int) -> None:
    now = time.time()
    due_at = now + DUE_IN_S
    with closing(sqlite3.connect(home / "parley.db", isolation_level=None)) as connection:
        connection.execute("BEGIN")
        connection.executemany(
            _INSERT,
            (
                (
                    f"{number:08x}-0000-4000-8000-000000000000",
                    f"chat{number}",
                    now,
                    _body(number),
                    due_at if number < DUE else now + 86_400 + number,
                    now,
                    now,
                )
                for number in range(count)
            ),
        )
        connection.execute("COMMIT")


def _body(number: int) -> str:
    chat = f"chat{number}"
    return encode_inbound(
        InboundMessage(
            event_id="",
            message_id="",
            key=ConversationKey(channel="terminal", workspace="", chat=chat),
            reply_target=ReplyTarget(chat=chat),
            sender=Sender(user_id="ann", name="Ann"),
            text="the news",
            is_private=True,
            is_addressed=True,
        )
    )


async def _idle_share(service: Service) -> float:
    """Return the share of a core that the service uses while nothing happens."""
    process = psutil.Process(service.pid)
    before = sum(process.cpu_times()[:2])
    await anyio.sleep(IDLE_S)
    return (sum(process.cpu_times()[:2]) - before) / IDLE_S


def _lateness(home: Path) -> tuple[float, int]:
    """Return how late the latest occurrence started, seconds, and their number."""
    with closing(sqlite3.connect(home / "parley.db")) as connection:
        late, count = connection.execute(_LATE).fetchone()
    return float(late or 0.0), int(count)
