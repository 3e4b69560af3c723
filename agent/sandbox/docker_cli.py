"""The Docker command line behind a narrow interface: arguments in, what it answered out."""

import logging
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import anyio
from typing_extensions import override

from agent.errors import SandboxError

logger = logging.getLogger(__name__)

CALL_S = 60.0
"""How long one call may take, where its caller says nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DockerOutput:
    """What a call answered; `code` is its exit code."""

    code: int
    out: str
    err: str


def docker_problem(program: str) -> str | None:
    """Return why Docker cannot be used here, or None. Blocking: it looks for the program."""
    if shutil.which(program) is not None:
        return None
    return f"sandbox.use: docker needs the program {program}, which is not installed here"


class DockerRunner(Protocol):
    """Runs Docker commands."""

    async def run(
        self, arguments: Sequence[str], *, given: bytes = b"", timeout_s: float = CALL_S
    ) -> DockerOutput:
        """Run a command, with `given` on its standard input.

        Raises:
            SandboxError: The program cannot be started, or took too long. It was ended then.
        """
        ...


class DockerCli(DockerRunner):
    """Runs the program on this machine.

    Args:
        program: docker, podman ...
    """

    def __init__(self, program: str) -> None:
        self._program = program

    @override
    async def run(
        self, arguments: Sequence[str], *, given: bytes = b"", timeout_s: float = CALL_S
    ) -> DockerOutput:
        # Secrets travel on the standard input, so arguments may be shown.
        logger.debug("%s %s", self._program, " ".join(arguments))
        try:
            with anyio.fail_after(timeout_s):
                done = await anyio.run_process(
                    [self._program, *arguments], input=given, check=False
                )
        except TimeoutError as error:
            raise SandboxError("Docker did not answer in time") from error
        except OSError as error:
            raise SandboxError("Docker cannot be started on this machine") from error
        return DockerOutput(
            code=done.returncode,
            out=done.stdout.decode("utf-8", "replace"),
            err=done.stderr.decode("utf-8", "replace"),
        )
