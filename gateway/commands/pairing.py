"""`parley pairing`: approves people and groups, and revokes access, with or without a running service."""

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import quote

import anyio
import httpx

from gateway.command_errors import CommandFailed
from gateway.config import Config, load_config
from gateway.routes.views import pairing_view
from gateway.service_client import open_service_client, request_json
from gateway.text_table import format_table, format_time
from store.database import Database
from store.errors import RowNotFound
from store.pairings import PairingStore

COLUMNS = ("code", "channel", "user", "name", "requested", "approved")
UNKNOWN_CODE = "There is no open request with this code. It may be mistyped or older than one hour."
NOT_PAIRED = "This person is not approved. `parley pairing list` shows who is."


def run(arguments: argparse.Namespace) -> int:
    """Run one action."""
    config = load_config(arguments.config)
    sys.stdout.write(anyio.run(partial(_run_action, config, arguments)) + "\n")
    return 0


async def _run_action(config: Config, arguments: argparse.Namespace) -> str:
    async with open_service_client(config) as client:
        if client is not None:
            return await _run_remote(client, arguments)
    async with Database.open(config.database, config.home) as database:
        return await _run_local(PairingStore(database), arguments)


async def _run_remote(client: httpx.AsyncClient, arguments: argparse.Namespace) -> str:
    match arguments.action:
        case "list":
            return _format_list((await request_json(client, "GET", "channels/pairings"))["rows"])
        case "approve":
            path = f"channels/pairings/{quote(arguments.code, safe='')}/approve"
            return _approved_message(await request_json(client, "POST", path))
        case _:
            person = quote(arguments.user_id, safe="")
            path = f"channels/pairings/{quote(arguments.channel, safe='')}/{person}"
            await request_json(client, "DELETE", path)
            return _revoked_message(arguments)


async def _run_local(pairings: PairingStore, arguments: argparse.Namespace) -> str:
    match arguments.action:
        case "list":
            return _format_list([pairing_view(row) for row in await pairings.list_all()])
        case "approve":
            try:
                row = await pairings.approve(arguments.code.strip().upper(), now=time.time())
            except RowNotFound:
                raise CommandFailed(UNKNOWN_CODE) from None
            return _approved_message(pairing_view(row))
        case _:
            if not await pairings.revoke(arguments.channel, arguments.user_id):
                raise CommandFailed(NOT_PAIRED)
            return _revoked_message(arguments)


def _format_list(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return "No requests and no approved people."
    keys, times = ("code", "channel", "user_id", "user_name"), ("created_at", "approved_at")
    return format_table(
        COLUMNS,
        [[*(row[key] for key in keys), *(format_time(row[key]) for key in times)] for row in rows],
    )


def _approved_message(row: Mapping[str, Any]) -> str:
    return f"{row['user_name'] or row['user_id']} can now use the bot on {row['channel']}."


def _revoked_message(arguments: argparse.Namespace) -> str:
    return f"{arguments.user_id} can no longer use the bot on {arguments.channel}."
