"""Fake Docker for tests: a `docker` program that records calls, with configurable failures."""

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import DEVNULL, run
from typing import Any

CLI = Path(__file__).with_name("docker_cli.py")


@dataclass(frozen=True)
class FakeDocker:
    """A fake Docker whose state is in a folder."""

    folder: Path

    @property
    def program(self) -> Path:
        """The program to call."""
        return self.folder / "docker"

    @property
    def calls(self) -> list[list[str]]:
        """The arguments of all calls, in order."""
        return [line["arguments"] for line in self._lines()]

    @property
    def given(self) -> list[str]:
        """The standard input of the calls."""
        return [line["given"] for line in self._lines()]

    @property
    def runs(self) -> list[list[str]]:
        """The arguments of all calls of `docker run`."""
        return [call for call in self.calls if call[0] == "run"]

    @property
    def containers(self) -> list[str]:
        """The names of existing containers and networks."""
        return sorted(p.stem for p in self.folder.glob("*.json") if p.stem != "knobs")

    def set(self, **knobs: Any) -> None:  # noqa: ANN401 - whatever JSON holds
        """Change settings: fails = the command that fails."""
        part = self.folder / "knobs.part"
        part.write_text(json.dumps(knobs))
        part.rename(self.folder / "knobs.json")

    def call(self, *arguments: str) -> None:
        """Call the program as another user of the machine would."""
        run([str(self.program), *arguments], check=False, stdin=DEVNULL, stdout=DEVNULL)

    def _lines(self) -> list[dict[str, Any]]:
        path = self.folder / "calls.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@contextmanager
def machine(folder: Path) -> Iterator[FakeDocker]:
    """Put the program into a folder. Remove every container after the block."""
    folder.mkdir()
    made = FakeDocker(folder)
    made.program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{CLI}" "{folder}" "$@"\n')
    made.program.chmod(0o755)
    try:
        yield made
    finally:
        for name in made.containers:
            made.call("rm", "--force", name)
