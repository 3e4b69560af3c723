"""The limits of one capability in a passport: which commands, which words, how much. Pure."""

import re
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pydantic import BaseModel, ConfigDict, Field, model_validator

from agent.guardrails.protocol import BLOCKED_PATTERN, COMMAND_NOT_ALLOWED, LIMIT_EXCEEDED

ANY: Final = "*"
MAX_PREFIX: Final = "max_"

_BREAKS = frozenset({";", "&", "&&", "|", "||", "|&", "(", ")", "\n"})
_HIDES = re.compile(r"[`\0]|\$[({'\"]|[<>]\(")
"""Forms whose inner commands a reader of words cannot see."""
_JOINED = re.compile(r"\d*[<>]&(?:\d+|-)|&>>?")
"""Redirections with an `&` that parts no commands."""
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_RUNNERS = frozenset(
    {"!", "{", "case", "command", "do", "elif", "else", "env", "eval", "exec", "for", "function", "if",
     "nohup", "sudo", "then", "time", "timeout", "until", "while", "xargs"}
)  # fmt: skip
"""Words after which another command stands: they are not read through, so they must be allowed themselves."""

Violation = tuple[str, str]
"""The code and the sentence of a limit that a call would break."""


class CapabilityLimits(BaseModel):
    """What a capability may be used for.

    The list of commands keeps an honest agent on its path. It is no boundary: an allowed command may start others.
    The boundary is the sandbox.

    Attributes:
        allowed_commands: First words of shell commands; an empty list allows none, `*` all. None = all.
        blocked_patterns: Texts that must not stand in any argument; case and the width of gaps do not count.
        max_calls_per_run: How often in one run.

    Any further key must be `max_{argument}`: the largest number, or the longest text or list, of that argument.
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    allowed_commands: tuple[str, ...] | None = None
    blocked_patterns: tuple[str, ...] = ()
    max_calls_per_run: int | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _are_all_understood(self) -> "CapabilityLimits":
        for key, value in (self.model_extra or {}).items():
            is_number = isinstance(value, int | float) and not isinstance(value, bool)
            # `value == value` is false for NaN, below which everything would be allowed.
            if not key.startswith(MAX_PREFIX) or not is_number or value != value:  # noqa: PLR0124
                raise ValueError(f"the limit {key!r} is not known, so it could not be held")
        return self

    def violation(self, arguments: Mapping[str, Any]) -> Violation | None:
        """Return the first limit that a call with these arguments would break."""
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
                shown = f"the command '{word[:60]}' is not allowed" if word else "it cannot be read"
                return COMMAND_NOT_ALLOWED, f"{shown}; allowed: {', '.join(allowed) or 'none'}"
        return None

    def _excess(self, arguments: Mapping[str, Any]) -> Violation | None:
        for key, most in (self.model_extra or {}).items():
            name = key.removeprefix(MAX_PREFIX)
            value = arguments.get(name)
            size = len(value) if isinstance(value, str | list | tuple | dict) else value
            if isinstance(size, int | float) and not size <= most:
                return LIMIT_EXCEEDED, f"'{name}' may be at most {most:g}"
        return None


def first_words(command: str) -> list[str]:
    """Return the first word of every simple command; an empty word stands for what cannot be read.

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
        if word in _BREAKS or set(word) <= set(";&|()"):
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
