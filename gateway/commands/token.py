"""`parley token`: creates, lists, replaces and revokes named API tokens, with or without a running service."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import quote

import anyio
import httpx
from pydantic import ValidationError

from gateway.command_errors import CommandFailed
from gateway.config import Config, load_config
from gateway.config_validation import format_validation_error
from gateway.routes.views import api_token_view
from gateway.service_client import open_service_client, request_json
from gateway.text_table import format_table, format_time
from gateway.token_scopes import NewTokenRequest
from store.api_tokens import ApiTokenStore
from store.database import Database

ARGUMENTS = {"name": "NAME", "days": "--days"}
NAME_RULE = "must be 1 to 64 letters, digits, `.`, `_` or `-`, and begin with a letter or digit"
COLUMNS = ("name", "scope", "created", "expires")


def run(arguments: argparse.Namespace) -> int:
    """Run one action. A new token is the only line on standard output."""
    config = load_config(arguments.config)
    sys.stdout.write(anyio.run(partial(_run_action, config, arguments)) + "\n")
    return 0


async def _run_action(config: Config, arguments: argparse.Namespace) -> str:
    new = _new_token(arguments) if arguments.action == "create" else None
    async with open_service_client(config) as client:
        if client is not None:
            return await _run_remote(client, arguments, new)
    async with Database.open(config.database, config.home) as database:
        return await _run_local(ApiTokenStore(database), arguments, new)


def _new_token(arguments: argparse.Namespace) -> NewTokenRequest:
    try:
        return NewTokenRequest(name=arguments.name, scope=arguments.scope, days=arguments.days)
    except ValidationError as error:
        raise CommandFailed("; ".join(_argument_problems(error))) from None


def _argument_problems(error: ValidationError) -> list[str]:
    """Return one line per error, with the command line's names of the fields."""
    lines = []
    for line in format_validation_error(error, ""):
        field, _, what = line.partition(": ")
        what = NAME_RULE if field == "name" else what
        lines.append(f"{ARGUMENTS.get(field, field)}: {what}")
    return lines


async def _run_remote(
    client: httpx.AsyncClient, arguments: argparse.Namespace, new: NewTokenRequest | None
) -> str:
    if new is not None:
        created = await request_json(client, "POST", "tokens", new.model_dump())
        return str(created["token"])
    if arguments.action == "list":
        return _format_list((await request_json(client, "GET", "tokens"))["rows"])
    path = f"tokens/{quote(arguments.name, safe='')}"
    if arguments.action == "rotate":
        return str((await request_json(client, "POST", f"{path}/rotate"))["token"])
    await request_json(client, "DELETE", path)
    return _revoked_message(arguments)


async def _run_local(
    tokens: ApiTokenStore, arguments: argparse.Namespace, new: NewTokenRequest | None
) -> str:
    if new is not None:
        return await tokens.create(new.name, new.scope, lifetime_s=new.lifetime_s)
    if arguments.action == "list":
        return _format_list([api_token_view(token) for token in await tokens.list_all()])
    if arguments.action == "rotate":
        return await tokens.rotate(arguments.name)
    await tokens.revoke(arguments.name)
    return _revoked_message(arguments)


def _format_list(rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return "No tokens. The admin token is not listed."
    times = ("created_at", "expires_at")
    return format_table(
        COLUMNS,
        [[row["name"], row["scope"], *(format_time(row[key]) for key in times)] for row in rows],
    )


def _revoked_message(arguments: argparse.Namespace) -> str:
    return f"{arguments.name} is revoked."
