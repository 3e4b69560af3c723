"""Splits shell text into simple commands. Not a security boundary. Pure.

The parser ignores expansion, functions and control flow. The sandbox confines commands, and never depends on the
parser's result.
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


# Atomic groups and possessive quantifiers prevent backtracking, so hostile text cannot make this slow.
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
        words: The program and its arguments, without keywords such as `do` and `NAME=value` before the program.
        targets: Files it redirects to or from.
    """

    words: list[ShellWord] = field(default_factory=list)
    targets: list[ShellWord] = field(default_factory=list)


def parse_shell(text: str) -> list[ShellCommand]:
    """Split shell text into commands. Omits heredocs and quotes that are never closed.

    >>> [[word.text for word in one.words] for one in parse_shell("echo 'a;b' && ls")]
    [['echo', 'a;b'], ['ls']]
    """
    text = text.replace("\\\n", "")
    commands = [ShellCommand()]
    pending: list[str] = []  # labels of heredocs whose text starts on the next line
    at, redirect = 0, ""
    while at < len(text):
        command = commands[-1]
        if found := _BLANK.match(text, at):
            at = found.end()
        elif found := _REDIRECT.match(text, at):
            redirect, at = found[0].strip(), found.end()
        elif found := _SEPARATOR.match(text, at):
            redirect, at = "", found.end()
            while pending and found[0] == "\n":
                at = _skip_heredoc(text, at, pending.pop(0))
            commands.append(ShellCommand())
        elif found := _WORD.match(text, at):
            _add_word(command, _word(found[0]), redirect, pending)
            redirect, at = "", found.end()
        else:
            at += 1
    return [one for one in commands if one.words or one.targets]


def shell_arguments(words: Sequence[ShellWord]) -> list[str]:
    """Return the scripts among a shell's arguments: the ones after `-c`."""
    return [text.text for flag, text in pairwise(words) if re.fullmatch(r"-\w*c", flag.text)]


def _add_word(command: ShellCommand, word: ShellWord, redirect: str, pending: list[str]) -> None:
    if redirect.lstrip("0123456789") in ("<<", "<<-"):
        pending.append(word.text)
    elif redirect:
        command.targets.append(word)
    elif command.words or not (
        _ASSIGNMENT.match(word.text) or (word.text in _KEYWORDS and not word.is_quoted)
    ):
        command.words.append(word)


def _skip_heredoc(text: str, at: int, label: str) -> int:
    end = re.compile(rf"^\t*{re.escape(label)}[ \t]*$", re.MULTILINE).search(text, at)
    return min(end.end() + 1, len(text)) if end else len(text)


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
