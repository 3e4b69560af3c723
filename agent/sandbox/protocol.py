"""Protocols of sandboxes and their providers. All paths are virtual."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from re import Pattern
from typing import Protocol

from agent.background import background_tasks
from agent.sandbox.edits import TextEdit
from agent.sandbox.encodings import FileText
from agent.sandbox.result import OutputTail


@dataclass(frozen=True, slots=True, kw_only=True)
class FileListing:
    """Lines of a listing or search; `truncated` if there were more."""

    lines: tuple[str, ...]
    truncated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GrepQuery:
    """A text search.

    Attributes:
        pattern: A Python regular expression, or plain text if `literal`.
        glob: Only files whose path below the searched folder matches; None = all.
        literal: Whether `pattern` is plain text.
        case_sensitive: Whether case matters.
        max_results: Maximum number of matching lines.
    """

    pattern: str
    glob: str | None = None
    literal: bool = False
    case_sensitive: bool = True
    max_results: int = 100


class Sandbox(Protocol):
    """The files and the shell of one thread. Methods raise SandboxError, whose text contains no host paths."""

    async def list_dir(self, path: str, *, max_depth: int = 2) -> FileListing:
        """List a folder as full virtual paths. Folders end with a slash, and ignored names are omitted."""
        ...

    async def read_file(self, path: str) -> FileText:
        """Return the text of a file of at most `files.MAX_TEXT_BYTES`, and its encoding."""
        ...

    async def write_file(self, path: str, content: str, *, append: bool = False) -> None:
        """Write a file and create missing folders. Without `append`, replace the content atomically."""
        ...

    async def delete_oldest(self, folder: str, name: Pattern[str], *, max_bytes: int) -> None:
        """Delete the oldest files of a folder whose names match, until the others have at most `max_bytes`."""
        ...

    async def read_bytes(self, path: str) -> bytes:
        """Return the content of a file of at most `files.MAX_TEXT_BYTES`."""
        ...

    async def edit_file(self, path: str, edits: Sequence[TextEdit]) -> str:
        """Apply all edits to a file, or none (`edits.apply_edits`). Return the diff (`edits.edit_diff`)."""
        ...

    async def glob(
        self, path: str, pattern: str, *, include_dirs: bool, max_results: int
    ) -> FileListing:
        """Find files by their path below a folder; `**` spans folders."""
        ...

    async def grep(self, path: str, query: GrepQuery) -> FileListing:
        """Search the text files of a folder, or one file. Lines have the form `path:line: text`."""
        ...

    async def check_file(self, path: str) -> str:
        """Return the normalized path of an existing regular file."""
        ...

    async def execute(
        self, command: str, *, timeout_s: float, output: OutputTail | None = None
    ) -> str:
        """Run a shell command in the workspace. Return its output, formatted by `CommandResult.text`.

        Stdin is empty. When the deadline passes or the call is canceled, all processes that the command started are
        killed. Background processes do not outlive the call, as far as the sandbox can enforce it.

        Args:
            command: Shell text.
            timeout_s: Time limit, seconds; the output says so if it is exceeded.
            output: Receives the output while the command runs; the result then says only how it ended.

        Raises:
            CommandsDisabled: This sandbox runs no commands.
            SandboxError: The shell cannot be started, or the thread is over its disk quota.
        """
        ...


class SandboxProvider(Protocol):
    """Provides one sandbox per thread."""

    @property
    def description(self) -> str:
        """A one-line description, shown to the operator at startup."""
        return type(self).__name__

    @property
    def can_execute(self) -> bool:
        """Whether commands can run. If so, the agent has the `bash` tool."""
        ...

    @property
    def has_network(self) -> bool | None:
        """Whether commands can reach the network, as stated in the agent's prompt; None = unknown."""
        return None

    def sandbox_id(self, thread_id: str) -> str:
        """Return the id of the thread's sandbox, whether or not it exists. Pure.

        Raises:
            ThreadIdInvalid: The id cannot name a sandbox.
        """
        ...

    async def acquire(self, thread_id: str) -> Sandbox:
        """Return the thread's sandbox, ready for use. Every call for a thread returns the same files.

        Raises:
            ThreadIdInvalid, SandboxError: The sandbox cannot be provided.
        """
        ...

    async def release(self, sandbox_id: str) -> None:
        """Mark a sandbox as idle after a turn. Its files are kept."""
        ...

    async def run_maintenance(self) -> None:
        """Remove idle sandboxes until canceled. Return at once if there is nothing to maintain."""
        return  # without a body, the method would be abstract

    async def aclose(self) -> None:
        """Stop all running commands. Do not acquire sandboxes afterwards."""
        ...


@asynccontextmanager
async def maintained(provider: SandboxProvider) -> AsyncIterator[SandboxProvider]:
    """Run the provider's maintenance in the background until the block ends."""
    async with background_tasks() as tasks:
        tasks.start_soon(provider.run_maintenance)
        yield provider
