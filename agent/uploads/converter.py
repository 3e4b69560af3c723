"""Turns documents into Markdown in a process that can be killed. Nothing of a document is parsed in the service."""

import signal
import subprocess
import sys

import anyio
from anyio.abc import Process

from agent.errors import ConversionFailed
from agent.uploads import worker

DEADLINE_S = 60.0
"""How long one document may take."""

MEMORY_BYTES = 1_500_000_000
"""Address space of the process; the converters alone take a third of it."""

MAX_CONCURRENT = 2
"""How many documents are converted at the same time; the others wait."""

TOO_SLOW = "the document took too long to read"
_FAILED = "the document could not be read"


class DocumentConverter:
    """Converts one document at a call.

    Args:
        deadline_s: How long one may take; waiting for a free place does not count.
        memory_bytes: How much address space its process may have.
    """

    def __init__(self, *, deadline_s: float = DEADLINE_S, memory_bytes: int = MEMORY_BYTES) -> None:
        self._deadline_s = deadline_s
        self._memory_bytes = memory_bytes
        self._places = anyio.Semaphore(MAX_CONCURRENT)

    async def convert(self, document: int, suffix: str) -> str:
        """Return the Markdown of a document.

        Args:
            document: An open descriptor of the file, at its start.
            suffix: What the name ends with, in lower case: one of `names.CONVERTIBLE`.

        Raises:
            ConversionFailed: There is no text; why is in its message.
        """
        async with self._places:
            try:
                with anyio.fail_after(self._deadline_s):
                    code, text = await self._run(document, suffix)
            except TimeoutError as error:
                raise ConversionFailed(TOO_SLOW) from error
        return _judged(code, text)

    async def _run(self, document: int, suffix: str) -> tuple[int, bytes]:
        cpu_s = max(1, round(self._deadline_s))
        command = [sys.executable, "-I", worker.__file__, suffix, str(cpu_s)]
        # Leaving the block for whatever reason, cancellation included, kills the process and waits for its end.
        async with await anyio.open_process(
            [*command, str(self._memory_bytes)],
            stdin=document,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "LC_ALL": "C.UTF-8"},
            start_new_session=True,
        ) as process:
            text = await _output(process)
            return await process.wait(), text


async def _output(process: Process) -> bytes:
    """Read what the process writes; more than it may ends it."""
    text = bytearray()
    if process.stdout is not None:
        async for chunk in process.stdout:
            text += chunk
            if len(text) > worker.MAX_MARKDOWN_BYTES:
                process.kill()
                break
    return bytes(text)


def _judged(code: int, text: bytes) -> str:
    if code == 0:
        return text.decode("utf-8", "replace")
    if code == worker.REFUSED:
        raise ConversionFailed(text.decode("utf-8", "replace"))
    if code == -signal.SIGXCPU:
        raise ConversionFailed(TOO_SLOW)
    raise ConversionFailed(_FAILED)
