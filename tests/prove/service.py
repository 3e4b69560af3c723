"""The service of a proof, which the proof ends in every possible way and always restarts."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Self

import anyio
import httpx

from tests.eventually import eventually
from tests.journeys.service import Service

RESTART_PAUSE_S = 0.3
"""Pause before restarting the service, seconds, like a supervisor such as systemd."""

DISK_BYTES = 1_000_000_000
START_S = 180.0
"""Time limit of a start on a busy machine, seconds."""

CONNECTED_S = 60.0
"""How long a channel may take to reconnect when everything is quiet, seconds.

It is more than the longest pause between attempts.
"""

EMPTY_GAUGES = (
    "parley_busy_conversations", "parley_queued_messages", "parley_inbox_rows", "parley_runs_in_progress",
)  # fmt: skip
"""Metrics that are 0 when everything is answered."""

REPLACED = 75
"""Exit code of a node whose work failed over to other nodes."""

STOP_S = 15.0
"""How long an orderly stop may take before it counts as stuck, seconds."""


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """An event of the proof. `at_s` counts from its start."""

    at_s: float
    what: str
    detail: str = ""


class Timeline:
    """The events of the proof, in order."""

    def __init__(self) -> None:
        self.started_at = time.time()
        self.entries: list[TimelineEntry] = []

    def add(self, what: str, detail: str = "") -> None:
        """Record an event now."""
        self.entries.append(TimelineEntry(time.time() - self.started_at, what, detail))


class SmallDisk:
    """The disk of the data folder: a separate tmpfs that can be made full. Needs the right to mount."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.is_mounted = False

    def __enter__(self) -> Self:
        self._folder.mkdir(parents=True, exist_ok=True)
        self.is_mounted = _mount(
            "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "parley-prove", str(self._folder)
        )
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_mounted:
            subprocess.run(["umount", "-l", str(self._folder)], check=False)

    def fill(self) -> None:
        """Make the disk full by shrinking it to its content."""
        self._resize(max(_used_bytes(self._folder), 4096))

    def make_room(self) -> None:
        """Give the disk its size again."""
        self._resize(DISK_BYTES)

    def _resize(self, size: int) -> None:
        _mount("-o", f"remount,size={size}", str(self._folder))


def _mount(*arguments: str) -> bool:
    try:
        done = subprocess.run(["mount", *arguments], check=False, capture_output=True)
    except OSError:
        return False
    return done.returncode == 0


def _used_bytes(folder: Path) -> int:
    usage = os.statvfs(folder)
    return (usage.f_blocks - usage.f_bfree) * usage.f_frsize


NOT_CALLED = re.compile(r"Waiting for \w+'s first request: ")
"""The detail of a webhook channel before the platform or the load balancer first calls this process."""


async def _broken_channels(client: httpx.AsyncClient) -> dict[str, str]:
    """Return the channels that do not work. Ignores webhooks that have not been called since the start."""
    channels = (await client.get("/api/channels")).json()["channels"]
    return {
        name: f"{state['state']}: {state['detail']}"
        for name, state in channels.items()
        if state["enabled"] and not state["running"] and not NOT_CALLED.match(state["detail"] or "")
    }


