"""Finds the skills in use, the calls that they approve, and the tools to which they restrict a run. Pure."""

import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage

from agent.errors import PathNotAllowed
from agent.paths import normalize_path
from agent.sandbox.shell_parser import parse_shell
from agent.skills.loader import Skill
from agent.skills.manifest import ToolGrant
from agent.tool_names import BASH_PROCESS_TOOLS
from agent.tools.bash import BASH
from agent.tools.files import READ_FILE
from agent.user_messages import is_user_message

ALWAYS_ALLOWED = frozenset(
    {
        *("ls", READ_FILE, "glob", "grep", "view_image"),
        *("present_files", "ask_clarification", "task", "setup_agent", "tool_search"),
    }
)
"""Tools that no skill removes: tools that read files such as skills, talk to the user, or load other tools."""

_HIDES = re.compile(r"[`$<>\\\0]|(?:^|[\s;&|(])[A-Za-z_]\w*\+?=")
"""Shell syntax that could make a command do more than its words show."""


class SkillsInUse:
    """Finds the skills in use. A skill is in use from the call that read its SKILL.md until a person's next message.

    Args:
        skills: The skills listed in the agent's prompt.
    """

    def __init__(self, skills: Sequence[Skill]) -> None:
        self._skills = {skill.location: skill for skill in skills}

    def find(self, messages: Sequence[AnyMessage]) -> list[Skill]:
        """Return the skills in use, each once. Ignores calls that failed to read a SKILL.md."""
        found: dict[str, Skill] = {}
        results: set[str] = set()
        for message in reversed(messages):
            if is_user_message(message):
                break
            if isinstance(message, ToolMessage) and _is_success(message):
                results.add(message.tool_call_id)
            # Calls of the last message run in parallel: they have no results yet, so they read nothing.
            for call in message.tool_calls if isinstance(message, AIMessage) else ():
                if call["name"] == READ_FILE and call["id"] in results:
                    skill = self._skills.get(_location(call["args"].get("path")))
                    if skill is not None:
                        found[skill.name] = skill
        return list(found.values())


def tools_left_by(skills: Iterable[Skill]) -> frozenset[str] | None:
    """Return the tools that skills allow a run, plus those that are always allowed; None = all tools.

    If several skills restrict the run, the tools of all of them are allowed.
    """
    declared = [skill.only_tools for skill in skills if skill.only_tools is not None]
    if not declared:
        return None
    allowed = ALWAYS_ALLOWED.union(*declared)
    return allowed | BASH_PROCESS_TOOLS if "bash" in allowed else allowed


def approves(grants: Collection[ToolGrant], tool: str, arguments: Mapping[str, Any]) -> bool:
    """Return whether grants approve a call. Patterns work only for bash; for other tools they approve nothing.

    >>> grants = [ToolGrant("bash", "git:*"), ToolGrant("bash", "npm test"), ToolGrant("ls")]
    >>> [approves(grants, "bash", {"command": text}) for text in ("git log | git shortlog", "npm test", "git x; rm y")]
    [True, True, False]
    >>> approves(grants, "ls", {}), approves(grants, "write_file", {})
    (True, False)
    """
    patterns = [grant.pattern for grant in grants if grant.name == tool]
    if None in patterns:
        return True
    command = arguments.get("command")
    return (
        bool(patterns)
        and tool == BASH
        and isinstance(command, str)
        and _is_command_approved(command, [pattern for pattern in patterns if pattern is not None])
    )


def _is_command_approved(text: str, patterns: Sequence[str]) -> bool:
    """Return whether every simple command matches a pattern. Anything unclear is not approved."""
    if _HIDES.search(text):
        return False
    try:
        shlex.split(text)
    except ValueError:  # a quote is not closed
        return False
    commands = [" ".join(word.text for word in one.words) for one in parse_shell(text)]
    return bool(commands) and all(
        any(_matches(command, pattern) for pattern in patterns) for command in commands
    )


def _matches(command: str, pattern: str) -> bool:
    """Match one command. `git:*` and `git *` match commands that start with `git`; other stars match any text."""
    prefix = re.fullmatch(r"(.+?)(?::\*| \*)", pattern.strip())
    if prefix is not None and "*" not in prefix[1]:
        return command == prefix[1] or command.startswith(f"{prefix[1]} ")
    parts = map(re.escape, pattern.strip().split("*"))
    return re.fullmatch(".*".join(parts), command, re.DOTALL) is not None


def _is_success(message: ToolMessage) -> bool:
    return message.status != "error" and not message.text.startswith("Error: ")


def _location(path: object) -> str:
    try:
        return normalize_path(path) if isinstance(path, str) else ""
    except PathNotAllowed:
        return ""
