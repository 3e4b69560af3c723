"""A clock of the service that can be moved while the service runs."""

import mmap
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

_SOURCE = Path(__file__).with_name("movable_clock.c")
_BYTES: Final = 8


class MovableClock:
    """The service's time of day. Needs a C compiler. Never moves the monotonic clock.

    Args:
        folder: The folder of its files; None = it cannot be moved.
    """

    def __init__(self, folder: Path | None) -> None:
        self.environment = {} if folder is None else _build(folder)
        """Environment variables that make a process use this clock; empty if it cannot be moved."""
        self._shift: mmap.mmap | None = None
        if self.environment:
            with Path(self.environment["PROVE_CLOCK"]).open("r+b") as file:
                self._shift = mmap.mmap(file.fileno(), _BYTES)

    @property
    def is_movable(self) -> bool:
        """Whether `shift` has an effect."""
        return self._shift is not None

    def shift(self, seconds: int) -> None:
        """From now on, let the clock differ from the real one by an offset."""
        if self._shift is not None:
            self._shift[:] = seconds.to_bytes(_BYTES, sys.byteorder, signed=True)


def _build(folder: Path) -> dict[str, str]:
    """Compile the library. Return the environment that preloads it; {} if it cannot be compiled."""
    compiler, library, file = shutil.which("cc"), folder / "clock.so", folder / "clock"
    if compiler is None or not sys.platform.startswith("linux"):
        return {}
    command = [compiler, "-shared", "-fPIC", "-O2", "-o", str(library), str(_SOURCE), "-ldl"]
    folder.mkdir(parents=True, exist_ok=True)
    if subprocess.run(command, check=False, capture_output=True).returncode != 0:
        return {}
    file.write_bytes(bytes(_BYTES))
    return {"LD_PRELOAD": str(library), "PROVE_CLOCK": str(file)}
