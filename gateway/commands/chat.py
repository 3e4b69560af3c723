"""`parley chat`: chat with the running service, or with the agent in this process."""

import argparse
import importlib
import sys
from functools import partial

import anyio
import httpx

from bots.terminal.session import check_session
from gateway.command_errors import CommandFailed
from gateway.config import Config, load_config, prepare_process_for_agent
from gateway.service_client import open_service_client
from gateway.terminal.chat import is_interactive, run_chat
from gateway.terminal.remote_client import RECONNECT, open_remote_client

EMBEDDED_CHAT_MODULE = "gateway.commands.embedded_chat"
"""Imported only if no service is running: it imports the whole agent."""


def run(arguments: argparse.Namespace) -> int:
    """Chat until the user exits or the input ends."""
    config = load_config(arguments.config)
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
    async with open_service_client(config) as client:
        if client is not None:
            await _chat_with_service(config, client, session)
            return
    prepare_process_for_agent(config)
    await importlib.import_module(EMBEDDED_CHAT_MODULE).run_embedded_chat(config, session)


async def _chat_with_service(config: Config, client: httpx.AsyncClient, session: str) -> None:
    backoff = RECONNECT if is_interactive() else None
    open_terminal = partial(open_remote_client, client, backoff=backoff)
    await run_chat(config, open_terminal, session)
