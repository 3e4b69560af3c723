"""Starts processes."""

from collections.abc import Sequence
from typing import Any

import anyio
from anyio.abc import Process


async def start_process(command: Sequence[str], **options: Any) -> Process:  # noqa: ANN401 - passed on
    """Start a process. Takes the options of `anyio.open_process`.

    If the task is canceled during the start, it still gets the process and is canceled at its next `await`. So it can
    stop the process and wait for it to exit.

    Raises:
        OSError, ValueError: The process cannot be started.
    """
    with anyio.CancelScope(shield=True):
        process = await anyio.open_process(command, **options)
    return process  # noqa: RET504 - mypy believes that the block may swallow errors
