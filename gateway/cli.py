"""The command line: `parley COMMAND`. Starts fast: what a command needs is imported when it is called."""

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from gateway.version import get_version

COMMANDS = {
    "serve": "gateway.commands.serve",
    "init": "gateway.commands.init",
    "check": "gateway.commands.check",
    "doctor": "gateway.commands.doctor",
    "chat": "gateway.commands.chat",
    "threads": "gateway.commands.threads",
    "pairing": "gateway.commands.pairing",
    "config": "gateway.commands.config",
    "slack": "gateway.commands.slack",
}
"""Command -> module with `run(arguments) -> exit code`."""

EXIT_INTERRUPTED = 130
"""Exit code after Ctrl-C, as shells count."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code."""
    arguments = build_parser().parse_args(argv)
    arguments.config = getattr(arguments, "config", None)
    try:
        command = importlib.import_module(COMMANDS[arguments.command])
        return int(
            importlib.import_module("gateway.command_errors").run_command(command.run, arguments)
        )
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        return 1
    finally:
        _discard_output_to_closed_pipes()


def _discard_output_to_closed_pipes() -> None:
    """Drop output that nobody reads any more, so that the exit code tells of the command and not of the pipe."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of all commands; `--config` may stand anywhere."""
    shared = argparse.ArgumentParser(add_help=False)
    shared.add_argument(
        "--config",
        metavar="FILE",
        default=argparse.SUPPRESS,
        help="the configuration (default: $PARLEY_CONFIG, ./config.yaml, ../config.yaml)",
    )
    top = argparse.ArgumentParser(
        prog="parley",
        description="An LLM super-agent for Slack, Telegram, Feishu and your terminal.",
        parents=[shared],
    )
    top.add_argument("--version", action="version", version=f"parley {get_version()}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def command(name: str, text: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=text, description=text, parents=[shared])

    serve = command("serve", "Run the service until it is told to stop.")
    serve.add_argument(
        "--no-chat", action="store_true", help="do not open the chat in this terminal"
    )
    serve.add_argument("--host", metavar="HOST", help="listen here instead of on gateway.host")
    serve.add_argument("--port", metavar="PORT", help="listen here instead of on gateway.port")
    _add_init(command("init", "Set up platforms and a model: ask, try, write the configuration."))
    command("check", "Say what is configured and what is missing.")
    doctor = command("doctor", "Try what is configured; say what to do about what does not work.")
    doctor.add_argument("--no-model", action="store_true", help="do not ask the models")
    doctor.add_argument("--json", action="store_true", help="print the findings as JSON")
    chat = command("chat", "Talk to the agent: of the running service, or here in this process.")
    chat.add_argument(
        "--session", default="main", metavar="NAME", help="the conversation (default: main)"
    )
    threads = command("threads", "List the conversations and their threads.")
    threads.add_argument(
        "--limit", type=int, default=50, metavar="N", help="at most so many (default: 50)"
    )
    config = command("config", "Take care of the configuration file.")
    actions = config.add_subparsers(dest="action", metavar="ACTION", required=True)
    text = "Add the keys that a newer version has; what the file says stays, with its comments."
    actions.add_parser("upgrade", help=text, description=text, parents=[shared])
    _add_pairing(command("pairing", "Let strangers in, and shut them out."), shared)
    _add_slack(command("slack", "Set up the Slack app."), shared)
    return top


def _add_pairing(pairing: argparse.ArgumentParser, shared: argparse.ArgumentParser) -> None:
    actions = pairing.add_subparsers(dest="action", metavar="ACTION", required=True)

    def action(name: str, text: str) -> argparse.ArgumentParser:
        return actions.add_parser(name, help=text, description=text, parents=[shared])

    action("list", "Show open requests and the people let in.")
    approve = action("approve", "Let the person with this code in.")
    approve.add_argument("code", metavar="CODE", help="stands in the bot's message to them")
    revoke = action("revoke", "Shut a person out again.")
    revoke.add_argument("channel", metavar="CHANNEL", help="slack, telegram, feishu")
    revoke.add_argument("user_id", metavar="USER_ID", help="the platform's id of the person")


def _add_init(init: argparse.ArgumentParser) -> None:
    init.add_argument(
        "--non-interactive", action="store_true", help="take everything from environment variables"
    )
    init.add_argument(
        "--platform",
        action="append",
        choices=["slack", "telegram", "feishu"],
        help="without questions: this platform (default: each whose variables are set)",
    )
    init.add_argument(
        "--model",
        choices=["openai", "anthropic", "server", "none"],
        help="without questions: who provides the model (default: whose variables are set)",
    )
    init.add_argument(
        "--force", action="store_true", help="replace what the files say without asking"
    )


def _add_slack(slack: argparse.ArgumentParser, shared: argparse.ArgumentParser) -> None:
    actions = slack.add_subparsers(dest="action", metavar="ACTION", required=True)
    text = "Print the app's manifest: its permissions, events and commands."
    manifest = actions.add_parser("manifest", help=text, description=text, parents=[shared])
    manifest.add_argument(
        "--name", default="Parley", metavar="NAME", help="what people mention (default: Parley)"
    )
    manifest.add_argument(
        "--http", metavar="URL", help="for mode http: the gateway's public address (https://...)"
    )
    manifest.add_argument(
        "--agent",
        action="store_true",
        help="declare it an agent of Slack (cannot be undone; see docs/howto/connect-slack.md)",
    )
    form = manifest.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="as JSON instead of YAML")
    form.add_argument("--link", action="store_true", help="as the address that creates the app")
