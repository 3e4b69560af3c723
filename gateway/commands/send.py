"""`parley send`: makes the running service send a message to one chat, topic or person."""

import argparse
import json
import sys
import uuid
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from stat import S_ISREG
from typing import IO, Any, TypeAlias
from urllib.parse import quote

import anyio
import h11
import httpx

from gateway.command_errors import CommandFailed
from gateway.config import Config, load_config
from gateway.service_client import error_detail, open_service_client, request_json, service_url

STDIN = "-"

MAX_STDIN_CHARS = 1_000_000
"""Maximum number of characters to read from standard input. A message may have fewer."""

POLL_S = 0.5
"""How often `--wait` asks for the state, seconds."""

UPLOAD_TIMEOUT_S = 300.0
"""How long a request with files may take, seconds."""

FormFile: TypeAlias = tuple[str, tuple[str, IO[bytes]]]
"""A file of a form: the field, its name and its content."""

_UNDECIDED = ("pending", "sending")


def run(arguments: argparse.Namespace) -> int:
    """Send the message and print its key and state. With `--wait`, 1 = it was not delivered."""
    config = load_config(arguments.config)
    fields = {
        "person" if arguments.person else "chat": arguments.chat,
        "topic": arguments.topic,
        "text": read_text(arguments),
        "key": arguments.key or uuid.uuid4().hex,
    }
    with ExitStack() as stack:
        files = open_files(stack, arguments.file)
        path = f"channels/{quote(arguments.channel, safe='')}/messages"
        send = partial(send_notification, config, path, fields, files, wait=arguments.wait)
        sent = anyio.run(send)
    sys.stdout.write(f"{json.dumps(sent) if arguments.json else _report(sent)}\n")
    return 1 if arguments.wait and sent["state"] != "delivered" else 0


def read_text(arguments: argparse.Namespace) -> str:
    """Return the text of TEXT or standard input; "" = only files. Raises CommandFailed."""
    is_given = arguments.text not in (None, STDIN) or (arguments.text is None and arguments.file)
    if is_given:
        return arguments.text or ""
    if sys.stdin.isatty():
        raise CommandFailed("there is no text: write it as TEXT, or pipe it in")
    try:
        text = sys.stdin.read(MAX_STDIN_CHARS)
        text.encode()  # If the locale is not UTF-8, bytes may have become half characters.
    except UnicodeError:
        raise CommandFailed("standard input is not text in UTF-8") from None
    return text.strip()


def open_files(stack: ExitStack, names: Sequence[str]) -> list[FormFile]:
    """Return the files of the form. Raises CommandFailed."""
    files: list[FormFile] = []
    for name in names:
        path = Path(name)
        try:
            if not S_ISREG(path.stat().st_mode):
                raise CommandFailed(f"{name}: is not a file")
            files.append(("files", (path.name, stack.enter_context(path.open("rb")))))
        except OSError as error:
            raise CommandFailed(f"{name}: {error.strerror}") from None
    return files


async def send_notification(
    config: Config,
    path: str,
    fields: Mapping[str, Any],
    files: Sequence[FormFile] = (),
    *,
    wait: bool = False,
) -> dict[str, Any]:
    """Send a message, which has a `key`, and return the service's response. Raises CommandFailed.

    `wait`: Whether to wait until the delivery succeeds or fails. Not for broadcasts.
    """
    async with open_service_client(config) as client:
        if client is None:
            raise CommandFailed(
                f"{service_url(config)}: Parley is not running: start it with `parley serve`"
            )
        sent = await _post(client, path, fields, files)
        while wait and sent["state"] in _UNDECIDED:
            await anyio.sleep(POLL_S)
            sent = await request_json(client, "GET", f"{path}/{sent['key']}")
        return sent


async def _post(
    client: httpx.AsyncClient, path: str, fields: Mapping[str, Any], files: Sequence[FormFile]
) -> dict[str, Any]:
    body: dict[str, Any] = {"data": fields, "files": files} if files else {"json": fields}
    try:
        answer = await client.post(path, timeout=UPLOAD_TIMEOUT_S, **body)
    except httpx.HTTPError as error:
        raise CommandFailed(
            f"the service did not respond ({type(error).__name__})\n"
            f"To make sure that it is sent exactly once, repeat the command with --key {fields['key']}."
        ) from error
    except (OSError, h11.LocalProtocolError) as error:
        raise CommandFailed(
            f"a file cannot be read, or changed while it was sent ({error})"
        ) from error
    if answer.is_error:
        raise CommandFailed(_problem(answer))
    return dict(answer.json())


def _problem(answer: httpx.Response) -> str:
    """Return why a message was refused, in one line."""
    if answer.status_code != httpx.codes.UNPROCESSABLE_ENTITY:
        return error_detail(answer)
    detail = answer.json()["detail"]
    if isinstance(detail, str):
        return detail
    return "; ".join(
        f"{'.'.join(map(str, one['loc'][1:]))}: {one['msg'].removeprefix('Value error, ')}".lstrip(
            ": "
        )
        for one in detail
    )


def _report(sent: Mapping[str, Any]) -> str:
    repeated = " It was already accepted." if sent["is_repeat"] else ""
    error = f" ({sent['error']})" if sent["error"] else ""
    return f"The message is {sent['state']}{error}.{repeated}\nKey: {sent['key']}"
