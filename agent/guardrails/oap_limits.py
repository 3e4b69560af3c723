"""Limits of one capability in a passport: commands, text patterns, sizes. Pure."""

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from agent.guardrails.protocol import BLOCKED_PATTERN, COMMAND_NOT_ALLOWED, LIMIT_EXCEEDED

ANY = "*"
MAX_PREFIX = "max_"

_SEPARATORS = frozenset({";", "&", "&&", "|", "||", "|&", "(", ")", "\n"})
_HIDES = re.compile(r"[`\0]|\$[({'\"]|[<>]\(")
"""Shell syntax that can hide commands from a word splitter."""
_JOINED = re.compile(r"(?<!\d)\d*[<>]&(?:\d+|-)|&>>?")
"""Redirections with an `&` that does not separate commands."""
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_RUNNERS = frozenset(
    {"!", "{", "case", "command", "do", "elif", "else", "env", "eval", "exec", "for", "function", "if",
     "nohup", "sudo", "then", "time", "timeout", "until", "while", "xargs"}
)  # fmt: skip
"""Words that precede another command. These words must be allowed too."""

Violation = tuple[str, str]
"""Code and message of a violated limit."""


class CapabilityLimits(BaseModel):
    """Limits of a capability.

    The list of commands guides a well-meaning agent. It is not a security boundary, because an allowed command may
    start others. The sandbox is the boundary.

    Attributes:
        allowed_commands: First words of shell commands; an empty list allows none, `*` all. None = all.
        blocked_patterns: Texts that no argument may contain, ignoring case and whitespace width.
        max_calls_per_run: Maximum number of calls per run.

    Other keys must be `max_{argument}`: the maximum of a number, or the maximum length of a text or list.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    allowed_commands: tuple[str, ...] | None = None
    blocked_patterns: tuple[str, ...] = ()
    max_calls_per_run: int | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _reject_unknown_limits(self) -> "CapabilityLimits":
        for key, value in (self.model_extra or {}).items():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            # `value == value` rejects NaN, which would allow everything.
            if not key.startswith(MAX_PREFIX) or not is_number or value != value:  # noqa: PLR0124
                raise ValueError(f"unknown limit {key!r}: it could not be enforced")
        return self

    def violation(self, arguments: Mapping[str, Any]) -> Violation | None:
        """Return the first limit that a call with these arguments violates."""
        return self._pattern_in(arguments) or self._command_of(arguments) or self._excess(arguments)

    def _pattern_in(self, arguments: Mapping[str, Any]) -> Violation | None:
        if not self.blocked_patterns:
            return None
        texts = [_flat(text) for text in _texts(arguments)]
        for pattern in self.blocked_patterns:
            wanted = _flat(pattern)
            if wanted and any(wanted in text for text in texts):
                return BLOCKED_PATTERN, f"the pattern '{pattern}' is blocked"
        return None

    def _command_of(self, arguments: Mapping[str, Any]) -> Violation | None:
        allowed = self.allowed_commands
        if allowed is None or ANY in allowed:
            return None
        for word in first_words(str(arguments.get("command", ""))):
            if word not in allowed:
                shown = (
                    f"the command '{word[:60]}' is not allowed"
                    if word
                    else "the command cannot be parsed"
                )
                return COMMAND_NOT_ALLOWED, f"{shown}; allowed: {', '.join(allowed) or 'none'}"
        return None

    def _excess(self, arguments: Mapping[str, Any]) -> Violation | None:
        for key, most in (self.model_extra or {}).items():
            name = key.removeprefix(MAX_PREFIX)
            value = arguments.get(name)
            size = len(value) if isinstance(value, str | list | tuple | dict) else value
            if isinstance(size, int | float) and not size <= most:
                return LIMIT_EXCEEDED, f"'{name}' must be at most {most:g}"
        return None


def first_words(command: str) -> list[str]:
    """Return the first word of every simple command. An empty word means that the command cannot be parsed.

    >>> first_words("FOO=1 git log | head -3 && /bin/ls")
    ['git', 'head', '/bin/ls']
    >>> first_words("make 2>&1")
    ['make']
    >>> first_words("echo $(rm -rf x)")
    ['']
    >>> first_words("")
    ['']
    """
    if _HIDES.search(command):
        return [""]
    plain = _JOINED.sub(" > ", command).replace("\n", " ; ")
    lexer = shlex.shlex(plain, posix=True, punctuation_chars=";&|()")
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        words = list(lexer)
    except ValueError:
        return [""]
    return list(_leading(words)) or [""]


def _leading(words: list[str]) -> Iterator[str]:
    is_first = True
    for word in words:
        if word in _SEPARATORS or set(word) <= set(";&|()"):
            is_first = True
        elif is_first and not _ASSIGNMENT.match(word):
            yield word
            is_first = word in _RUNNERS


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, Mapping):
        for inner in value.values():
            yield from _texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner)
    else:
        yield str(value)


def _flat(text: str) -> str:
    return " ".join(text.split()).casefold()
