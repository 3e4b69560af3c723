"""The shell parser splits text into commands, and hostile text does not make it slow."""

import signal
import sys
from contextlib import suppress
from types import FrameType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.errors import PathNotAllowed
from agent.paths import MountTable
from agent.sandbox.host_paths import check_host_paths
from agent.sandbox.shell_parser import parse_shell
from agent.tools.bash import MAX_COMMAND_BYTES


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a b  c", [["a", "b", "c"]]),
        ("a;b&&c||d|e&f\ng", [["a"], ["b"], ["c"], ["d"], ["e"], ["f"], ["g"]]),
        ("a 'x;y' \"z && w\"", [["a", "x;y", "z && w"]]),
        ("a x'y'\"z\"", [["a", "xyz"]]),
        ("a \\; b", [["a", ";", "b"]]),
        ("a \\\n b", [["a", "b"]]),
        ("a # b; c\nd", [["a"], ["d"]]),
        ("a#b", [["a#b"]]),
        ("a > b 2>&1 < c", [["a"]]),
        ("a &> b", [["a"]]),
        ("if a; then b; else c; fi", [["a"], ["b"], ["c"], ["fi"]]),
        ("a <<X\nb; c\nX\nd", [["a"], ["d"]]),
        ("a <<-'X' | e\nb\n\tX\nd", [["a"], ["e"], ["d"]]),
        ("", []),
        ("if 'then'; then a; fi", [["then"], ["a"], ["fi"]]),
        ("cat <<A <<B\n1\nA\n2\nB\nd", [["cat"], ["d"]]),
        ("a 'open", [["a", "open"]]),
    ],
)
def test_splitting_shell_text(text: str, words: list[list[str]]) -> None:
    assert [[word.text for word in command.words] for command in parse_shell(text)] == words


def test_assignments_redirections_and_heredocs() -> None:
    (command,) = parse_shell("A=1 B=2 run x > out <<X <(inner one) | C=3\nheld\nX\n")
    assert [word.text for word in command.words[:2]] == ["run", "x"]
    assert [word.text for word in command.targets] == ["out"]
    assert command.words[2].substitutions == ("inner one",)


PIECES = [
    "'",
    '"',
    "$(",
    ")",
    "`",
    "<<",
    "X",
    "\n",
    " ",
    ";",
    "|",
    "&",
    "\\",
    "#",
    "<(",
    ">",
    "rm",
    "bash",
    "-c",
    "{",
    "}",
    "=",
    "é",
    "\0",
]


@given(st.lists(st.sampled_from(PIECES), max_size=40).map("".join))
def test_any_text_can_be_checked(text: str) -> None:
    _check(text)


HOSTILE = ["(", "$(", "'", "<<", "`", "a<<x\n", '"$(', '$("a', "a=$(b ", "$(a'", "\\", '"a`']


MAX_CALLS_PER_CHAR = 30
"""Maximum function calls per character, Python's and built-in ones."""

MAX_CPU_S = 5.0
"""Stops a regular expression that backtracks forever, because its steps are not function calls."""


@pytest.mark.parametrize("piece", HOSTILE)
def test_parsing_steps_grow_with_the_length_only(piece: str) -> None:
    size = MAX_COMMAND_BYTES
    half, whole = (_calls((piece * size)[:length]) for length in (size // 2, size))
    assert whole <= MAX_CALLS_PER_CHAR * size
    assert whole <= 3 * half


def _check(command: str) -> None:
    with suppress(PathNotAllowed):
        check_host_paths(command, MountTable([]))


def _calls(command: str) -> int:
    """Return how many functions the check of a command calls. Raises TimeoutError after `MAX_CPU_S` of CPU."""
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    def end(_signal: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"more than {MAX_CPU_S} s of CPU")

    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, MAX_CPU_S)
    sys.setprofile(count)
    try:
        _check(command)
    finally:
        sys.setprofile(None)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    return calls
