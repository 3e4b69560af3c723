"""The command line: `parley COMMAND`. Imports each command only when it runs, to start fast."""

import argparse
import difflib
import gc
import importlib
import math
import os
import re
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from typing_extensions import override

from gateway.version import get_version

COMMANDS = {
    "serve": "gateway.commands.serve",
    "init": "gateway.commands.init",
    "check": "gateway.commands.check",
    "doctor": "gateway.commands.doctor",
    "health": "gateway.commands.health",
    "chat": "gateway.commands.chat",
    "threads": "gateway.commands.threads",
    "prompt": "gateway.commands.prompt",
    "pairing": "gateway.commands.pairing",
    "config": "gateway.commands.config",
    "backup": "gateway.commands.backup",
    "restore": "gateway.commands.restore",
    "upgrade-check": "gateway.commands.upgrade_check",
    "migrate": "gateway.commands.migrate",
    "service": "gateway.commands.service",
    "slack": "gateway.commands.slack",
    "token": "gateway.commands.token",
    "broadcast": "gateway.commands.broadcast",
    "send": "gateway.commands.send",
    "playground": "gateway.commands.playground",
    "replay": "gateway.commands.replay",
    "prove": "gateway.commands.prove",
}
"""Command -> module with `run(arguments) -> exit code`."""

MAX_ROWS = 1000
"""Maximum number of rows that `parley threads` shows."""

MAX_PORT = 65_535

EXIT_INTERRUPTED = 130
"""Exit code after Ctrl-C, as in shells."""


_INVALID_CHOICE = re.compile(r"invalid choice: '([^']*)' \(choose from (.*)\)")


class _Parser(argparse.ArgumentParser):
    """Suggests the command or option that is closest to a misspelled one."""

    @override
    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        known, rest = super().parse_known_args(args, namespace)
        for word in rest:
            options = re.findall(r"--[\w-]+", self.format_help())
            near = difflib.get_close_matches(word.partition("=")[0], options, n=1)
            if word.startswith("--") and near:
                self.error(f"unrecognized argument: '{word}', did you mean '{near[0]}'?")
        return known, rest

    @override
    def error(self, message: str) -> NoReturn:
        if found := _INVALID_CHOICE.search(message):
            near = difflib.get_close_matches(found[1], re.findall(r"[\w-]+", found[2]), n=1)
            if near:
                at = message.index(" (choose from")
                message = f"{message[:at]}, did you mean '{near[0]}'?{message[at:]}"
        super().error(message)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    _open_closed_streams()
    parser = build_parser()
    for word in sys.argv[1:] if argv is None else argv:
        if not _is_unicode(word):
            parser.error(f"the argument {word!a} is not valid text")
    arguments = parser.parse_args(argv)
    arguments.config = getattr(arguments, "config", None)
    try:
        gc.disable()  # Imports leave almost no garbage, and the collector takes a tenth of their time.
        command = importlib.import_module(COMMANDS[arguments.command])
        gc.enable()
        return int(
            importlib.import_module("gateway.command_errors").run_command(command.run, arguments)
        )
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return 1
    finally:
        _discard_output_to_closed_pipes()


