"""Prompts of `parley init`. Answers come from a terminal, or from a pipe with one answer per line."""

import getpass
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager

from gateway.command_errors import CommandFailed

INPUT_ENDED = "the input ended before all questions were answered; nothing was written"


class SetupPrompter:
    """Asks questions and reads the answers. Ctrl-C raises KeyboardInterrupt."""

    def show(self, text: str) -> None:
        """Print a line."""
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    def ask(self, question: str, *, default: str | None = None, hidden: bool = False) -> str:
        """Return an answer; "" only if `default` is "".

        Args:
            question: The question, without a colon.
            default: Value for an empty answer; None = ask until there is an answer.
            hidden: Hide the typed text.

        Raises:
            CommandFailed: The input ended.
        """
        while True:
            answer = self._line(f"{question}: ", hidden=hidden).strip()
            if answer or default is not None:
                return answer or default or ""

    def confirm(self, question: str) -> bool:
        """Return whether the answer is yes. An empty answer means no."""
        return self.ask(f"{question} [y/N]", default="n").lower() in {"y", "yes"}

    @contextmanager
    def without_echo(self) -> Iterator[None]:
        """Hide and discard text typed during a check, because it may be a token."""
        if not sys.stdin.isatty():
            yield
            return
        settings = termios.tcgetattr(sys.stdin)
        hidden = [*settings]
        hidden[3] &= ~termios.ECHO
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, hidden)
        try:
            yield
        finally:
            termios.tcsetattr(sys.stdin, termios.TCSAFLUSH, settings)

    def _line(self, prompt: str, *, hidden: bool) -> str:
        at_terminal = sys.stdin.isatty()
        try:
            if hidden and at_terminal:
                return getpass.getpass(prompt)
            sys.stdout.write(prompt)
            sys.stdout.flush()
            line = sys.stdin.readline()
        except EOFError:
            line = ""
        except UnicodeDecodeError:
            raise CommandFailed("an answer is not valid UTF-8; nothing was written") from None
        if not line:
            sys.stdout.write("\n")
            raise CommandFailed(INPUT_ENDED)
        if not at_terminal:
            sys.stdout.write("\n")
        return line
