"""`parley chat`: talk to the running service, or with nothing running to the agent in this process."""

import argparse
import sys
from dataclasses import replace
from functools import partial

import anyio
import httpx

from bots.registry import PLATFORMS
from bots.terminal import check_session
from gateway import logs
from gateway.compose import running
from gateway.config import Config, load
from gateway.failures import CommandFailed
from gateway.keyboard import typed_lines
from gateway.links import ChatLink, local_link, remote_link
from gateway.reach import service
from gateway.services import Services
from gateway.terminal import Chat
from store.errors import Locked


def run(arguments: argparse.Namespace) -> int:
    """Chat until the person leaves or the input ends."""
    config = load(arguments.config)
    try:
        check_session(arguments.session)
    except ValueError as error:
        raise CommandFailed(f"--session {arguments.session}: {error}") from None
    try:
        anyio.run(partial(_chat, config, arguments.session))
    except KeyboardInterrupt:
        sys.stdout.write("\n")
    return 0


async def _chat(config: Config, session: str) -> None:
    async with service(config) as client:
        if client is not None:
            await _with_service(config, client, session)
            return
    await _in_process(config, session)


async def _with_service(config: Config, client: httpx.AsyncClient, session: str) -> None:
    async with remote_link(client, session) as link:
        await _talk(config, link)


async def _in_process(config: Config, session: str) -> None:
    if not config.bots.terminal.enabled:
        raise CommandFailed("channels.terminal.enabled is false: set it to true to chat here")
    try:
        logs.configure(
            config.log_level, config.log_format, secrets=config.secrets, file=config.log_file
        )
    except OSError as error:
        raise CommandFailed(f"{config.log_file}: cannot be written ({error.strerror})") from None
    try:
        async with running(_terminal_only(config)) as app:
            services: Services = app.state.services
            if services.terminal is None or services.bus is None:
                raise CommandFailed("the terminal channel did not start; see the log")
            async with local_link(services.terminal, services.bus, session) as link:
                await _talk(config, link)
    except Locked as error:
        raise CommandFailed(
            f"{error} Nothing answers at {config.base_url}, though: is gateway.port the running service's?"
        ) from None


async def _talk(config: Config, link: ChatLink) -> None:
    is_live = sys.stdin.isatty() and sys.stdout.isatty()
    lines = typed_lines(sys.stdin.fileno())
    chat = Chat(link, lines, sys.stdout, files=config.home / "terminal", live=is_live)
    await chat.run()


def _terminal_only(config: Config) -> Config:
    """Return the configuration without the platforms: they belong to `parley serve`."""
    off = {
        name: getattr(config.bots, name).model_copy(update={"enabled": False}) for name in PLATFORMS
    }
    return replace(config, bots=config.bots.model_copy(update=off))
