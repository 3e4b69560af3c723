"""Starting processes."""

from collections.abc import Sequence
from typing import Any

import anyio
from anyio.abc import Process


async def start_process(command: Sequence[str], **options: Any) -> Process:  # noqa: ANN401 - handed on
    """Start a process as `anyio.open_process` does, whose options it takes.

    A task that is cancelled meanwhile gets it nevertheless, and is cancelled at its next `await`: so that it can end
    the process and wait for its end.

    Raises:
        OSError, ValueError: It cannot be started.
    """
    with anyio.CancelScope(shield=True):
        process = await anyio.open_process(command, **options)
    return process  # noqa: RET504 - mypy takes the block for one that may swallow errors
