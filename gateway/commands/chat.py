"""`parley chat`: talk to the running service, or with nothing running to the agent in this process."""

import argparse
import importlib
import sys
from functools import partial

import anyio
import httpx

from bots.terminal.session import check_session
from gateway.config import Config, load
from gateway.failures import CommandFailed
from gateway.reach import service
from gateway.terminal.links import remote_link
from gateway.terminal.talk import talk

ALONE = "gateway.serving.alone"
"""Imported only when nothing runs: it brings the whole agent."""


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
    await importlib.import_module(ALONE).chat(config, session)


async def _with_service(config: Config, client: httpx.AsyncClient, session: str) -> None:
    async with remote_link(client, session) as link:
        await talk(config, link)
