"""`parley serve`: the service, in the foreground, until it is told to stop."""

import argparse
import importlib
import os
import sys

import anyio

from gateway import logs
from gateway.auth import admin_token
from gateway.config import Config, load
from gateway.failures import CommandFailed
from gateway.serving import banner, heap
from gateway.serving.doors import listening

SERVING = "gateway.serving.service"
"""Imported when the port is open: it takes a second, during which connections wait instead of being refused."""


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM."""
    heap.rest()
    given = {"host": arguments.host, "port": arguments.port}
    given = {key: value for key, value in given.items() if value}
    config = load(arguments.config, gateway=given)
    with listening(config.gateway) as door:
        has_chat = _wants_chat(config) and not arguments.no_chat
        token = admin_token(config)
        secrets = config.secrets | ({token.value} if token else frozenset())
        _configure_logs(config, secrets, to_file=has_chat)

        def changed(later: Config) -> None:
            _configure_logs(later, secrets | later.secrets, to_file=has_chat)

        serving = importlib.import_module(SERVING)
        start = serving.Start(config=config, token=token, has_chat=has_chat, given=given)
        anyio.run(serving.serve, start, door, changed)
    return 0


def _wants_chat(config: Config) -> bool:
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty() and _is_in_front()
    return is_terminal and config.bots.terminal.enabled and not banner.has_platform(config)


def _is_in_front() -> bool:
    """Return whether this process may read the terminal: one in the background would be halted by it."""
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:
        return True


def _configure_logs(config: Config, secrets: frozenset[str], *, to_file: bool) -> None:
    file = config.log_file if to_file else None
    try:
        logs.configure(config.log_level, config.log_format, secrets=secrets, file=file)
    except OSError as error:
        raise CommandFailed(
            f"{config.log_file}: cannot be written ({error.strerror}):"
            " correct the folder's rights, or set PARLEY_HOME to another folder"
        ) from None