class ProvenService:
    """`parley serve` under a supervisor that restarts it whenever the process ends.

    Args:
        node: Its name among several on one database; "" = it is the only one.
        fork: Whether to fork it from a process that has imported everything (tests/fork_server.py).

    Attributes:
        kills: How often the process was killed.
        starts: How often it was started.
        replacements: How often it exited because its work had failed over to other nodes.
        failures: Unexpected ends of the process, with the exit code, and wrong statements of its health.
    """

    def __init__(
        self,
        folder: Path,
        config: Mapping[str, Any],
        timeline: Timeline,
        environment: Mapping[str, str] | None = None,
        node: str = "",
        *,
        fork: bool | None = None,
    ) -> None:
        self.service = Service(folder, config, environment, fork=fork)
        self._timeline = timeline
        self._node = node
        self.kills = 0
        self.replacements = 0
        self.starts = 0
        self.failures: list[str] = []
        self.may_end = False
        self._met_outage = False  # The process was started during a fault that may end it.
        self._lock = anyio.Lock()

    @property
    def home(self) -> Path:
        return self.service.home

    async def supervise(self) -> None:
        """Start the service, and restart it whenever it ends. Run this as a task."""
        while True:
            async with self._lock:
                if not self.service.running:
                    await self._note_end()
                    await self._launch()
            await anyio.sleep(RESTART_PAUSE_S)

    async def kill_while_migrating(
        self, is_created: Callable[[], bool], pauses_s: Sequence[float]
    ) -> None:
        """For each pause, start the service and kill -9 it that long after its database was created."""
        async with self._lock:
            for pause_s in pauses_s:
                await self._launch()
                await eventually(is_created, within_s=START_S, every_s=0.005)
                await anyio.sleep(pause_s)
                await self._kill("kill while migrating")
            await self._launch()

    async def kill(self) -> None:
        """kill -9, then restart at once."""
        async with self._lock:
            await self._kill("kill")
            await self._launch()

    async def kill_twice(self, pause_s: float) -> None:
        """kill -9, and again during the next start."""
        async with self._lock:
            await self._kill("kill")
            await self._launch()
            await anyio.sleep(pause_s)
            await self._kill("kill while starting")
            await self._launch()

    async def kill_while_stopping(self, pause_s: float) -> None:
        """SIGTERM, then kill -9 while it stops."""
        async with self._lock:
            if self.service.running:
                self._note("stop")
                self.service.send(signal.SIGTERM)
                await anyio.sleep(pause_s)
            await self._kill("kill while stopping")
            await self._launch()

    async def restart(self) -> None:
        """SIGTERM, an orderly stop, and a start."""
        async with self._lock:
            await self._stop()
            await self._launch()

    async def freeze(self, seconds: float) -> None:
        """SIGSTOP, then SIGCONT after a while."""
        async with self._lock:
            if not self.service.running:
                return
            self._note("freeze", f"for {seconds:.1f} s")
            self.service.send(signal.SIGSTOP)
            await anyio.sleep(seconds)
            self.service.send(signal.SIGCONT)
            self._note("continue")

    async def end(self) -> None:
        """Stop the service for good. The supervisor must have ended before."""
        async with self._lock:
            await self._stop()

    async def kill_at_exit(self) -> None:
        """End all processes, however the proof ended."""
        if self.service.running:
            with anyio.CancelScope(shield=True):
                await self.service.kill()

    async def until_healthy(self) -> None:
        """Wait until the process answers requests. Raises AssertionError if it does not."""
        await eventually(self._is_healthy, within_s=START_S, every_s=RESTART_PAUSE_S)

    async def _is_healthy(self) -> bool:
        return self.service.running and await self.service.has_started()

    async def check_quiet(self) -> None:
        """Record anything in the service's health and metrics that contradicts that everything is answered."""
        try:
            async with self.service.client() as client:
                await self._check_channels(client)
                metrics = (await client.get("/metrics")).raise_for_status().text
        except httpx.HTTPError as error:
            self._fail(f"all is quiet, and the service does not answer: {error!r}")
            return
        for name in EMPTY_GAUGES:
            found = re.findall(rf"^{name}(?:{{.*}})? (\S+)$", metrics, re.MULTILINE)
            if not found or any(float(value) for value in found):
                self._fail(f"all is quiet, and {name} is {', '.join(found) or 'missing'}")

    async def _check_channels(self, client: httpx.AsyncClient) -> None:
        try:
            await eventually(
                partial(_broken_channels, client),
                lambda broken: not broken,
                within_s=CONNECTED_S,
                every_s=0.5,
            )
        except AssertionError:
            broken = await _broken_channels(client)
            for name, state in broken.items():
                self._fail(f"channel {name} is {state}")

    async def _kill(self, what: str) -> None:
        if not self.service.running:
            return
        self._note(what)
        self.kills += 1
        await self.service.kill()

    async def _stop(self) -> None:
        if not self.service.running:
            return
        had_started = await self.service.has_started()
        self._note("stop")
        self.service.send(signal.SIGTERM)
        try:
            code = await self.service.ended(STOP_S)
        except TimeoutError:
            self._fail(f"not stopped within {STOP_S:.0f} s of SIGTERM")
            await self._kill("kill: it did not stop")
        else:
            self._note("stopped", f"exit code {code}")
            # Before the service handles signals, SIGTERM ends it like any process.
            if code != 0 and not self.may_end and not (code == -signal.SIGTERM and not had_started):
                self._fail(f"exit code {code} after SIGTERM")

    async def _launch(self) -> None:
        self.starts += 1
        self._met_outage = self.may_end
        self._note("start")
        await self.service.launch()

    async def _note_end(self) -> None:
        if self.starts == 0:
            return
        code = await self.service.ended()
        self._note("ended by itself", f"exit code {code}")
        if self._node and code == REPLACED:
            self.replacements += 1
        elif not (self.may_end or self._met_outage):
            self._fail(f"ended by itself with exit code {code}")

    def _note(self, what: str, detail: str = "") -> None:
        self._timeline.add(what, " ".join(part for part in (self._node, detail) if part))

    def _fail(self, failure: str) -> None:
        self.failures.append(f"{self._node}: {failure}" if self._node else failure)
