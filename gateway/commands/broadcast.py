"""`parley broadcast`: makes the running service send a message to chats in which people have written to the bot."""

import argparse
import json
import sys
import uuid
from collections.abc import Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any

import anyio

from gateway.command_errors import CommandFailed
from gateway.commands.send import open_files, read_text, send_notification
from gateway.config import load_config
from gateway.text_table import format_table

COLUMNS = ("channel", "chats", "not admitted", "left out")


def run(arguments: argparse.Namespace) -> int:
    """Show how many chats get the message, ask, and send it."""
    if not (arguments.yes or arguments.dry_run or sys.stdin.isatty()):
        raise CommandFailed(
            "cannot ask for confirmation without a terminal: add --yes to send without asking"
        )
    fields = {
        "text": read_text(arguments),
        "channels": arguments.channel,
        "audience": arguments.audience,
        "active_within_days": arguments.days,
        "key": arguments.key or uuid.uuid4().hex,
    }
    given = {name: value for name, value in fields.items() if value is not None}
    send = partial(send_notification, load_config(arguments.config), "channels/broadcast")
    with ExitStack() as stack:
        files = open_files(stack, arguments.file)
        counted = anyio.run(send, {**given, "dry_run": True})
        if arguments.dry_run:
            _show(counted, _table(counted), as_json=arguments.json)
            return 0
        if not arguments.yes and not _confirm(counted):
            raise CommandFailed("nothing was sent")
        receipt = anyio.run(send, given, files)
    _show(receipt, _report(receipt), as_json=arguments.json)
    return 0


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
