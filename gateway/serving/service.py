"""The service behind `parley serve`: services, HTTP server, terminal chat, and shutdown."""

import gc
import hashlib
import logging
import os
import shutil
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial

import anyio
from fastapi import FastAPI

from gateway.app import network_app
from gateway.auth import AdminToken
from gateway.checks.configuration import find_config_problems
from gateway.command_errors import CommandFailed
from gateway.compose import open_app
from gateway.config import Config
from gateway.config_editor import ConfigEditor
from gateway.config_reload import ConfigReloader
from gateway.routes.channels import channel_states
from gateway.routes.sessions import link_path
from gateway.services import Services
from gateway.serving import startup_report
from gateway.serving.connections import RepeatedErrorFilter
from gateway.serving.playground_link import PlaygroundLink, is_playground_offered
from gateway.serving.server import HttpServer, UvicornLogFilter
from gateway.serving.shutdown import ShutdownSignal
from gateway.terminal.chat import run_chat
from gateway.terminal.local_client import open_local_client
from gateway.version import get_version
from store.api_tokens import token_digest
from store.data_folder import record_address
from store.process_description import ProcessDescription

STOP_TIMEOUT_S = 6.3
"""How long a stop may take beyond channels.drain_s, seconds: the server's grace period and the runtime's limit.

SPEC 10 permits 12 s in total.
"""

DEFAULT_SESSION = "main"

FOLDER_CHECK_S = 2.0
"""How often the data folder is checked, seconds."""

FOLDER_GONE = "the data folder is gone: restore it and start again"
FILES_GONE = "storage.url: the folder is gone: mount it and start again"

LOST_DATABASE = 75
"""Exit code after this node's work failed over to other nodes: a temporary failure, after which a restart helps."""

EXPORTER_LOGGERS = tuple(
    f"opentelemetry.exporter.otlp.proto.http.{name}"
    for name in ("trace_exporter", "metric_exporter", "_log_exporter")
)
EXPORT_ERROR_S = 60.0
"""How often an unreachable collector is logged for each signal, seconds."""

log = logging.getLogger(__name__)


async def run_service(
    config: Config,
    listener: socket.socket,
    *,
    token: AdminToken | None,
    has_chat: bool,
    overrides: Mapping[str, str],
    on_config_change: Callable[[Config], None],
) -> None:
    """Run the service on an open socket until SIGINT, SIGTERM or SIGHUP, or until the user exits the chat.

    Args:
        config: The configuration.
        listener: The socket.
        token: The admin token; None = not required.
        has_chat: Whether to open the chat in this terminal.
        overrides: Keys of the `gateway` section set on the command line.
        on_config_change: Called with each reloaded configuration.

    Raises:
        CommandFailed: The data folder disappeared.
    """
    _filter_logs()
    with ShutdownSignal(bound_s=config.bus.drain_s + STOP_TIMEOUT_S) as stop:
        description = await anyio.to_thread.run_sync(_describe, config, listener)
        async with open_app(config, description, _end_at_once) as app, AsyncExitStack() as stack:
            playground = PlaygroundLink(config) if is_playground_offered(config) else None
            if playground is not None:
                app.get(playground.path, include_in_schema=False)(playground.open)
                stack.callback(playground.end)
            network = network_app(
                app,
                config.gateway,
                token=token.value if token else None,
                open_paths=[playground.path] if playground else [],
            )
            limits = config.gateway.connections
            # This runs before connections are accepted, because they may take all file descriptors.
            faults = await anyio.to_thread.run_sync(_find_faults, config)
            record_address(config.home, _url(config, listener.getsockname()[1]))
            server = HttpServer(network, listener, limits)
            reload = _watch_config(app, on_config_change, overrides)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(server.run_until_stopped)
                await server.ready.wait()
                gc.freeze()  # modules, classes and schemas stay as long as the process
                pages = await _pages(app.state.services, listener, token, playground)
                _announce(app.state.services, listener, token, pages, faults, has_chat=has_chat)
                await _wait_for_stop(app, stop, reload, has_chat=has_chat)
                _print("Stopping ...\n")
                server.stop()
                tasks.cancel_scope.deadline = anyio.current_time() + STOP_TIMEOUT_S
    if gone := _find_missing_folder(config):
        raise CommandFailed(gone)


def _watch_config(
    app: FastAPI, on_config_change: Callable[[Config], None], overrides: Mapping[str, str]
) -> ConfigReloader:
    """Return the reloader that applies changes of the configuration file, and let the routes edit the file."""
    services: Services = app.state.services
    apply = partial(_apply, app, on_config_change)
    reload = ConfigReloader(services.config, services.agents, on_applied=apply, overrides=overrides)
    find_problems = partial(find_config_problems, loads_graphs=False)
    app.state.config_editor = ConfigEditor(reload, find_problems)
    return reload


def _apply(app: FastAPI, on_config_change: Callable[[Config], None], config: Config) -> None:
    """Apply a reloaded configuration to the parts outside of the agent."""
    services: Services = app.state.services
    if services.bus is not None:
        services.bus.hooks.configure(config.hooks)
    on_config_change(config)


