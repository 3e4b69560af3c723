"""A process that starts runs, prints the last run's id when a run waits in its second node, and waits to be killed.

Arguments: the data folder, the URL of a PostgreSQL database or "", and the requests as JSON. A request holds keywords
of `GraphRunRequest`, or an action on the first run: {"inject": messages} or {"cancel": action}. Without requests, the
process resumes existing runs.
"""

import json
import sys
from functools import partial
from pathlib import Path

import anyio

from gateway.runtime.request import GraphRunRequest
from gateway.runtime.runs import RunManager
from gateway.runtime.stream_modes import parse_stream_modes
from store.checkpoints import open_checkpointer
from store.config import StoreConfig
from store.database import Database
from tests.eventually import eventually
from tests.fakes.graphs import Graphs


async def main(home: Path, url: str, requests: str) -> None:
    graphs = Graphs()
    async with (
        Database.open(StoreConfig(url=url) if url else StoreConfig(), home) as database,
        open_checkpointer(home, database) as checkpointer,
        RunManager(database, graphs.sources, checkpointer) as runs,
    ):
        for asked in json.loads(requests):
            if "inject" in asked:
                inject = partial(runs.inject, runs.active[0].thread_id, None, asked["inject"])
                await eventually(inject)
                continue
            if "cancel" in asked:
                await runs.cancel(runs.active[0].thread_id, runs.active[0].run_id, asked["cancel"])
                continue
            await runs.start(
                GraphRunRequest(modes=parse_stream_modes("values"), create_thread=True, **asked)
            )
            if asked["assistant_id"] == "stubborn":
                await graphs.reached.wait()
        await graphs.reached.wait()
        sys.stdout.write(" ".join(live.run_id for live in runs.active) + "\n")
        sys.stdout.flush()
        await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]), sys.argv[2], sys.argv[3])
