"""`parley serve`: runs the service in the foreground until it is stopped."""

import argparse
import importlib
import os
import shutil
import sys
from functools import partial
from secrets import token_urlsafe
from types import ModuleType

import anyio

from gateway import logs
from gateway.auth import load_admin_token
from gateway.command_errors import CommandFailed
from gateway.config import (
    TOKEN_FILE,
    WEBHOOK_KEY_FILE,
    Config,
    load_config,
    prepare_process_for_agent,
)
from gateway.serving import startup_report
from gateway.serving.listener import open_listener

MIN_FREE_BYTES = 2_000_000
"""Minimum free disk space, in which the databases can be created."""

SERVICE_MODULE = "gateway.serving.service"
"""Module to import after the port is open. This takes a second, during which requests wait in the kernel's queue."""

EVENT_LOOP_MODULE = "gateway.serving.event_loop"

STORAGE_MODULE = "store.files.opening"
"""Imported only if files are in a bucket."""


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGINT, SIGTERM or SIGHUP."""
    overrides = {"host": arguments.host, "port": arguments.port}
    overrides = {key: value for key, value in overrides.items() if value}
    config = load_config(arguments.config, gateway=overrides)
    prepare_process_for_agent(config)
    _check_folders(config)
    with open_listener(config.gateway) as listener:
        has_chat = _should_open_chat(config) and not arguments.no_chat
        token = load_admin_token(config)
        secrets = config.secrets | ({token.value} if token else frozenset())
        _configure_logs(config, secrets, to_file=has_chat)

        def on_config_change(later: Config) -> None:
            _configure_logs(later, secrets | later.secrets, to_file=has_chat)

        serving = import_service()
        run_service = partial(
            serving.run_service,
            token=token,
            has_chat=has_chat,
            overrides=overrides,
            on_config_change=on_config_change,
        )
        options = {"loop_factory": importlib.import_module(EVENT_LOOP_MODULE).FairEventLoop}
        anyio.run(run_service, config, listener, backend_options=options)
    return 0


def import_service() -> ModuleType:
    """Import the service's modules."""
    return importlib.import_module(SERVICE_MODULE)


def _check_folders(config: Config) -> None:
    if problem := _prepare_storage(config):
        raise CommandFailed(problem)
    existing = next(path for path in (config.home, *config.home.parents) if path.exists())
    free = shutil.disk_usage(existing).free
    if free < MIN_FREE_BYTES:
        raise CommandFailed(
            f"{config.home}: the disk is full ({free // 1000} kB free): free up space, or set PARLEY_HOME to a folder"
            " on another disk"
        )


def _prepare_storage(config: Config) -> str | None:
    """Open the storage of `storage.url`, so that all nodes have the same key files. Blocking.

    Return why it cannot be used, in one line. None = it is ready.
    """
    if not config.storage.is_bucket:
        return config.storage.find_folder_problem()
    tokens = [WEBHOOK_KEY_FILE]
    if config.gateway.auth != "none" and not config.gateway.admin_token:
        tokens.append(TOKEN_FILE)
    keys = {name: f"{token_urlsafe(32)}\n".encode() for name in tokens}
    problem: str | None = importlib.import_module(STORAGE_MODULE).share_keys(
        config.storage, config.home, keys
    )
    return problem


def _should_open_chat(config: Config) -> bool:
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty() and _is_foreground()
    return is_terminal and config.bots.terminal.enabled and not startup_report.has_platform(config)


def _is_foreground() -> bool:
    """Return whether this process may read the terminal. A background process would be suspended."""
    try:
        return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
    except OSError:
        return True


def _configure_logs(config: Config, secrets: frozenset[str], *, to_file: bool) -> None:
    file = config.log_file if to_file else None
    try:
        logs.configure_logging(config.log_level, config.log_format, secrets=secrets, file=file)
    except OSError as error:
        raise CommandFailed(
            f"{config.log_file}: cannot be written ({error.strerror}):"
            " correct the folder's permissions, or set PARLEY_HOME to another folder"
        ) from None
