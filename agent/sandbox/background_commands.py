"""Background commands. The model starts, polls and stops them, within limits."""

import logging
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count

import anyio
from anyio.abc import TaskGroup

from agent.background import background_tasks
from agent.errors import AgentError, SandboxError
from agent.sandbox.protocol import Sandbox
from agent.sandbox.result import NO_OUTPUT, OutputTail
from store.errors import StoreError

log = logging.getLogger(__name__)

MAX_PER_THREAD = 8
MAX_RUNNING = 32
"""Maximum number of background commands, per thread and in total. Each may use as much memory as any other command."""

IDLE_S = 600.0
"""Idle time of a thread, seconds, after which its commands may be stopped to make room for another thread's."""

MAX_AGE_S = 3_600.0
"""Maximum run time of a command, seconds. It is stopped then."""

MAX_ENDED = 8
"""Maximum number of ended commands per thread whose last output is kept until it is read."""

STOP_S = 30.0
"""How long to wait for a stopped command to end, seconds."""

KEEP_S, KEEP_AT_EXIT_S = 60.0, 3.0
"""Time limits for `KeepFiles` after a command ends, seconds: while the service runs, and when the service ends."""

KeepFiles = Callable[[str], Awaitable[None]]
"""Keeps the files that a thread's commands wrote. If a command ends between tool calls, no tool call does it."""


@dataclass(slots=True, kw_only=True, eq=False)
class BackgroundCommand:
    """One command. `result` tells the model how it ended, if it has; `started_at` is on the event loop's clock."""

    id: str
    command: str
    started_at: float
    output: OutputTail = field(default_factory=OutputTail)
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    ended: anyio.Event = field(default_factory=anyio.Event)
    result: str = "It was stopped."

    @property
    def age_s(self) -> int:
        """Whole seconds since its start."""
        return int(anyio.current_time() - self.started_at)


