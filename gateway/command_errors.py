"""Errors of commands, as lines for the terminal."""

import argparse
import sys
from collections.abc import Callable

from agent.errors import AgentError
from gateway.config_file import ConfigError
from store.errors import StoreError

EXIT_FAILED = 1
EXIT_BAD_CONFIG = 2

Command = Callable[[argparse.Namespace], int]


class CommandFailed(Exception):
    """A command failed. The message says what failed, where, and what to do."""


EXPECTED_ERRORS = (ConfigError, CommandFailed, StoreError, AgentError)


def run_command(command: Command, arguments: argparse.Namespace) -> int:
    """Run a command and return its exit code. Prints one line for each expected error."""
    try:
        return command(arguments)
    except EXPECTED_ERRORS as error:
        code, lines = format_errors([error])
    except BaseExceptionGroup as group:
        known = flatten_errors(group)
        if not all(isinstance(leaf, EXPECTED_ERRORS) for leaf in known):
            raise
        code, lines = format_errors(known)
    for line in lines:
        sys.stderr.write(f"parley: {line}\n")
    return code


def flatten_errors(error: BaseException) -> list[BaseException]:
    """Return the errors inside nested groups, or the error itself."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in flatten_errors(inner)]
    return [error]


def format_errors(errors: list[BaseException]) -> tuple[int, list[str]]:
    """Return the exit code and one line for each problem."""
    code = EXIT_FAILED
    lines: list[str] = []
    for error in errors:
        if isinstance(error, ConfigError):
            code = EXIT_BAD_CONFIG
            lines += error.problems
        else:
            lines.append(" ".join(str(error).split()))
    return code, lines
