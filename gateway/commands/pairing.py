"""`parley pairing`: let strangers in, and shut them out. Works with the running service, and without one."""

import argparse
import sys
import time
from functools import partial
from urllib.parse import quote

import anyio
import httpx

from gateway.config import Config, load
from gateway.failures import CommandFailed
from gateway.reach import ask, service
from gateway.table import iso, moment, table
from store.database import Database
from store.errors import RowNotFound
from store.pairings import PairingStore

HEAD = ("code", "channel", "user", "name", "asked", "let in")
UNKNOWN_CODE = "There is no open request with this code: it may be mistyped, or older than an hour."
NOT_IN = "This person was not let in: `parley pairing list` shows who was."


def run(arguments: argparse.Namespace) -> int:
    """Do one action."""
    config = load(arguments.config)
    sys.stdout.write(anyio.run(partial(_act, config, arguments)) + "\n")
    return 0


async def _act(config: Config, arguments: argparse.Namespace) -> str:
    async with service(config) as client:
        if client is not None:
            return await _remote(client, arguments)
    async with Database.open(config.database, config.home) as database:
        return await _local(PairingStore(database), arguments)


async def _remote(client: httpx.AsyncClient, arguments: argparse.Namespace) -> str:
    match arguments.action:
        case "list":
            rows = (await ask(client, "GET", "channels/pairings"))["rows"]
            keys = ("code", "channel", "user_id", "user_name")
            times = ("created_at", "approved_at")
            return _listed(
                [
                    [*(row[key] for key in keys), *(moment(row[key]) for key in times)]
                    for row in rows
                ]
            )
        case "approve":
            path = f"channels/pairings/{quote(arguments.code, safe='')}/approve"
            row = await ask(client, "POST", path)
            return _let_in(row["channel"], row["user_name"] or row["user_id"])
        case _:
            person = quote(arguments.user_id, safe="")
            path = f"channels/pairings/{quote(arguments.channel, safe='')}/{person}"
            await ask(client, "DELETE", path)
            return _shut_out(arguments)


async def _local(pairings: PairingStore, arguments: argparse.Namespace) -> str:
    match arguments.action:
        case "list":
            return _listed(
                [
                    [
                        row.code,
                        row.channel,
                        row.user_id,
                        row.user_name,
                        moment(iso(row.created_at)),
                        moment(iso(row.approved_at)),
                    ]
                    for row in await pairings.list_all()
                ]
            )
        case "approve":
            try:
                row = await pairings.approve(arguments.code.strip().upper(), now=time.time())
            except RowNotFound:
                raise CommandFailed(UNKNOWN_CODE) from None
            return _let_in(row.channel, row.user_name or row.user_id)
        case _:
            if not await pairings.revoke(arguments.channel, arguments.user_id):
                raise CommandFailed(NOT_IN)
            return _shut_out(arguments)


def _listed(rows: list[list[object]]) -> str:
    return table(HEAD, rows) if rows else "Nobody asked to be let in."


def _let_in(channel: str, name: str) -> str:
    return f"{name} may now talk to the bot on {channel}."


def _shut_out(arguments: argparse.Namespace) -> str:
    return f"{arguments.user_id} may not talk to the bot on {arguments.channel} any more."