class BackgroundCommands:
    """The background commands of all threads. They end with the block of `open_background_commands`.

    Each is one call of `Sandbox.execute` in its own task, so it has the same limits as other commands of its sandbox.

    Args:
        tasks: Runs the commands.
        keep_files: Called with the thread of each command that has ended.
    """

    def __init__(self, tasks: TaskGroup, keep_files: KeepFiles) -> None:
        self._tasks = tasks
        self._keep_files = keep_files
        self._threads: dict[str, dict[str, BackgroundCommand]] = {}
        self._used_at: dict[str, float] = {}  # the threads above, on the event loop's clock
        self._numbers = count(1)

    async def start(
        self, thread_id: str, sandbox: Sandbox, command: str, *, timeout_s: float | None = None
    ) -> BackgroundCommand:
        """Start a command. Stop it after `timeout_s` seconds; None = after `MAX_AGE_S`.

        If too many commands are running, this first stops those of the thread that has been idle longest.

        Raises:
            SandboxError: This thread has too many running commands, or all threads together do and none of them has
                been idle for `IDLE_S`.
        """
        await self._make_room(thread_id)
        started = BackgroundCommand(
            id=f"b{next(self._numbers)}", command=command, started_at=anyio.current_time()
        )
        self._threads.setdefault(thread_id, {})[started.id] = started
        self._use(thread_id)
        self._tasks.start_soon(self._run, thread_id, sandbox, started, timeout_s or MAX_AGE_S)
        return started

    def running(self, thread_id: str) -> list[BackgroundCommand]:
        """Return the running commands of a thread, the oldest first. This counts as a use of the thread."""
        self._use(thread_id)
        return self._running(thread_id)

    async def poll(self, thread_id: str, command_id: str, *, wait_s: float = 0) -> str:
        """Return the output since the last call, and the command's state. Wait up to `wait_s` for its end.

        Raises:
            SandboxError: The thread has no such command.
        """
        command = self._find(thread_id, command_id)
        self._use(thread_id)
        with anyio.move_on_after(wait_s):
            await command.ended.wait()
        return self._report(thread_id, command)

    async def stop(self, thread_id: str, command_id: str) -> str:
        """Stop a command. Return the rest of its output.

        Raises:
            SandboxError: The thread has no such command.
        """
        command = self._find(thread_id, command_id)
        command.scope.cancel()
        with anyio.move_on_after(STOP_S):
            await command.ended.wait()
        return self._report(thread_id, command)

    async def stop_all(self, thread_id: str) -> None:
        """Stop and forget all commands of a thread, because its sandbox ends."""
        commands = self._threads.pop(thread_id, {}).values()
        self._used_at.pop(thread_id, None)
        for command in commands:
            command.scope.cancel()
        with anyio.move_on_after(STOP_S):
            for command in commands:
                await command.ended.wait()

    def _running(self, thread_id: str) -> list[BackgroundCommand]:
        known = self._threads.get(thread_id, {}).values()
        return [one for one in known if not one.ended.is_set()]

    def _use(self, thread_id: str) -> None:
        if thread_id in self._threads:
            self._used_at[thread_id] = anyio.current_time()

    async def _make_room(self, thread_id: str) -> None:
        """Stop commands of the threads that have been idle longest, until there is room. Errors: see `start`."""
        while True:
            if len(self.running(thread_id)) >= MAX_PER_THREAD:
                raise SandboxError(
                    f"{MAX_PER_THREAD} background processes are already running, which is the limit: stop one first"
                )
            if sum(len(self._running(one)) for one in self._threads) < MAX_RUNNING:
                return
            idle_since = anyio.current_time() - IDLE_S
            others = [one for one in self._threads if one != thread_id and self._running(one)]
            oldest = min(others, key=lambda one: self._used_at[one], default=None)
            if oldest is None or self._used_at[oldest] > idle_since:
                raise SandboxError(
                    "the service is running too many background processes: try later"
                )
            commands = self._running(oldest)
            log.info("Stopping %s idle background commands of thread %s", len(commands), oldest)
            for command in commands:
                command.result = "It was stopped to make room for another conversation."
                command.scope.cancel()
            with anyio.move_on_after(STOP_S) as waiting:
                for command in commands:
                    await command.ended.wait()
            if waiting.cancelled_caught:
                raise SandboxError("the service is still stopping background processes: try later")

    def _find(self, thread_id: str, command_id: str) -> BackgroundCommand:
        found = self._threads.get(thread_id, {}).get(command_id)
        if found is None:
            known = ", ".join(self._threads.get(thread_id, {})) or "none"
            raise SandboxError(
                f"there is no background process {command_id[:40]!r}; it may have ended with the service. "
                f"Known: {known}"
            )
        return found

    def _report(self, thread_id: str, command: BackgroundCommand) -> str:
        """Return the unread output and the state. Forget an ended command, because all of its output was read."""
        output = command.output.take()
        if not command.ended.is_set():
            state = f"[{command.id} is running, {command.age_s} s]"
        else:
            self._forget(thread_id, command.id)
            state = "\n".join(filter(None, (command.result, f"[{command.id} has ended]")))
        return f"{output.rstrip()}\n{state}" if output.strip() else state

    def _forget(self, thread_id: str, command_id: str) -> None:
        commands = self._threads.get(thread_id, {})
        commands.pop(command_id, None)
        if not commands:
            self._threads.pop(thread_id, None)
            self._used_at.pop(thread_id, None)

    async def _run(
        self, thread_id: str, sandbox: Sandbox, command: BackgroundCommand, timeout_s: float
    ) -> None:
        try:
            with command.scope:
                text = await sandbox.execute(
                    command.command, timeout_s=timeout_s, output=command.output
                )
                command.result = "" if text == NO_OUTPUT else text
            await self._keep(thread_id, KEEP_S)
        except AgentError as error:
            command.result = f"Error: {error.user_message}"
        except anyio.get_cancelled_exc_class():
            with anyio.CancelScope(shield=True):
                await self._keep(thread_id, KEEP_AT_EXIT_S)
            raise
        finally:
            command.ended.set()
            self._forget_oldest(thread_id)

    async def _keep(self, thread_id: str, within_s: float) -> None:
        with anyio.move_on_after(within_s):
            try:
                await self._keep_files(thread_id)
            except (AgentError, StoreError, OSError):
                log.exception(
                    "could not keep the files of a background command of thread %s", thread_id
                )

    def _forget_oldest(self, thread_id: str) -> None:
        commands = self._threads.get(thread_id, {})
        ended = deque(one.id for one in commands.values() if one.ended.is_set())
        while len(ended) > MAX_ENDED:
            self._forget(thread_id, ended.popleft())


@asynccontextmanager
async def open_background_commands(keep_files: KeepFiles) -> AsyncIterator[BackgroundCommands]:
    """Open the background commands. Leaving the block stops them and waits until they end."""
    async with background_tasks() as tasks:
        yield BackgroundCommands(tasks, keep_files)
