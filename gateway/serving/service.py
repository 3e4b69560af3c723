"""The service behind `parley serve`: the composed parts, the HTTP server, the chat, and the end."""

import logging
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import anyio
from fastapi import FastAPI

from gateway.app import served
from gateway.auth import AdminToken
from gateway.compose import running
from gateway.config import Config
from gateway.reload import Reload
from gateway.routes.channels import channel_states
from gateway.services import Services
from gateway.serving import banner, heap
from gateway.serving.server import NoFalseAlarms, Server
from gateway.serving.stopping import Stop
from gateway.terminal.attached import local_link
from gateway.terminal.talk import talk

STOP_BOUND_S = 6.3
"""What a stop may take beyond channels.drain_s: the server's grace and the runtime's bound (SPEC 10: 12 s in all)."""

SESSION = "main"


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """How the service was started.

    Attributes:
        config: The configuration.
        token: The admin token; None = nobody is asked for one.
        has_chat: Whether the chat opens in this terminal.
        given: Keys of the `gateway` section that the command line replaced.
    """

    config: Config
    token: AdminToken | None
    has_chat: bool
    given: Mapping[str, str]


async def serve(start: Start, door: socket.socket, changed: Callable[[Config], None]) -> None:
    """Run the service on an open port until SIGINT or SIGTERM, or until the chat here is left.

    `changed` is called with every later state of the configuration that was taken up.
    """
    config, token, has_chat = start.config, start.token, start.has_chat
    logging.getLogger("uvicorn.error").addFilter(NoFalseAlarms())
    with Stop(bound_s=config.bus.drain_s + STOP_BOUND_S) as stop:
        async with running(config) as app:
            network = served(app, config.gateway, token=token.value if token else None)
            server = Server(network, door)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(server.run_until_stopped)
                agents = app.state.services.agents
                reload = Reload(config, agents, applied=changed, given=start.given)
                await server.ready.wait()
                heap.settle()
                port = door.getsockname()[1]
                _say(_report(app.state.services, port, token, has_chat=has_chat))
                async with anyio.create_task_group() as talking:
                    if has_chat:
                        talking.start_soon(_chat, app, stop)
                    talking.start_soon(reload.run)
                    talking.start_soon(app.state.services.watchdog.run)
                    await stop.wait()
                    talking.cancel_scope.cancel()
                _say("Stopping ...\n")
                server.stop()
                tasks.cancel_scope.deadline = anyio.current_time() + STOP_BOUND_S


async def _chat(app: FastAPI, stop: Stop) -> None:
    services: Services = app.state.services
    if services.terminal is None or services.bus is None:
        return
    async with local_link(services.terminal, services.bus, SESSION) as link:
        await talk(services.config, link)
    stop.request()


def _report(services: Services, port: int, token: AdminToken | None, *, has_chat: bool) -> str:
    config = services.config
    url = config.base_url.removesuffix(f":{config.gateway.port}") + f":{port}"
    text = f"Parley is running at {url}\n" + banner.listing(
        banner.facts(config, services.systems.sandboxes.description)
    )
    text += banner.listing(banner.channel_lines(channel_states(services)))
    text += banner.listing(iter([("logs", str(config.log_file) if has_chat else "here")]))
    if token is None:
        text += banner.listing(iter([("token", "none is asked for (gateway.auth: none)")]))
    elif token.generated:
        text += banner.listing(
            iter([("token", f"{token.value} (made now, shown once; kept in {config.token_file})")])
        )
    hints = (*banner.absences(config), *banner.hints(config))
    return text + "".join(f"  - {hint}\n" for hint in hints)


def _say(text: str) -> None:
    """Print, if anybody still reads: a closed pipe is no reason to stop serving."""
    with suppress(OSError):
        sys.stdout.write(text)
        sys.stdout.flush()
