"""Converts documents to Markdown in a child process. The service itself never parses documents."""

import signal
import subprocess
import sys

import anyio
from anyio.abc import Process

from agent.errors import ConversionFailed
from agent.subprocesses import start_process
from agent.uploads import worker

DEADLINE_S = 60.0
"""Time limit per document, seconds."""

MEMORY_BYTES = 1_500_000_000
"""Address space of the process, bytes. The converters alone take a third of it."""

MAX_CONCURRENT = 2
"""Maximum number of concurrent conversions. Others wait."""

TOO_SLOW = "converting the document took too long"
_FAILED = "the document could not be read"


class DocumentConverter:
    """Converts documents.

    Args:
        deadline_s: Time limit per document, seconds, without the time it waits for a slot.
        memory_bytes: Address space of the process.
    """

    def __init__(self, *, deadline_s: float = DEADLINE_S, memory_bytes: int = MEMORY_BYTES) -> None:
        self._deadline_s = deadline_s
        self._memory_bytes = memory_bytes
        self._slots = anyio.Semaphore(MAX_CONCURRENT)

    async def convert(
        self, document: int, suffix: str, pages: tuple[int, int] | None = None
    ) -> str:
        """Return the Markdown of a document.

        Args:
            document: An open file descriptor, positioned at the start.
            suffix: Its suffix, one of `names.CONVERTIBLE`.
            pages: The first and last page of a PDF, from 1; the text then ends with a line that names these pages. None
                = all.

        Raises:
            ConversionFailed: The document cannot be converted. The message says why.
        """
        async with self._slots:
            try:
                with anyio.fail_after(self._deadline_s):
                    code, text = await self._run(document, suffix, pages)
            except TimeoutError as error:
                raise ConversionFailed(TOO_SLOW) from error
        return _text_or_error(code, text)

    async def _run(
        self, document: int, suffix: str, pages: tuple[int, int] | None
    ) -> tuple[int, bytes]:
        cpu_s = max(1, round(self._deadline_s))
        command = [sys.executable, "-I", worker.__file__, suffix, str(cpu_s)]
        # Leaving the block, even by cancellation, kills the process and waits for its end.
        async with await start_process(
            [*command, str(self._memory_bytes), *map(str, pages or ())],
            stdin=document,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env={"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "LC_ALL": "C.UTF-8"},
            start_new_session=True,
        ) as process:
            text = await _output(process)
            return await process.wait(), text


async def _output(process: Process) -> bytes:
    """Read the output. Kill the process if it writes too much."""
    text = bytearray()
    if process.stdout is not None:
        async for chunk in process.stdout:
            text += chunk
            if len(text) > worker.MAX_MARKDOWN_BYTES:
                process.kill()
                break
    return bytes(text)


def _text_or_error(code: int, text: bytes) -> str:
    if code == 0:
        return text.decode("utf-8", "replace")
    if code == worker.REFUSED:
        raise ConversionFailed(text.decode("utf-8", "replace"))
    if code == -signal.SIGXCPU:
        raise ConversionFailed(TOO_SLOW)
    raise ConversionFailed(_FAILED)