def _filter_logs() -> None:
    logging.getLogger("uvicorn.error").addFilter(UvicornLogFilter())
    for name in ("uvicorn.error", "asyncio"):
        logging.getLogger(name).addFilter(RepeatedErrorFilter())
    for name in EXPORTER_LOGGERS:
        logger = logging.getLogger(name)
        logger.setLevel(logging.ERROR)
        logger.addFilter(RepeatedErrorFilter(every_s=EXPORT_ERROR_S))


def _describe(config: Config, listener: socket.socket) -> ProcessDescription:
    """Return this node's description for the other nodes of the database. Blocking."""
    digest = ""
    with suppress(OSError):
        if config.source is not None:
            digest = hashlib.sha256(config.source.read_bytes()).hexdigest()[:8]
    name = config.node.name or f"{socket.gethostname()}:{listener.getsockname()[1]}"
    return ProcessDescription(version=get_version(), configuration=digest, name=name)


def _end_at_once() -> None:
    """End the process without sending anything else, because another node now does its work."""
    log.critical(
        "The work of this node failed over to other nodes, because this node did not respond. It ends now."
    )
    logging.shutdown()
    os._exit(LOST_DATABASE)


async def _wait_for_stop(
    app: FastAPI, stop: ShutdownSignal, reload: ConfigReloader, *, has_chat: bool
) -> None:
    """Run the chat, the configuration reload and the watchers until the service must stop."""
    services: Services = app.state.services
    async with anyio.create_task_group() as tasks:
        if has_chat:
            tasks.start_soon(_chat, app, stop)
        tasks.start_soon(reload.run)
        tasks.start_soon(services.watchdog.run)
        tasks.start_soon(_watch_folders, services.config, stop)
        await stop.wait()
        tasks.cancel_scope.cancel()


async def _watch_folders(config: Config, stop: ShutdownSignal) -> None:
    """Stop the service if its folders are gone, because it could not store anything it accepts."""
    while not (gone := await anyio.to_thread.run_sync(_find_missing_folder, config)):  # noqa: ASYNC110 - polled
        await anyio.sleep(FOLDER_CHECK_S)
    log.critical("%s", gone)
    stop.request()


def _find_missing_folder(config: Config) -> str:
    """Return a message about a missing folder (data or shared files); "" = none is missing."""
    for folder, text in ((config.home, FOLDER_GONE), (config.files, FILES_GONE)):
        if not folder.is_dir():
            return f"{folder}: {text}"
    return ""


async def _chat(app: FastAPI, stop: ShutdownSignal) -> None:
    services: Services = app.state.services
    if services.terminal is None or services.bus is None:
        return
    open_terminal = partial(open_local_client, services.terminal, services.bus)
    await run_chat(services.config, open_terminal, DEFAULT_SESSION)
    stop.request()


def _find_faults(config: Config) -> tuple[str, ...]:
    return tuple(startup_report.find_faults(config))


def _announce(
    services: Services,
    listener: socket.socket,
    token: AdminToken | None,
    pages: Sequence[tuple[str, str]],
    faults: tuple[str, ...],
    *,
    has_chat: bool,
) -> None:
    port = listener.getsockname()[1]
    report = _startup_report(services, port, token, pages, has_chat=has_chat)
    hints = (*faults, *startup_report.config_hints(services.config))
    _print(report + "".join(f"  - {hint}\n" for hint in hints))


async def _pages(
    services: Services,
    listener: socket.socket,
    token: AdminToken | None,
    playground: PlaygroundLink | None,
) -> list[tuple[str, str]]:
    """Return the names and addresses of the pages to open.

    The console's address signs in once, if it is printed on a terminal and not into a log.
    """
    url = _url(services.config, listener.getsockname()[1])
    signs_in = token is not None and sys.stdout.isatty()
    path = (
        await link_path(services, token_digest(token.value)) if token and signs_in else "console/"
    )
    pages = [("console", f"{url}/{path}{' (this link signs in once)' if signs_in else ''}")]
    if playground is not None:
        pages.append(("playground", f"{url}{playground.path}"))
    return pages


def _startup_report(
    services: Services,
    port: int,
    token: AdminToken | None,
    pages: Sequence[tuple[str, str]],
    *,
    has_chat: bool,
) -> str:
    config = services.config
    text = f"Parley is running at {_url(config, port)}\n" + startup_report.format_lines(
        startup_report.summary_lines(config, services.agent_services.sandboxes.description)
    )
    text += startup_report.format_lines(iter(pages))
    text += startup_report.format_lines(startup_report.channel_lines(channel_states(services)))
    text += startup_report.format_lines(
        iter([("logs", str(config.log_file) if has_chat else "here")])
    )
    if token is None:
        text += startup_report.format_lines(iter([("token", "not required (gateway.auth: none)")]))
    elif token.generated:
        shown = (
            f"{token.value} (new, shown only once; stored in"
            if sys.stdout.isatty()
            else "(new; stored in"
        )
        text += startup_report.format_lines(iter([("token", f"{shown} {config.token_file})")]))
    return text


def _url(config: Config, port: int) -> str:
    return config.base_url.removesuffix(f":{config.gateway.port}") + f":{port}"


def _print(text: str) -> None:
    """Print a text, wrapped for a terminal. Ignores a closed pipe."""
    with suppress(OSError):
        if sys.stdout.isatty():
            text = startup_report.wrapped(text, shutil.get_terminal_size().columns)
        sys.stdout.write(text)
        sys.stdout.flush()
