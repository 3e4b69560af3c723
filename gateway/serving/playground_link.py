"""The link to the playground that `parley serve` prints in a terminal without a chat platform.

The first visit starts `parley playground` as a child process, which ends with this one.
"""

import re
import sys
from pathlib import Path
from secrets import token_urlsafe
from subprocess import DEVNULL, PIPE

import anyio
import anyio.abc
from fastapi import HTTPException
from starlette.responses import RedirectResponse

from gateway.config import Config
from gateway.serving.startup_report import has_platform

START_WITHIN_S = 30.0
_LINK = re.compile(rb"http://127\.0\.0\.1:\d+/\?token=\S+")


def is_playground_offered(config: Config) -> bool:
    """Return whether to print the link: only to a terminal, because everyone who reads the link can use it."""
    return sys.stdout.isatty() and config.gateway.is_loopback and not has_platform(config)


class PlaygroundLink:
    """Starts the playground on the first visit.

    Attributes:
        path: The path of the link. It contains a key, so that only readers of the terminal know it.
    """

    def __init__(self, config: Config) -> None:
        self.path = f"/playground/{token_urlsafe(12)}"
        self._config = config
        self._process: anyio.abc.Process | None = None
        self._link = ""
        self._lock = anyio.Lock()

    async def open(self) -> RedirectResponse:
        """Redirect to the playground. Starts it if it is not running."""
        async with self._lock:
            if self._process is None or self._process.returncode is not None:
                self._link = await self._start()
        return RedirectResponse(self._link)

    async def _start(self) -> str:
        source = self._config.source
        command = [sys.executable, "-P", "-m", "gateway", "playground", "--with-parent"]
        command += ["--config", str(source)] if source else []
        environment = {
            **self._config.environment,
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "PARLEY_HOME": str(self._config.home),
        }
        # It gets its own session, because Ctrl-C in the chat is not meant for it.
        self._process = await anyio.open_process(
            command,
            stdin=PIPE,
            stdout=PIPE,
            stderr=DEVNULL,
            env=environment,
            start_new_session=True,
        )
        with anyio.move_on_after(START_WITHIN_S):
            if found := await _find_link(self._process):
                return found
        self.end()
        raise HTTPException(503, "The playground did not start: run `parley playground`.")

    def end(self) -> None:
        """End the playground."""
        if self._process is not None and self._process.returncode is None:
            self._process.terminate()


async def _find_link(process: anyio.abc.Process) -> str:
    """Return the link that a playground prints; "" = it ended without one."""
    said = b""
    if process.stdout is not None:
        async for piece in process.stdout:
            said += piece
            if found := _LINK.search(said):
                return found[0].decode()
    return ""