def _is_unicode(text: str) -> bool:
    """Return whether a text can be sent and printed. Bytes that are not UTF-8 arrive as lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _open_closed_streams() -> None:
    """Connect standard streams that were closed (`<&-`) to the null device.

    Otherwise Python sets `sys.stdin` and the others to None, and the next file or socket gets their descriptor.
    """
    for descriptor, (name, mode) in enumerate((("stdin", "r"), ("stdout", "w"), ("stderr", "w"))):
        if getattr(sys, name) is None:
            nowhere = os.open(os.devnull, os.O_RDWR)
            if nowhere != descriptor:
                os.dup2(nowhere, descriptor)
                os.close(nowhere)
            setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8"))


def _discard_output_to_closed_pipes() -> None:
    """Discard output to closed pipes, so that the command's exit code is kept."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser for all commands. It accepts `--config` before and after the command."""
    shared = _Parser(add_help=False)
    shared.add_argument(
        "--config",
        metavar="FILE",
        default=argparse.SUPPRESS,
        help="configuration file (default: $PARLEY_CONFIG, ./config.yaml, ../config.yaml)",
    )
    top = _Parser(
        prog="parley",
        description="An LLM super-agent for Slack, Telegram, Feishu and your terminal.",
        parents=[shared],
    )
    top.add_argument("--version", action="version", version=f"parley {get_version()}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def command(name: str, text: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=text, description=text, parents=[shared])

    _add_serve(command("serve", "Run the service until it is stopped."))
    _add_init(
        command("init", "Set up platforms and a model interactively and write the configuration.")
    )
    _add_checks(command)
    _add_conversations(command)
    _add_prompt(command("prompt", "Print the prompt that the next message in a chat would get."))
    config = command("config", "Maintain the configuration file.")
    actions = config.add_subparsers(dest="action", metavar="ACTION", required=True)
    text = "Add keys of newer versions; existing keys and comments are kept."
    actions.add_parser("upgrade", help=text, description=text, parents=[shared])
    _add_backups(command)
    _add_migrate(command)
    _add_pairing(command("pairing", "Approve people and groups, and revoke access."), shared)
    _add_token(command("token", "Create, list, replace and revoke API tokens."), shared)
    _add_send(command("send", "Send a message to one chat, topic or person."))
    _add_broadcast(
        command("broadcast", "Send a message to the chats in which people have written to the bot.")
    )
    _add_service(command("service", "Let systemd or launchd run Parley."), shared)
    _add_slack(command("slack", "Set up the Slack app."), shared)
    _add_playground(command)
    text = "Run the service under faults and account for every message (needs a checkout)."
    _add_prove(command("prove", text))
    return top


def _add_conversations(command: Callable[[str, str], argparse.ArgumentParser]) -> None:
    chat = command("chat", "Chat with the agent of the running service, or in this process.")
    chat.add_argument(
        "--session", default="main", metavar="NAME", help="name of the conversation (default: main)"
    )
    threads = command("threads", "List conversations and their threads.")
    threads.add_argument(
        "--limit",
        type=_row_count,
        default=50,
        metavar="N",
        help="maximum number of rows, 1 to 1000 (default: 50)",
    )


def _add_prompt(prompt: argparse.ArgumentParser) -> None:
    prompt.add_argument("--channel", required=True, metavar="NAME", help="slack, telegram, ...")
    ids = {
        "--chat": "the chat's ID on the platform (default: a new private chat)",
        "--topic": "a topic or thread of the chat (default: that of the newest message)",
        "--user": "the sender's ID on the platform (default: that of the newest message)",
    }
    for option, text in ids.items():
        prompt.add_argument(option, default="", metavar="ID", help=text)
    prompt.add_argument("--json", action="store_true", help="print the result as JSON")


def _add_serve(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--no-chat", action="store_true", help="do not open a chat in this terminal"
    )
    parser.add_argument(
        "--host", metavar="HOST", help="address to listen on, overrides gateway.host"
    )
    parser.add_argument("--port", metavar="PORT", help="port to listen on, overrides gateway.port")


def _row_count(text: str) -> int:
    """Return a number of rows. Raises ArgumentTypeError."""
    if not text.isdigit() or not 1 <= int(text) <= MAX_ROWS:
        raise argparse.ArgumentTypeError(f"must be a number from 1 to {MAX_ROWS}")
    return int(text)


def _add_pairing(pairing: argparse.ArgumentParser, shared: argparse.ArgumentParser) -> None:
    actions = pairing.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(name: str, text: str) -> argparse.ArgumentParser:
        return actions.add_parser(name, help=text, description=text, parents=[shared])

    action("list", "List open requests and approved people.")
    approve = action("approve", "Approve the person or group with this code.")
    approve.add_argument("code", metavar="CODE", help="the code in the bot's message")
    revoke = action("revoke", "Revoke access.")
    revoke.add_argument("channel", metavar="CHANNEL", help="slack, telegram, feishu")
    revoke.add_argument("user_id", metavar="USER_ID", help="the person's ID on the platform")


def _add_init(init: argparse.ArgumentParser) -> None:
    init.add_argument(
        "--non-interactive", action="store_true", help="read all answers from environment variables"
    )
    init.add_argument(
        "--platform",
        action="append",
        choices=["slack", "telegram", "feishu"],
        help="with --non-interactive: platform to set up (default: each whose variables are set)",
    )
    init.add_argument(
        "--model",
        choices=["openai", "anthropic", "server", "none"],
        help="with --non-interactive: model provider (default: the one whose variables are set)",
    )
    init.add_argument("--force", action="store_true", help="replace existing values without asking")


def _add_checks(command: Callable[[str, str], argparse.ArgumentParser]) -> None:
    check = command("check", "Show what is configured and what is missing.")
    check.add_argument("--json", action="store_true", help="print the results as JSON")
    doctor = command("doctor", "Test the configuration, platforms and models, and suggest fixes.")
    doctor.add_argument("--no-model", action="store_true", help="do not call the models")
    doctor.add_argument("--json", action="store_true", help="print the results as JSON")
    health = command("health", "Ask the running service whether it is healthy.")
    health.add_argument(
        "--ready", action="store_true", help="ask whether messages can be answered now"
    )


def _add_backups(command: Callable[[str, str], argparse.ArgumentParser]) -> None:
    backup = command("backup", "Save the data folder in one archive; the service may be running.")
    backup.add_argument("file", metavar="FILE", help="archive to write (.tar.gz)")
    restore = command("restore", "Replace the data folder with a backup.")
    restore.add_argument("file", metavar="FILE", help="archive that `parley backup` wrote")
    restore.add_argument(
        "--force", action="store_true", help="move existing data aside instead of refusing"
    )
    check = command("upgrade-check", "Try this version's migrations on a copy of the data.")
    check.add_argument(
        "source",
        nargs="?",
        metavar="SOURCE",
        help="archive or data folder (default: the configured data folder)",
    )


def _add_migrate(command: Callable[[str, str], argparse.ArgumentParser]) -> None:
    migrate = command("migrate", "Move a stopped installation from SQLite to PostgreSQL.")
    migrate.add_argument(
        "databases",
        nargs="*",
        metavar="DATABASE",
        help="source and target: sqlite, sqlite:///FILE, postgresql://..., or '$NAME' of a variable with a URL",
    )
    migrate.add_argument(
        "--force", action="store_true", help="discard what an interrupted attempt has copied"
    )
    migrate.add_argument("--json", action="store_true", help="print the result as JSON")
    migrate.add_argument(
        "--schema", action="store_true", help="only create or update the tables of one database"
    )
    migrate.add_argument(
        "--files",
        metavar="FOLDER",
        help="only store the files of a data folder or shared folder in the bucket of storage.url",
    )


def _add_prove(prove: argparse.ArgumentParser) -> None:
    prove.add_argument("--seed", type=int, metavar="N", help="seed of the plan (default: random)")
    length = prove.add_mutually_exclusive_group()
    length.add_argument("--minutes", type=float, metavar="M", help="length (default: 3)")
    length.add_argument("--hours", type=float, metavar="H", help="length in hours")
    number = prove.add_mutually_exclusive_group()
    number.add_argument(
        "--messages", type=int, metavar="N", help="number of messages (default: 63 a minute)"
    )
    number.add_argument(
        "--rate",
        type=float,
        metavar="R",
        help="messages a second, from correspondingly more people",
    )
    prove.add_argument(
        "--people",
        type=int,
        metavar="N",
        help="people who chat privately with each bot (default: 2)",
    )
    prove.add_argument(
        "--bursts",
        type=float,
        metavar="SHARE",
        help="share of messages that follow the previous one within a second (default: 0.25)",
    )
    prove.add_argument(
        "--fault-every",
        type=float,
        metavar="SECONDS",
        help="average time between faults (default: 4)",
    )
    prove.add_argument(
        "--nodes",
        type=int,
        metavar="N",
        help="processes of the service; several share a PostgreSQL database (default: 1)",
    )
    prove.add_argument(
        "--fork",
        action="store_true",
        help="start the service with everything imported: more messages for the same CPU time",
    )
    prove.add_argument(
        "--report",
        default="prove-report.html",
        metavar="FILE",
        help="HTML page to write (default: prove-report.html)",
    )


def _add_playground(command: Callable[[str, str], argparse.ArgumentParser]) -> None:
    playground = command(
        "playground", "Try the bot in a page with simulated Slack, Telegram and Feishu."
    )
    playground.add_argument(
        "--port", type=_port, metavar="N", help="port of the page (default: a free one)"
    )
    playground.add_argument(
        "--with-parent", action="store_true", help="end when standard input ends"
    )
    replay = command("replay", "Repeat a recording of the playground, and compare what people see.")
    replay.add_argument("file", metavar="FILE", help="recording that the page downloaded")


def _port(text: str) -> int:
    """Return a port. Raises ArgumentTypeError."""
    if not text.isdigit() or not 1 <= int(text) <= MAX_PORT:
        raise argparse.ArgumentTypeError(f"must be a number from 1 to {MAX_PORT}")
    return int(text)


def _days(text: str) -> float:
    """Return a number of days. Raises ArgumentTypeError."""
    try:
        days = float(text)
    except ValueError:
        days = math.nan
    if not math.isfinite(days):
        raise argparse.ArgumentTypeError("must be a number")
    return days


def _add_token(token: argparse.ArgumentParser, shared: argparse.ArgumentParser) -> None:
    actions = token.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(name: str, text: str) -> argparse.ArgumentParser:
        return actions.add_parser(name, help=text, description=text, parents=[shared])

    create = action("create", "Create a token and print it; it is not shown again.")
    create.add_argument("name", metavar="NAME", help="what the token is for")
    create.add_argument(
        "--scope",
        required=True,
        choices=["read", "operator", "admin"],
        help="what the token may do",
    )
    create.add_argument("--days", type=_days, metavar="N", help="lifetime (default: unlimited)")
    action("list", "List the tokens, without their values.")
    for name, text in (
        ("rotate", "Replace a token with a new one and print it; the old one stops working."),
        ("revoke", "Revoke a token."),
    ):
        action(name, text).add_argument("name", metavar="NAME", help="name of the token")


def _add_send(send: argparse.ArgumentParser) -> None:
    send.add_argument("channel", metavar="CHANNEL", help="slack, telegram, ...")
    send.add_argument("chat", metavar="CHAT", help="the chat's ID on the platform")
    send.add_argument(
        "--topic", default="", metavar="ID", help="a thread or topic of the chat (default: none)"
    )
    send.add_argument(
        "--person", action="store_true", help="CHAT is a person's ID: write to them in private"
    )
    send.add_argument(
        "--wait", action="store_true", help="wait until the platform accepts or refuses it"
    )
    _add_notification(send)


def _add_notification(command: argparse.ArgumentParser) -> None:
    """Add the arguments that messages to one chat and broadcasts have in common."""
    command.add_argument(
        "text",
        metavar="TEXT",
        nargs="?",
        help="the message, as Markdown; read from stdin if it is -, or if there is no text and no file",
    )
    command.add_argument(
        "--file",
        action="append",
        default=[],
        metavar="FILE",
        help="send a file, too; may be repeated",
    )
    command.add_argument(
        "--key",
        metavar="KEY",
        help="key of the message; a message with the same key is not sent again",
    )
    command.add_argument("--json", action="store_true", help="print the result as JSON")


def _add_broadcast(broadcast: argparse.ArgumentParser) -> None:
    broadcast.add_argument(
        "--channel",
        action="append",
        metavar="NAME",
        help="only this channel; may be repeated (default: all connected channels)",
    )
    broadcast.add_argument(
        "--audience",
        choices=["private", "groups", "all"],
        default="private",
        help="private chats, groups, or both (default: private)",
    )
    broadcast.add_argument(
        "--days", type=_days, metavar="N", help="only chats with a message in the last N days"
    )
    broadcast.add_argument(
        "--dry-run", action="store_true", help="only show how many chats would get it"
    )
    broadcast.add_argument("--yes", action="store_true", help="send without asking")
    _add_notification(broadcast)


def _add_service(service: argparse.ArgumentParser, shared: argparse.ArgumentParser) -> None:
    actions = service.add_subparsers(dest="action", metavar="ACTION", required=True)
    for name, text in (
        ("install", "Write the service's file, start the service, and start it after each boot."),
        ("uninstall", "Stop the service and remove its file."),
    ):
        action = actions.add_parser(name, help=text, description=text, parents=[shared])
        action.add_argument(
            "--system", action="store_true", help="for the whole machine (systemd, as root)"
        )
        if name == "install":
            action.add_argument("--print", action="store_true", help="only print the file")


def _add_slack(slack: argparse.ArgumentParser, shared: argparse.ArgumentParser) -> None:
    actions = slack.add_subparsers(dest="action", metavar="ACTION", required=True)
    text = "Print the app manifest: permissions, events and commands."
    manifest = actions.add_parser("manifest", help=text, description=text, parents=[shared])
    manifest.add_argument(
        "--name", default="Parley", metavar="NAME", help="name of the app (default: Parley)"
    )
    manifest.add_argument(
        "--http", metavar="URL", help="for mode http: public URL of the gateway (https://...)"
    )
    manifest.add_argument(
        "--agent",
        action="store_true",
        help="declare the app a Slack agent (cannot be undone; see docs/howto/connect-slack.md)",
    )
    form = manifest.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON instead of YAML")
    form.add_argument("--link", action="store_true", help="print the URL that creates the app")
