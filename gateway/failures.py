"""What went wrong, as lines for the person at the command line."""

import argparse
import sys
from collections.abc import Callable

from agent.errors import AgentError
from gateway.config import ConfigError
from store.errors import StoreError

FAILED = 1
BAD_CONFIG = 2

Command = Callable[[argparse.Namespace], int]


class CommandFailed(Exception):
    """A command cannot do what it was asked; the text says what, where, and what to do."""


KNOWN = (ConfigError, CommandFailed, StoreError, AgentError)


def told(command: Command, arguments: argparse.Namespace) -> int:
    """Run a command and return its exit code; an error that a person can act on is told in one line each."""
    try:
        return command(arguments)
    except KNOWN as error:
        code, lines = explain([error])
    except BaseExceptionGroup as group:
        known = leaves(group)
        if not all(isinstance(leaf, KNOWN) for leaf in known):
            raise
        code, lines = explain(known)
    for line in lines:
        sys.stderr.write(f"parley: {line}\n")
    return code


def leaves(error: BaseException) -> list[BaseException]:
    """Return the errors inside nested groups, or the error itself."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in leaves(inner)]
    return [error]


def explain(errors: list[BaseException]) -> tuple[int, list[str]]:
    """Return the exit code and one line for each problem."""
    code = FAILED
    lines: list[str] = []
    for error in errors:
        if isinstance(error, ConfigError):
            code = BAD_CONFIG
            lines += error.problems
        else:
            lines.append(" ".join(str(error).split()))
    return code, lines
