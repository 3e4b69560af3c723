"""Questions to whoever runs the command: at a terminal, or through a pipe with one answer a line."""

import getpass
import sys

from gateway.command_errors import CommandFailed

INPUT_ENDED = "the input ended before everything was answered: nothing was written"


class SetupPrompter:
    """The one who answers. Ctrl-C passes through."""

    def show(self, text: str) -> None:
        """Say something."""
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()

    def ask(self, question: str, *, default: str | None = None, hidden: bool = False) -> str:
        """Return an answer; it is "" only where `default` is.

        Args:
            question: What is asked, without colon.
            default: What is meant by an empty answer; None = ask until there is one.
            hidden: Do not show what is typed.

        Raises:
            CommandFailed: The input ended.
        """
        while True:
            answer = self._line(f"{question}: ", hidden=hidden).strip()
            if answer or default is not None:
                return answer or default or ""

    def confirm(self, question: str) -> bool:
        """Return whether the answer is yes; nothing means no."""
        return self.ask(f"{question} [y/N]", default="n").lower() in {"y", "yes"}

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
            raise CommandFailed("an answer is not UTF-8 text: nothing was written") from None
        if not line:
            sys.stdout.write("\n")
            raise CommandFailed(INPUT_ENDED)
        if not at_terminal:
            sys.stdout.write("\n")
        return line
