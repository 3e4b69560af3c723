"""Runs the playground until it is stopped: the platforms, the page, and the service beside them."""

import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import anyio

from gateway.command_errors import CommandFailed
from gateway.config import Config, load_config
from gateway.config_file import ConfigError
from gateway.playground.server import PlaygroundServer
from gateway.playground.simulation import Simulation

_CHANNELS = re.compile(r": channels\.\S+: ")


def load_operator_config(path: str | None) -> Config:
    """Read the operator's configuration. Ignores problems of its channels. Raises ConfigError for other problems."""
    try:
        return load_config(path)
    except ConfigError as error:
        others = [line for line in error.problems if not _CHANNELS.search(line)]
        if others or not isinstance(error.partial, Config):
            raise
        return error.partial


async def run_playground(
    config: Config,
    *,
    port: int | None,
    on_start: Callable[[str], object],
    ends_with_input: bool = False,
) -> None:
    """Run until SIGINT or SIGTERM.

    Args:
        config: The operator's configuration.
        port: The port of the page; None = a free port.
        on_start: Called with the link.
        ends_with_input: Also end when the standard input ends, as it does with the parent process.
    """
    with TemporaryDirectory(prefix="parley-playground-", ignore_cleanup_errors=True) as folder:
        async with Simulation(Path(folder), config) as simulation:
            server = PlaygroundServer(simulation, port)
            try:
                async with server.listening():
                    on_start(server.link)
                    await _run(simulation, server, ends_with_input=ends_with_input)
            except OSError as error:
                raise CommandFailed(
                    f"port {server.port} cannot be used ({error.strerror}): choose another with --port"
                ) from None


async def _run(simulation: Simulation, server: PlaygroundServer, *, ends_with_input: bool) -> None:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(simulation.service.run)
        await simulation.start(server.url)
        if ends_with_input:
            tasks.start_soon(_wait_for_end_of_input, tasks.cancel_scope)
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for _ in signals:
                break
        tasks.cancel_scope.cancel()


async def _wait_for_end_of_input(scope: anyio.CancelScope) -> None:
    await anyio.to_thread.run_sync(sys.stdin.read, abandon_on_cancel=True)
    scope.cancel()
