"""A node that receives messages at a steady rate, in its own process.

`python -m tests.lab.benchmarks.scale_node URL` starts it.
It prints a line when it has joined, waits for a line, and prints a `NodeRecord` as JSON. It exits when its input ends.
Times are `time.perf_counter`, which all processes of a machine share.
"""

import gc
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from subprocess import PIPE

import anyio
import anyio.abc
import anyio.to_thread
from anyio.streams.buffered import BufferedByteReceiveStream

from store.config import StoreConfig
from tests.lab.benchmarks.bus import CHATS, at_rate, running_bus
from tests.lab.benchmarks.instant_runs import InstantRuns
from tests.lab.benchmarks.service_loop import run_as_service

_MAX_LINE = 1_000_000
_SETTLE_S = 1.0


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """The messages that such a node received and started.

    Attributes:
        sent: When each message was received (`time.perf_counter`), by its text.
        started: The messages for which it started runs itself.
    """

    sent: dict[str, float]
    started: list[str]


class ReceivingNode:
    """The node's process, as seen by its parent process."""

    def __init__(self, process: anyio.abc.Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin = process.stdin
        self._lines = BufferedByteReceiveStream(process.stdout)

    async def is_up(self) -> None:
        """Wait until it has joined."""
        await self._lines.receive_until(b"\n", _MAX_LINE)

    async def receive(self) -> NodeRecord:
        """Make it receive messages "p0", "p1", ... of the chats "c0", "c1", ..., until all their runs have started."""
        await self._stdin.send(b"go\n")
        return NodeRecord(**json.loads(await self._lines.receive_until(b"\n", _MAX_LINE)))


@asynccontextmanager
async def receiving_node(url: str) -> AsyncIterator[ReceivingNode]:
    """Run a node on this database, in which it maps the conversations "c0", "c1", ..."""
    command = [sys.executable, "-m", "tests.lab.benchmarks.scale_node", url]
    async with await anyio.open_process(command, stdin=PIPE, stdout=PIPE, stderr=None) as process:
        node = ReceivingNode(process)
        await node.is_up()
        yield node
        assert process.stdin is not None
        await process.stdin.aclose()
        await process.wait()


async def _serve(url: str) -> None:
    gc.freeze()  # as the service does
    runs = InstantRuns()
    async with running_bus(runs, known=CHATS, store=StoreConfig(url=url)) as harness:
        print(flush=True)
        await anyio.to_thread.run_sync(sys.stdin.readline)
        sent = await at_rate(harness.bus)
        await anyio.sleep(_SETTLE_S)
        print(json.dumps({"sent": sent, "started": list(runs.started)}), flush=True)
        await anyio.to_thread.run_sync(sys.stdin.read)


if __name__ == "__main__":
    run_as_service(_serve, sys.argv[1])
