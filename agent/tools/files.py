"""File tools: ls, read_file, write_file, str_replace, glob, grep."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

import anyio.to_thread
from langchain.tools import ToolRuntime
from langchain_core.tools import BaseTool, StructuredTool
from pydantic import BaseModel, Field

from agent.errors import SandboxError
from agent.sandbox.encodings import UTF_8
from agent.sandbox.protocol import FileListing, GrepQuery, Sandbox, SandboxProvider
from agent.tools.results import EMPTY, ToolLimits, run_in_sandbox, text_page
from agent.uploads.outline import outline_lines

MAX_GLOB_RESULTS = 1_000
MAX_GREP_RESULTS = 500
NO_MATCHES = "(no matches)"


class _Described(BaseModel):
    description: str = Field(default="", description="Why you do this, in a few words.")


class ListArgs(_Described):
    """Arguments of ls."""

    path: str = Field(description="The folder, for example /mnt/user-data/workspace.")


class ReadArgs(_Described):
    """Arguments of read_file."""

    path: str = Field(description="The file.")
    start_line: int | None = Field(default=None, description="First line to read, from 1.")
    end_line: int | None = Field(default=None, description="Last line to read, inclusive.")
    offset: int = Field(
        default=0, description="Characters to skip, to continue reading a long text."
    )


class WriteArgs(_Described):
    """Arguments of write_file."""

    path: str = Field(description="The file; missing folders are created.")
    content: str = Field(description="The text to write.")
    append: bool = Field(default=False, description="Append instead of replacing the file.")


class ReplaceArgs(_Described):
    """Arguments of str_replace."""

    path: str = Field(description="The file.")
    old_str: str = Field(description="The exact text to replace; it must occur only once.")
    new_str: str = Field(description="The replacement.")
    replace_all: bool = Field(default=False, description="Replace every occurrence.")


class GlobArgs(_Described):
    """Arguments of glob."""

    pattern: str = Field(description="For example **/*.py; ** spans folders.")
    path: str = Field(description="The folder to search.")
    include_dirs: bool = Field(default=False, description="Match folders too.")
    max_results: int = Field(default=200, description="At most 1000.")


class GrepArgs(_Described):
    """Arguments of grep."""

    pattern: str = Field(description="A regular expression.")
    path: str = Field(description="The folder or file to search.")
    glob: str | None = Field(default=None, description="Only matching files, for example *.py.")
    literal: bool = Field(default=False, description="Treat the pattern as plain text.")
    case_sensitive: bool = Field(default=False, description="Match case.")
    max_results: int = Field(default=100, description="At most 500.")


Args = TypeVar("Args", bound=BaseModel)


def file_tools(sandboxes: SandboxProvider, limits: ToolLimits) -> tuple[BaseTool, ...]:
    """Build the file tools over a sandbox provider."""

    def tool(
        name: str,
        description: str,
        schema: type[Args],
        work: Callable[[Sandbox, Args, ToolLimits], Awaitable[str]],
    ) -> BaseTool:
        async def call(runtime: ToolRuntime, **arguments: object) -> str:
            args = schema.model_validate(arguments)
            return await run_in_sandbox(sandboxes, runtime, lambda box: work(box, args, limits))

        return StructuredTool.from_function(
            coroutine=call, name=name, description=description, args_schema=schema
        )

    return (
        tool("ls", "List a folder, two levels deep.", ListArgs, _ls),
        tool("read_file", "Read a text file, or a range of its lines.", ReadArgs, _read_file),
        tool(
            "write_file",
            "Write text to a file. Split long texts: write the first part, then append the others.",
            WriteArgs,
            _write_file,
        ),
        tool(
            "str_replace",
            "Replace an exact text in a file: its only occurrence, or all with replace_all.",
            ReplaceArgs,
            _str_replace,
        ),
        tool("glob", "Find files by name pattern.", GlobArgs, _glob),
        tool("grep", "Search text files. Returns lines as path:line: text.", GrepArgs, _grep),
    )


async def _ls(sandbox: Sandbox, args: ListArgs, _: ToolLimits) -> str:
    return _format(await sandbox.list_dir(args.path), EMPTY)


async def _read_file(sandbox: Sandbox, args: ReadArgs, limits: ToolLimits) -> str:
    text, encoding = await sandbox.read_file(args.path)
    # Not on the event loop: files may be several megabytes.
    shown = await anyio.to_thread.run_sync(_reading, text, args, limits.reading_chars)
    return shown if encoding == UTF_8 else f"{shown}\n[the file is {encoding}, not UTF-8]"


def _reading(whole: str, args: ReadArgs, limit: int) -> str:
    """Return the requested part of a file and its position. The start of a long file also lists its headings."""
    text = line_range(whole, args.start_line, args.end_line)
    shown = text_page(text, args.offset, limit) or EMPTY
    total = whole.count("\n") + 1
    if text is not whole:
        first = max(args.start_line or 1, 1)
        last = total if args.end_line is None else min(args.end_line, total)
        lines = (
            f"lines {first} to {last} of {total}" if first <= last else f"there are {total} lines"
        )
        return f"{shown}\n[{lines}]"
    if args.path.endswith(".md") and args.offset <= 0 and 0 < limit < len(text):
        return "\n".join([f"{shown}\n[{total} lines; headings:]", *outline_lines(text)])
    return shown


async def _write_file(sandbox: Sandbox, args: WriteArgs, limits: ToolLimits) -> str:
    size = len(args.content.encode("utf-8", "replace"))
    if limits.write_bytes and not args.append and size > limits.write_bytes:
        raise SandboxError(
            f"the content has {size} bytes, more than the limit of {limits.write_bytes} per write. Nothing was "
            "written: write the first part, then append the others"
        )
    await sandbox.write_file(args.path, args.content, append=args.append)
    return "OK"


async def _str_replace(sandbox: Sandbox, args: ReplaceArgs, _: ToolLimits) -> str:
    await sandbox.replace_text(args.path, args.old_str, args.new_str, everywhere=args.replace_all)
    return "OK"


async def _glob(sandbox: Sandbox, args: GlobArgs, _: ToolLimits) -> str:
    found = await sandbox.glob(
        args.path,
        args.pattern,
        include_dirs=args.include_dirs,
        max_results=min(max(args.max_results, 1), MAX_GLOB_RESULTS),
    )
    return _format(found, NO_MATCHES)


async def _grep(sandbox: Sandbox, args: GrepArgs, _: ToolLimits) -> str:
    query = GrepQuery(
        pattern=args.pattern,
        glob=args.glob,
        literal=args.literal,
        case_sensitive=args.case_sensitive,
        max_results=min(max(args.max_results, 1), MAX_GREP_RESULTS),
    )
    return _format(await sandbox.grep(args.path, query), NO_MATCHES)


def _format(listing: FileListing, if_empty: str) -> str:
    lines = [*listing.lines]
    if listing.truncated:
        lines.append("... [there is more; narrow the path or the pattern]")
    return "\n".join(lines) or if_empty


def line_range(text: str, start: int | None, end: int | None) -> str:
    r"""Return lines `start` to `end`, from 1, inclusive. None = from the first, or to the last line.

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
