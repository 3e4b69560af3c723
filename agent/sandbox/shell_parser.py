"""Splits shell text into simple commands, for log lines and guard messages. Not a security boundary. Pure.

Expansion, functions and control flow are not interpreted. Confinement is the sandbox's job and never depends on
what this parser finds.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

_KEYWORDS = frozenset(("then", "else", "elif", "do", "if", "while", "until", "!", "{", "}"))
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_NESTING = 4  # levels of parentheses inside a substitution


def _parentheses(depth: int) -> str:
    nested = rf"|{_parentheses(depth - 1)}" if depth else ""
    return rf"\((?>[^()'\"\\]|\\.|'[^']*'|\"(?>[^\"\\]|\\.)*\"{nested})*+\)"


# Atomic groups and possessive quantifiers: without backtracking, hostile text cannot make this slow.
_SUBSTITUTION = rf"\${_parentheses(_NESTING)}|`[^`]*`"
_PIECE = rf"""(?xs:
    '(?P<single>[^']*)'
  | "(?P<double>(?>[^"\\$`]|\\.|{_SUBSTITUTION}|\$(?!\())*+)"
  | (?P<substitution>{_SUBSTITUTION}|[<>]{_parentheses(_NESTING)})
  | \\(?P<escaped>.)
  | (?P<plain>[^\s;|&()<>'"`\\$]+|\$(?!\())
)"""
_PIECES = re.compile(_PIECE)
_SUBSTITUTIONS = re.compile(_SUBSTITUTION, re.DOTALL)
_WORD = re.compile(rf"(?>{re.sub(r'[?]P<[a-z]+>', '?:', _PIECE)})++")
_BLANK = re.compile(r"[ \t\r]+|\#[^\n]*")
_REDIRECT = re.compile(r"\d*(?:&>>|&>|<<<|<<-|<<|<>|<&|>&|>>|>\||>(?!\()|<(?!\())[ \t]*")
_SEPARATOR = re.compile(r"&&|\|\||;;|\|&|[;|&\n()]")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellWord:
    """One word of a command.

    Attributes:
        text: Without quotes; variables and substitutions as written.
        is_quoted: Whether any part is quoted.
        substitutions: The commands inside its `$(...)`, backticks, `<(...)` and `>(...)`.
    """

    text: str
    is_quoted: bool = False
    substitutions: tuple[str, ...] = ()


@dataclass(slots=True, kw_only=True)
class ShellCommand:
    """One simple command.

    Attributes:
        assignments: The `NAME=value` in front of the program.
        words: The program and its arguments; leading keywords such as `do` are dropped.
        targets: Files it redirects to or from.
        heredocs: Its inline input.
        separator: What follows it: `|`, `;`, `&` ..., or "".
    """

    assignments: list[str] = field(default_factory=list)
    words: list[ShellWord] = field(default_factory=list)
    targets: list[ShellWord] = field(default_factory=list)
    heredocs: list[str] = field(default_factory=list)
    separator: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShellScript:
    """Parsed shell text; `is_complete` is false if a quote or substitution is never closed."""

    commands: tuple[ShellCommand, ...]
    is_complete: bool


def parse_shell(text: str) -> ShellScript:
    """Split shell text.

    >>> [[word.text for word in one.words] for one in parse_shell("echo 'a;b' && ls").commands]
    [['echo', 'a;b'], ['ls']]
    >>> parse_shell("echo 'open").is_complete
    False
    """
    text = text.replace("\\\n", "")
    commands = [ShellCommand()]
    pending: list[tuple[ShellCommand, str]] = []  # heredocs whose text starts on the next line
    at, redirect, is_complete = 0, "", True
    while at < len(text):
        command = commands[-1]
        if found := _BLANK.match(text, at):
            at = found.end()
        elif found := _REDIRECT.match(text, at):
            redirect, at = found[0].strip(), found.end()
        elif found := _SEPARATOR.match(text, at):
            command.separator, redirect, at = found[0], "", found.end()
            while pending and found[0] == "\n":
                at = _read_heredoc(text, at, *pending.pop(0))
            commands.append(ShellCommand())
        elif found := _WORD.match(text, at):
            _add_word(command, _word(found[0]), redirect, pending)
            redirect, at = "", found.end()
        else:
            is_complete, at = False, at + 1
    kept = tuple(one for one in commands if one.words or one.targets or one.assignments)
    return ShellScript(commands=kept, is_complete=is_complete)


def shell_arguments(words: Sequence[ShellWord]) -> list[str]:
    """Return the scripts among a shell's arguments: those after `-c`."""
    return [text.text for flag, text in pairwise(words) if re.fullmatch(r"-\w*c", flag.text)]


def _add_word(
    command: ShellCommand, word: ShellWord, redirect: str, pending: list[tuple[ShellCommand, str]]
) -> None:
    if redirect.lstrip("0123456789") in ("<<", "<<-"):
        pending.append((command, word.text))
    elif redirect:
        command.targets.append(word)
    elif not command.words and _ASSIGNMENT.match(word.text):
        command.assignments.append(word.text)
    elif command.words or word.is_quoted or word.text not in _KEYWORDS:
        command.words.append(word)


def _read_heredoc(text: str, at: int, command: ShellCommand, label: str) -> int:
    end = re.compile(rf"^\t*{re.escape(label)}[ \t]*$", re.MULTILINE).search(text, at)
    stop = end.start() if end else len(text)
    command.heredocs.append(text[at:stop])
    return min(end.end() + 1, len(text)) if end else stop


def _word(raw: str) -> ShellWord:
    parts: list[str] = []
    substitutions: list[str] = []
    is_quoted = False
    for piece in _PIECES.finditer(raw):
        kind = str(piece.lastgroup)
        parts.append(piece[kind])
        is_quoted = is_quoted or kind in ("single", "double")
        if kind in ("double", "substitution"):
            substitutions += _commands_in(piece[kind], kind)
    return ShellWord(text="".join(parts), is_quoted=is_quoted, substitutions=tuple(substitutions))


def _commands_in(text: str, kind: str) -> Iterator[str]:
    found = [text] if kind == "substitution" else [one[0] for one in _SUBSTITUTIONS.finditer(text)]
    for one in found:
        if not one.startswith("$(("):  # arithmetic
            yield one[1:-1] if one.startswith("`") else one[2:-1]
