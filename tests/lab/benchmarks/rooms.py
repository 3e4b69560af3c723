"""Lists the files whose code a private "hello" on Telegram runs, and the modules between its conversation and the
graph.

Profiles the whole service in this process, with a fake Telegram and a fake model server:

    python -m tests.lab.benchmarks.rooms [postgresql://...]
"""

import asyncio
import sys
import threading
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType

import anyio
import yaml

from gateway.compose import open_app
from gateway.config import load_config
from gateway.playground.telegram.server import TelegramServer
from tests.fakes.model import FakeModelServer
from tests.journeys.service import ROOT, with_model

COUNTED = ("bots", "bus", "store")
OURS = (*COUNTED, "gateway", "agent")
START = "bus/conversation/steps.py", "start"
AFTER_START = "bus/conversation/steps.py", "set_run"
RUN_BEGINS = "gateway/runtime/runs.py", "_begin"
GRAPH = "langgraph/pregel/main.py", "astream"
SETTLE_S = 0.5
"""Time for writes after the answer is sent, seconds."""


class Rooms:
    """A profiler of all threads.

    Attributes:
        returns: Number of returns from functions of `COUNTED` packages, by file. A coroutine that waits also returns.
        way: The modules that call each other from the turn's `start` to the beginning of the run, and from there to the
        graph.
        entered: All modules that are entered on the way, including those that only return a value.
    """

    def __init__(self) -> None:
        self.is_on = False
        self.returns: Counter[str] = Counter()
        self.way: list[str] = []
        self.entered: list[str] = []
        self._tasks: set[asyncio.Task[object] | None] = set()
        self._has_reached_graph = False

    def __call__(self, frame: FrameType, event: str, _: object) -> None:
        """Record an event of the interpreter."""
        if not self.is_on or event not in ("call", "return"):
            return
        file = frame.f_code.co_filename
        path = file.removeprefix(f"{ROOT}/")
        package = path.partition("/")[0] if path != file else ""
        if event == "return":
            self.returns[path] += package in COUNTED
        elif threading.current_thread() is threading.main_thread():
            self._enter(frame, path, package)

    def _enter(self, frame: FrameType, path: str, package: str) -> None:
        task, place = asyncio.current_task(), (path, frame.f_code.co_name)
        if place == START and not self.entered:
            self._tasks.add(task)
        elif place == AFTER_START:
            self._tasks.discard(task)
        elif self.entered and task is not None and task.get_name().startswith("gateway.runtime"):
            self._tasks.add(task)
        if task not in self._tasks or self._has_reached_graph:
            return
        if place == RUN_BEGINS or (path.endswith(GRAPH[0]) and place[1] == GRAPH[1]):
            self._has_reached_graph = place != RUN_BEGINS
            self._note_callers(frame)
        if package in OURS and path not in self.entered:
            self.entered.append(path)

    def _note_callers(self, frame: FrameType | None) -> None:
        callers = []
        while frame is not None:
            path = frame.f_code.co_filename.removeprefix(f"{ROOT}/")
            callers.append(path)
            frame = None if (path, frame.f_code.co_name) == START else frame.f_back
        found = [path for path in reversed(callers) if path.partition("/")[0] in OURS]
        self.way += [path for path in dict.fromkeys(found) if path not in self.way]


async def measure(database_url: str = "") -> Rooms:
    """Return the files and modules that the first message of a second person enters."""
    rooms = Rooms()
    threading.setprofile(rooms)
    sys.setprofile(rooms)
    try:
        async with AsyncExitStack() as stack:
            folder = Path(stack.enter_context(TemporaryDirectory()))
            model = await stack.enter_async_context(FakeModelServer())
            telegram = await stack.enter_async_context(TelegramServer())
            sections = {**with_model(model.base_url), "channels": {"telegram": telegram.settings}}
            if database_url:
                sections["database"] = {"url": database_url}
            file = folder / "config.yaml"
            file.write_text(yaml.safe_dump(sections))
            config = load_config(str(file), {"PARLEY_HOME": str(folder)})
            await stack.enter_async_context(open_app(config))
            await _hello(telegram, 5001)
            rooms.is_on = True
            await _hello(telegram, 5002)
            rooms.is_on = False
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return rooms


async def _hello(telegram: TelegramServer, person: int) -> None:
    telegram.dm("hello", user=person)
    await telegram.wait_for(lambda: telegram.answers(person), 60)
    await anyio.sleep(SETTLE_S)


def main() -> None:
    """Print the files and modules."""
    rooms = anyio.run(measure, sys.argv[1] if len(sys.argv) > 1 else "")
    files = sorted(path for path, count in rooms.returns.items() if count)
    for path in files:
        print(f"{rooms.returns[path]:6} {path}")
    print(f"{len(files)} files, {rooms.returns.total()} returns in {', '.join(COUNTED)}")
    print(f"way to the graph: {len(rooms.way)} modules: {' '.join(rooms.way)}")
    for package in OURS:
        found = [path for path in rooms.entered if path.startswith(f"{package}/")]
        print(f"entered meanwhile, {package}: {len(found)}: {' '.join(found)}")


if __name__ == "__main__":
    main()
