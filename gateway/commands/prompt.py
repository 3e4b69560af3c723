"""`parley prompt`: prints the prompt that the next message in a chat would get."""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import Any
from urllib.parse import quote

import anyio

from agent.factory import open_agent_factory
from gateway.agent_setup import agent_setup_from_config
from gateway.chat_schedules import ChatSchedules
from gateway.command_errors import CommandFailed
from gateway.config import Config, load_config, prepare_process_for_agent
from gateway.config_file import ConfigError
from gateway.prompt_report import PromptPlace, report_prompt
from gateway.service_client import open_service_client, request_json
from gateway.text_table import format_table
from store.checkpoints import open_checkpointer
from store.database import Database
from store.errors import RowNotFound
from store.past_messages import PastMessages

COLUMNS = ("part", "name", "tokens")


def run(arguments: argparse.Namespace) -> int:
    """Print the size of each part of the prompt, and the prompt below it."""
    config = _load_config(arguments.config)
    place = PromptPlace(
        channel=arguments.channel,
        chat=arguments.chat,
        topic=arguments.topic,
        user=arguments.user,
    )
    try:
        report = anyio.run(partial(_report, config, place))
    except RowNotFound as error:
        raise CommandFailed(str(error)) from None
    text = json.dumps(report, ensure_ascii=False, indent=2) if arguments.json else _text(report)
    sys.stdout.write(text + "\n")
    return 0


def _load_config(path: str | None) -> Config:
    """Load the configuration. Variables that are not set, such as keys of models, do not matter here."""
    try:
        return load_config(path)
    except ConfigError as error:
        if not isinstance(error.partial, Config):
            raise
        for problem in error.problems:
            sys.stderr.write(f"parley: {problem}\n")
        return error.partial


async def _report(config: Config, place: PromptPlace) -> Mapping[str, Any]:
    async with open_service_client(config) as client:
        if client is not None:
            ids = {"chat": place.chat, "topic": place.topic, "user": place.user}
            path = f"channels/{quote(place.channel, safe='')}/prompt"
            return await request_json(client, "GET", path, None, **ids)
    prepare_process_for_agent(config)
    setup = replace(agent_setup_from_config(config), learns=False)
    async with (
        Database.open(config.database, config.home) as database,
        open_checkpointer(config.home, database) as checkpointer,
        open_agent_factory(
            replace(setup, past_messages=PastMessages(database), schedules=ChatSchedules()),
            checkpointer,
        ) as agents,
    ):
        return asdict(await report_prompt(config, database, agents, place))


def _text(report: Mapping[str, Any]) -> str:
    """Return the sizes of the parts, then the system prompt, the messages and the tools."""
    sizes: dict[str, int] = {}
    for part in report["parts"]:
        sizes[part["part"]] = sizes.get(part["part"], 0) + part["tokens"]
    rows = [
        *([part["part"], part["name"], part["tokens"]] for part in report["parts"]),
        *(["sum", part, tokens] for part, tokens in sizes.items()),
        ["sum", "all", report["tokens"]],
    ]
    thread = report["thread_id"] or "new"
    lines = [
        f"==== sizes (estimated tokens), model {report['model']}, thread {thread}",
        format_table(COLUMNS, rows),
        "==== system",
        report["system"],
    ]
    for message in report["messages"]:
        content = message.get("content")
        text = content if isinstance(content, str) else _json(content)
        calls = map(_json, message.get("tool_calls") or ())
        lines += [f"==== {message['role']}", *([text] if text else []), *calls]
    lines.append(f"==== tools ({len(report['tools'])})")
    for tool in report["tools"]:
        lines += _tool_lines(tool.get("function", tool))
    return "\n".join(lines)


def _tool_lines(tool: Mapping[str, Any]) -> Iterator[str]:
    """Yield a tool's name, description and arguments. An argument with * is required."""
    yield f"---- {tool.get('name')}"
    yield str(tool.get("description") or "").strip()
    schema = tool.get("parameters") or tool.get("input_schema") or {}
    for name, argument in (schema.get("properties") or {}).items():
        mark = "*" if name in (schema.get("required") or ()) else ""
        yield f"  {name}{mark}: {_json(argument)}"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
