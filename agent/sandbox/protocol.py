"""What tools ask of a sandbox. Paths are virtual everywhere here."""

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class FileListing:
    """What a listing or search found: one line each; `truncated` when there was more."""

    lines: tuple[str, ...]
    truncated: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GrepQuery:
    """A search in files.

    Attributes:
        pattern: A Python regular expression, or plain text when `literal`.
        glob: Only files whose path below the searched folder matches; None = all.
        literal: Whether `pattern` is plain text.
        case_sensitive: Whether case counts.
        max_results: At most so many matching lines.
    """

    pattern: str
    glob: str | None = None
    literal: bool = False
    case_sensitive: bool = True
    max_results: int = 100


class Sandbox(Protocol):
    """The files of one thread, and its shell. Every method raises SandboxError with a text without host paths."""

    @property
    def id(self) -> str:
        """Its id, `{kind}:{thread id}`."""
        ...

    async def list_dir(self, path: str, *, max_depth: int = 2) -> FileListing:
        """List a folder as full virtual paths, folders with a trailing slash, ignored names left out."""
        ...

    async def read_file(self, path: str) -> str:
        """Return the text of a UTF-8 file, at most `files.MAX_TEXT_BYTES` large."""
        ...

    async def write_file(self, path: str, content: str, *, append: bool = False) -> None:
        """Write a file, creating folders on the way; without `append` the old content is replaced at once."""
        ...

    async def replace_text(self, path: str, old: str, new: str, *, everywhere: bool) -> None:
        """Replace `old` in a file, the first time it occurs or everywhere; an empty `old` changes nothing."""
        ...

    async def glob(
        self, path: str, pattern: str, *, include_dirs: bool, max_results: int
    ) -> FileListing:
        """Find files by their path below a folder; `**` spans folders."""
        ...

    async def grep(self, path: str, query: GrepQuery) -> FileListing:
        """Search the text files of a folder, or one file: `path:line: text`."""
        ...

    async def check_file(self, path: str) -> str:
        """Return the normalised path of an existing regular file."""
        ...

    async def execute(self, command: str, *, timeout_s: float) -> str:
        """Run a command by a shell in the workspace; return what it wrote, as `Outcome.text` puts it together.

        The shell reads nothing from its caller. When the deadline passes or the call is cancelled, everything the
        command started is killed; nothing that it started in the background outlives the call where that can
        be helped.

        Args:
            command: Shell text.
            timeout_s: Seconds it may take; the answer says so when they were not enough.

        Raises:
            CommandsDisabled: This sandbox runs no commands.
            SandboxError: The shell cannot be started, or the thread has used up its space.
        """
        ...


class SandboxProvider(Protocol):
    """Where sandboxes come from: one for each thread."""

    @property
    def description(self) -> str:
        """What people read about it when the service starts, one line."""
        return type(self).__name__

    @property
    def uses_thread_folders(self) -> bool:
        """Whether the sandbox sees the thread's folders of this machine, so that nothing has to be copied."""
        ...

    @property
    def can_execute(self) -> bool:
        """Whether commands can be run, so that the agent has `bash`."""
        ...

    def sandbox_id(self, thread_id: str) -> str:
        """Return the id that the thread's sandbox has, made or not. Pure.

        Raises:
            ThreadIdInvalid: It can have none.
        """
        ...

    async def acquire(self, thread_id: str) -> Sandbox:
        """Return the thread's sandbox, made ready. Asking again gives the same files.

        Raises:
            ThreadIdInvalid, SandboxError: There is none.
        """
        ...

    async def release(self, sandbox_id: str) -> None:
        """Say that a turn is over and the sandbox may rest; its files stay."""
        ...

    async def run_maintenance(self) -> None:
        """Look after resting sandboxes until cancelled; return at once where nothing has to be looked after."""
        return  # without a body of its own it would be abstract

    async def aclose(self) -> None:
        """End whatever still runs. Nothing may be acquired after that."""
        ...
