"""ls, read_file, write_file, str_replace, glob, grep: the agent's files, in its sandbox."""

from langchain.tools import ToolRuntime
from langchain_core.tools import BaseTool, StructuredTool
from pydantic import BaseModel, Field

from agent.errors import SandboxError
from agent.sandbox.protocol import FileListing, GrepQuery, Sandbox, SandboxProvider
from agent.tools.results import EMPTY, ToolLimits, run_in_sandbox, truncate_end


class _Described(BaseModel):
    description: str = Field(default="", description="In a few words, why you do this.")


class ListArgs(_Described):
    """Arguments of ls."""

    path: str = Field(description="The folder, for example /mnt/user-data/workspace.")


class ReadArgs(_Described):
    """Arguments of read_file."""

    path: str = Field(description="The file.")
    start_line: int | None = Field(default=None, description="First line wanted, counted from 1.")
    end_line: int | None = Field(default=None, description="Last line wanted, included.")


class WriteArgs(_Described):
    """Arguments of write_file."""

    path: str = Field(description="The file; folders on the way are created.")
    content: str = Field(description="The text to write.")
    append: bool = Field(default=False, description="Add to the end instead of replacing.")


class ReplaceArgs(_Described):
    """Arguments of str_replace."""

    path: str = Field(description="The file.")
    old_str: str = Field(description="The exact text to replace.")
    new_str: str = Field(description="What to put there.")
    replace_all: bool = Field(default=False, description="Everywhere, not only the first time.")


class GlobArgs(_Described):
    """Arguments of glob."""

    pattern: str = Field(description="For example **/*.py; ** spans folders.")
    path: str = Field(description="The folder to look in.")
    include_dirs: bool = Field(default=False, description="Find folders too.")
    max_results: int = Field(default=200, description="At most 1000.")


class GrepArgs(_Described):
    """Arguments of grep."""

    pattern: str = Field(description="A regular expression.")
    path: str = Field(description="The folder or file to search.")
    glob: str | None = Field(default=None, description="Only files that match, for example *.py.")
    literal: bool = Field(default=False, description="Take the pattern as plain text.")
    case_sensitive: bool = Field(default=False, description="Whether case counts.")
    max_results: int = Field(default=100, description="At most 500.")


MAX_GLOB_RESULTS = 1_000
MAX_GREP_RESULTS = 500


def file_tools(sandboxes: SandboxProvider, limits: ToolLimits) -> tuple[BaseTool, ...]:
    """Build the file tools over the sandboxes given."""
    calls = _Calls(sandboxes, limits)
    return (
        StructuredTool.from_function(
            coroutine=calls.ls,
            name="ls",
            description="List what is in a folder, two levels deep.",
            args_schema=ListArgs,
        ),
        StructuredTool.from_function(
            coroutine=calls.read_file,
            name="read_file",
            description="Read a text file, whole or a range of lines.",
            args_schema=ReadArgs,
        ),
        StructuredTool.from_function(
            coroutine=calls.write_file,
            name="write_file",
            description="Write text to a file. Write long texts in parts, the later ones with append.",
            args_schema=WriteArgs,
        ),
        StructuredTool.from_function(
            coroutine=calls.str_replace,
            name="str_replace",
            description="Replace an exact piece of text in a file.",
            args_schema=ReplaceArgs,
        ),
        StructuredTool.from_function(
            coroutine=calls.glob,
            name="glob",
            description="Find files by name pattern.",
            args_schema=GlobArgs,
        ),
        StructuredTool.from_function(
            coroutine=calls.grep,
            name="grep",
            description="Search in text files; answers with path:line: text.",
            args_schema=GrepArgs,
        ),
    )


class _Calls:
    """The tools' code. Arguments arrive checked against the schema; read through it for their types."""

    def __init__(self, sandboxes: SandboxProvider, limits: ToolLimits) -> None:
        self._sandboxes = sandboxes
        self._limits = limits

    async def ls(self, runtime: ToolRuntime, **arguments: object) -> str:
        args = ListArgs.model_validate(arguments)

        async def work(sandbox: Sandbox) -> str:
            return self._listed(await sandbox.list_dir(args.path))

        return await run_in_sandbox(self._sandboxes, runtime, work)

    async def read_file(self, runtime: ToolRuntime, **arguments: object) -> str:
        args = ReadArgs.model_validate(arguments)

        async def work(sandbox: Sandbox) -> str:
            text = line_range(await sandbox.read_file(args.path), args.start_line, args.end_line)
            hint = "read the rest with start_line and end_line"
            return truncate_end(text, self._limits.reading_chars, hint) or EMPTY

        return await run_in_sandbox(self._sandboxes, runtime, work)

    async def write_file(self, runtime: ToolRuntime, **arguments: object) -> str:
        args = WriteArgs.model_validate(arguments)

        async def work(sandbox: Sandbox) -> str:
            self._require_small(args)
            await sandbox.write_file(args.path, args.content, append=args.append)
            return "OK"

        return await run_in_sandbox(self._sandboxes, runtime, work)

    async def str_replace(self, runtime: ToolRuntime, **arguments: object) -> str:
        args = ReplaceArgs.model_validate(arguments)

        async def work(sandbox: Sandbox) -> str:
            await sandbox.replace_text(
                args.path, args.old_str, args.new_str, everywhere=args.replace_all
            )
            return "OK"

        return await run_in_sandbox(self._sandboxes, runtime, work)

    async def glob(self, runtime: ToolRuntime, **arguments: object) -> str:
        args = GlobArgs.model_validate(arguments)

        async def work(sandbox: Sandbox) -> str:
            found = await sandbox.glob(
                args.path,
                args.pattern,
                include_dirs=args.include_dirs,
                max_results=min(max(args.max_results, 1), MAX_GLOB_RESULTS),
            )
            return self._listed(found, "(nothing found)")

        return await run_in_sandbox(self._sandboxes, runtime, work)

    async def grep(self, runtime: ToolRuntime, **arguments: object) -> str:
        args = GrepArgs.model_validate(arguments)

        async def work(sandbox: Sandbox) -> str:
            query = GrepQuery(
                pattern=args.pattern,
                glob=args.glob,
                literal=args.literal,
                case_sensitive=args.case_sensitive,
                max_results=min(max(args.max_results, 1), MAX_GREP_RESULTS),
            )
            return self._listed(await sandbox.grep(args.path, query), "(nothing found)")

        return await run_in_sandbox(self._sandboxes, runtime, work)

    def _listed(self, listing: FileListing, nothing: str = EMPTY) -> str:
        lines = [*listing.lines]
        if listing.truncated:
            lines.append("... [there is more; narrow the path or the pattern]")
        return (
            truncate_end("\n".join(lines), self._limits.listing_chars, "narrow the path") or nothing
        )

    def _require_small(self, args: WriteArgs) -> None:
        size, limit = len(args.content.encode("utf-8", "replace")), self._limits.write_bytes
        if limit and not args.append and size > limit:
            raise SandboxError(
                f"the content has {size} bytes, more than the {limit} of one write. Nothing was written: "
                "write a first part, then the others with append"
            )


def line_range(text: str, start: int | None, end: int | None) -> str:
    r"""Return the lines from `start` to `end`, counted from 1, both included; None = from the first, to the last.

    >>> line_range("a\nb\nc", 2, None)
    'b\nc'
    >>> line_range("a\nb\nc", None, 1)
    'a'
    """
    if start is None and end is None:
        return text
    lines = text.split("\n")
    first = max(start or 1, 1)
    return "\n".join(lines[first - 1 : max(end, 0) if end is not None else None])
