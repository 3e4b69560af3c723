"""`parley serve`: the service, in the foreground, until it is told to stop."""

import argparse
import logging
import socket
import sys
from functools import partial

import anyio
from fastapi import FastAPI

from gateway import banner, logs
from gateway.app import guarded
from gateway.auth import AdminToken, admin_token
from gateway.compose import running
from gateway.config import Config, load
from gateway.doors import listening
from gateway.failures import CommandFailed
from gateway.keyboard import typed_lines
from gateway.links import local_link
from gateway.routes.channels import channel_states
from gateway.server import NoCutStreams, Server
from gateway.services import Services
from gateway.stopping import Stop
from gateway.terminal import Chat

STOP_BOUND_S = 6.3
"""What a stop may take beyond channels.drain_s: the server's grace and the runtime's bound (SPEC 10: 12 s in all)."""

SESSION = "main"


def run(arguments: argparse.Namespace) -> int:
    """Serve until SIGINT or SIGTERM."""
    config = load(arguments.config)
    with listening(config.gateway) as door:
        has_chat = _wants_chat(config) and not arguments.no_chat
        _configure_logs(config, to_file=has_chat)
        token = admin_token(config)
        anyio.run(partial(_serve, config, door, token, has_chat=has_chat))
    return 0


def _wants_chat(config: Config) -> bool:
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
    return is_terminal and config.bots.terminal.enabled and not banner.has_platform(config)


def _configure_logs(config: Config, *, to_file: bool) -> None:
    file = config.log_file if to_file else None
    try:
        logs.configure(config.log_level, config.log_format, secrets=config.secrets, file=file)
    except OSError as error:
        raise CommandFailed(
            f"{config.log_file}: cannot be written ({error.strerror}):"
            " correct the folder's rights, or set PARLEY_HOME to another folder"
        ) from None
    logging.getLogger("uvicorn.error").addFilter(NoCutStreams())
    for warning in config.warnings:
        logging.getLogger(__name__).warning("%s", warning)


async def _serve(
    config: Config, door: socket.socket, token: AdminToken | None, *, has_chat: bool
) -> None:
    with Stop(bound_s=config.bus.drain_s + STOP_BOUND_S) as stop:
        async with running(config, token=token.value if token else None) as app:
            network = guarded(app, config.gateway, token=token.value if token else None)
            server = Server(network, door)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(server.run_until_stopped)
                await server.ready.wait()
                port = door.getsockname()[1]
                _say(_report(app.state.services, port, token, has_chat=has_chat))
                if has_chat:
                    tasks.start_soon(_chat, app, stop)
                await stop.wait()
                _say("Stopping ...\n")
                server.stop()
                tasks.cancel_scope.deadline = anyio.current_time() + STOP_BOUND_S


async def _chat(app: FastAPI, stop: Stop) -> None:
    services: Services = app.state.services
    if services.terminal is None or services.bus is None:
        return
    async with local_link(services.terminal, services.bus, SESSION) as link:
        files = services.config.home / "terminal"
        chat = Chat(link, typed_lines(sys.stdin.fileno()), sys.stdout, files=files, live=True)
        await chat.run()
    stop.request()


def _report(services: Services, port: int, token: AdminToken | None, *, has_chat: bool) -> str:
    config = services.config
    url = config.base_url.removesuffix(f":{config.gateway.port}") + f":{port}"
    text = f"Parley is running at {url}\n" + banner.listing(banner.facts(config))
    text += banner.listing(banner.channel_lines(channel_states(services)))
    text += banner.listing(iter([("logs", str(config.log_file) if has_chat else "here")]))
    if token is None:
        text += banner.listing(iter([("token", "none is asked for (gateway.auth: none)")]))
    elif token.generated:
        text += banner.listing(
            iter([("token", f"{token.value} (made now, shown once; kept in {config.token_file})")])
        )
    return text + "".join(f"  - {hint}\n" for hint in banner.hints(config))


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
