"""`parley broadcast`: makes the running service send a message to chats in which people have written to the bot."""

import argparse
import json
import sys
import uuid
from collections.abc import Mapping
from functools import partial
from typing import Any

import anyio
from pydantic import ValidationError

from gateway.command_errors import CommandFailed
from gateway.config import Config, load_config
from gateway.config_validation import format_validation_error
from gateway.notification_requests import NewBroadcastRequest
from gateway.service_client import open_service_client, request_json, service_url
from gateway.text_table import format_table

COLUMNS = ("channel", "chats", "not admitted", "left out")
PATH = "channels/broadcast"
STDIN = "-"


def run(arguments: argparse.Namespace) -> int:
    """Show how many chats get the message, ask, and send it."""
    config = load_config(arguments.config)
    if not (arguments.yes or arguments.dry_run or sys.stdin.isatty()):
        raise CommandFailed(
            "cannot ask for confirmation without a terminal: add --yes to send without asking"
        )
    text = sys.stdin.read().strip() if arguments.text == STDIN else arguments.text
    new = _new_broadcast(arguments, text)
    counting = new.model_copy(update={"dry_run": True})
    counted = anyio.run(partial(_request, config, counting))
    if arguments.dry_run:
        _show(counted, _table(counted), as_json=arguments.json)
        return 0
    if not arguments.yes and not _confirm(counted):
        raise CommandFailed("nothing was sent")
    try:
        receipt = anyio.run(partial(_request, config, new))
    except CommandFailed as error:
        raise CommandFailed(
            f"{error}\nTo make sure that it is sent exactly once, repeat the command with --key {new.key}."
        ) from error
    _show(receipt, _report(receipt), as_json=arguments.json)
    return 0


def _new_broadcast(arguments: argparse.Namespace, text: str) -> NewBroadcastRequest:
    try:
        return NewBroadcastRequest(
            text=text,
            channels=arguments.channel,
            audience=arguments.audience,
            active_within_days=arguments.days,
            key=arguments.key or uuid.uuid4().hex,
        )
    except ValidationError as error:
        raise CommandFailed("; ".join(format_validation_error(error, ""))) from None


async def _request(config: Config, new: NewBroadcastRequest) -> dict[str, Any]:
    async with open_service_client(config) as client:
        if client is None:
            raise CommandFailed(
                f"{service_url(config)}: Parley is not running: start it with `parley serve`"
            )
        return await request_json(client, "POST", PATH, new.model_dump())


def _confirm(counted: Mapping[str, Any]) -> bool:
    """Show the recipients on standard error and ask for confirmation."""
    sys.stderr.write(f"{_table(counted)}\nSend it to {_chats(counted['chats'])}? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def _show(answer: Mapping[str, Any], text: str, *, as_json: bool) -> None:
    sys.stdout.write(f"{json.dumps(answer) if as_json else text}\n")


def _table(answer: Mapping[str, Any]) -> str:
    lines = [
        [name, one["chats"], one["denied"], one["left_out"]]
        for name, one in answer["channels"].items()
    ]
    return format_table(COLUMNS, lines) if lines else "No channel is enabled."


def _report(receipt: Mapping[str, Any]) -> str:
    if receipt["is_repeat"]:
        state = f"This broadcast was already accepted; {receipt['waiting']} of its deliveries are waiting."
    else:
        state = f"Parley is sending it to {_chats(receipt['chats'])}, a few at a time."
    return f"{_table(receipt)}\n{state}\nKey: {receipt['key']}"


def _chats(count: int) -> str:
    return f"{count:,} chat{'' if count == 1 else 's'}"
