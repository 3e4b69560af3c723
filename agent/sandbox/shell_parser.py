"""Takes shell text apart, as far as a look before running it needs: commands, words, quotes, heredocs. Pure.

It is no shell: what it cannot follow, it says so (`Script.is_whole`), and nothing depends on it for confinement.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

_BREAKS = ("&&", "||", ";;", "|&", ";", "|", "&", "\n", "(", ")")
_REDIRECT = re.compile(r"\d*(?:&>>|&>|<<<|<<-|<<|<>|<&|>&|>>|>\||>|<)")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_KEYWORDS = frozenset(("then", "else", "elif", "do", "if", "while", "until", "!", "{", "}"))
_SUBSTITUTION = re.compile(r"\$\((?!\()|`|[<>]\(")


@dataclass(frozen=True, slots=True, kw_only=True)
class Word:
    """One word of a command.

    Attributes:
        text: Without its quotes; variables and substitutions as they were written.
        is_quoted: Whether a part of it stood in quotes.
        inner: The texts of the substitutions in it.
    """

    text: str
    is_quoted: bool = False
    inner: tuple[str, ...] = ()

    @property
    def expands(self) -> bool:
        """Whether what it becomes is known only to the shell."""
        return "$" in self.text or bool(self.inner)


@dataclass(slots=True, kw_only=True)
class Command:
    """One simple command.

    Attributes:
        words: Its words, keywords like `do` before them left out.
        targets: Where it redirects to or from.
        heredocs: The texts that it is given in line.
        ended_by: What follows it: `|`, `;`, `&` ... or nothing.
    """

    words: list[Word] = field(default_factory=list)
    targets: list[Word] = field(default_factory=list)
    heredocs: list[str] = field(default_factory=list)
    ended_by: str = ""

    @property
    def assignments(self) -> list[str]:
        """The `NAME=value` in front."""
        count = next(
            (at for at, word in enumerate(self.words) if not _ASSIGNMENT.match(word.text)),
            len(self.words),
        )
        return [word.text for word in self.words[:count]]

    @property
    def called(self) -> list[Word]:
        """The program and its arguments."""
        return self.words[len(self.assignments) :]


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """Shell text taken apart; `is_whole` is false when a quote or bracket was never closed."""

    commands: tuple[Command, ...]
    is_whole: bool


def parse(text: str) -> Script:
    """Take shell text apart.

    >>> [[word.text for word in one.words] for one in parse("echo 'a;b' && ls").commands]
    [['echo', 'a;b'], ['ls']]
    >>> parse("echo 'open").is_whole
    False
    """
    reader = _Reader(text.replace("\\\n", ""))
    return Script(commands=tuple(reader.commands()), is_whole=reader.is_whole)


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._pending: list[tuple[Command, str]] = []  # heredocs whose text begins at the next line
        self.is_whole = True

    def commands(self) -> Iterator[Command]:
        command = Command()
        while self._at < len(self._text):
            mark = next((one for one in _BREAKS if self._text.startswith(one, self._at)), None)
            if mark is not None and not self._is_redirect():
                self._at += len(mark)
                command.ended_by = mark
                if mark == "\n":
                    self._take_heredocs()
                if command.words or command.targets:
                    yield command
                command = Command()
            else:
                self._take(command)
        if command.words or command.targets:
            yield command

    def _is_redirect(self) -> bool:
        return _REDIRECT.match(self._text, self._at) is not None

    def _take(self, command: Command) -> None:
        """Take blanks, a comment, a redirection or a word."""
        char = self._text[self._at]
        redirect = _REDIRECT.match(self._text, self._at)
        if char in " \t\r":
            self._at += 1
        elif char == "#":
            end = self._text.find("\n", self._at)
            self._at = end if end >= 0 else len(self._text)
        elif redirect and not self._text.startswith(("<(", ">("), self._at):
            self._redirected(command, redirect)
        else:
            word = self._word()
            if command.words or word.is_quoted or word.text not in _KEYWORDS:
                command.words.append(word)

    def _redirected(self, command: Command, found: re.Match[str]) -> None:
        self._at = found.end()
        while self._at < len(self._text) and self._text[self._at] in " \t":
            self._at += 1
        target = self._word()
        if found.group().endswith(("<<", "<<-")):
            self._pending.append((command, target.text))
        elif target.text:
            command.targets.append(target)

    def _take_heredocs(self) -> None:
        for command, label in self._pending:
            end = re.compile(rf"^\t*{re.escape(label)}[ \t]*$", re.MULTILINE)
            found = end.search(self._text, self._at)
            stop = found.start() if found else len(self._text)
            command.heredocs.append(self._text[self._at : stop])
            self._at = min(found.end() + 1 if found else stop, len(self._text))
        self._pending.clear()

    def _word(self) -> Word:
        parts: list[str] = []
        inner: list[str] = []
        is_quoted = False
        while self._at < len(self._text):
            char = self._text[self._at]
            if char in "'\"":
                is_quoted = True
                parts.append(self._quoted(char, inner))
            elif _SUBSTITUTION.match(self._text, self._at):
                parts.append(self._substitution(inner))
            elif char == "\\":
                parts.append(self._text[self._at + 1 : self._at + 2])
                self._at += 2
            elif char in " \t\r\n;|&()<>":
                break
            else:
                parts.append(char)
                self._at += 1
        if not parts and not is_quoted:
            self._at += 1  # nothing that is known: go on behind it
        return Word(text="".join(parts), is_quoted=is_quoted, inner=tuple(inner))

    def _quoted(self, quote: str, inner: list[str]) -> str:
        start = self._at = self._at + 1
        while self._at < len(self._text):
            char = self._text[self._at]
            if char == quote:
                self._at += 1
                return self._text[start : self._at - 1]
            if quote == '"' and _SUBSTITUTION.match(self._text, self._at) and char not in "<>":
                self._substitution(inner)
            else:
                self._at += 2 if quote == '"' and char == "\\" else 1
        self.is_whole = False
        return self._text[start:]

    def _substitution(self, inner: list[str]) -> str:
        """Take `$(...)`, a pair of backticks, `<(...)` or `>(...)`."""
        start = self._at
        if self._text[start] == "`":
            end = self._text.find("`", start + 1)
            self.is_whole = self.is_whole and end >= 0
            self._at = end + 1 if end >= 0 else len(self._text)
            inner.append(self._text[start + 1 : self._at - 1])
            return self._text[start : self._at]
        self._at += 2
        depth = 1
        while self._at < len(self._text) and depth:
            char = self._text[self._at]
            if char in "'\"":
                self._quoted(char, [])
                continue
            depth += (char == "(") - (char == ")")
            self._at += 1
        self.is_whole = self.is_whole and depth == 0
        inner.append(self._text[start + 2 : self._at - (depth == 0)])
        return self._text[start : self._at]
