"""A process that starts a run, says its id when the run hangs in its second node, and waits to be killed."""

import sys
from pathlib import Path

import anyio

from gateway.runtime.request import GraphRunRequest
from gateway.runtime.runs import RunManager
from gateway.runtime.stream_modes import parse_stream_modes
from store.checkpoints import open_checkpointer
from store.config import StoreConfig
from store.database import Database
from tests.fakes.graphs import Graphs


async def main(home: Path, thread_id: str) -> None:
    graphs = Graphs()
    async with (
        Database.open(StoreConfig(), home) as database,
        open_checkpointer(home) as checkpointer,
        RunManager(database, graphs.sources, checkpointer) as runs,
    ):
        request = GraphRunRequest(
            thread_id=thread_id,
            assistant_id="slow",
            modes=parse_stream_modes("values"),
            input={"n": 1},
            create_thread=True,
            durability="sync",
        )
        live = await runs.start(request)
        await graphs.reached.wait()
        sys.stdout.write(f"{live.run_id}\n")
        sys.stdout.flush()
        await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]), sys.argv[2])
