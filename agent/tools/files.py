"""File tools: ls, read_file, write_file, str_replace, glob, grep."""

import os
import re
from collections.abc import Awaitable, Callable
from itertools import count, takewhile
from pathlib import PurePosixPath
from typing import TypeVar

import anyio.to_thread
from langchain.tools import ToolRuntime
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.types import Command
from pydantic import BaseModel, Field

from agent.errors import AgentError, ConversionFailed, SandboxError
from agent.sandbox.edits import TextEdit
from agent.sandbox.encodings import UTF_8
from agent.sandbox.protocol import FileListing, GrepQuery, Sandbox, SandboxProvider
from agent.thread_storage import ThreadStorage
from agent.tools.results import (
    EMPTY,
    ToolLimits,
    error_text,
    run_in_sandbox,
    text_page,
    tool_message,
)
from agent.tools.view_image import show_image
from agent.uploads.converter import DocumentConverter
from agent.uploads.image_size import image_size
from agent.uploads.images import HEAD_BYTES, MIME_OF_SUFFIX, image_type
from agent.uploads.names import CONVERTIBLE
from agent.uploads.outline import outline_lines

READ_FILE = "read_file"
MAX_GLOB_RESULTS = 1_000
MAX_GREP_RESULTS = 500
NO_MATCHES = "(no matches)"


MAX_EDITS = 100
MAX_PAGES = 20
"""Maximum number of PDF pages to read at once."""

_EVERYWHERE = "The {what} to search; unset = all: workspace, uploads, outputs, skills."
_NUMBER = re.compile(r"([1-9][0-9]{0,8})\t")
_PAGES = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?")


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
    pages: str | None = Field(
        default=None, description=f"Pages of a PDF, for example 3 or 1-5; at most {MAX_PAGES}."
    )


class WriteArgs(_Described):
    """Arguments of write_file."""

    path: str = Field(description="The file; missing folders are created.")
    content: str = Field(description="The text to write.")
    append: bool = Field(default=False, description="Append instead of replacing the file.")


class Replacement(BaseModel):
    """One of several replacements. It has the field names of `ReplaceArgs`."""

    old_str: str
    new_str: str
    replace_all: bool = False


class ReplaceArgs(_Described):
    """Arguments of str_replace."""

    path: str = Field(description="The file.")
    old_str: str | None = Field(
        default=None, description="The exact text to replace, without line numbers; must be unique."
    )
    new_str: str | None = Field(default=None, description="The replacement.")
    replace_all: bool = Field(default=False, description="Replace every occurrence.")
    edits: list[Replacement] = Field(
        default_factory=list,
        description="Several replacements in order, instead of old_str and new_str: all are made, or none.",
        max_length=MAX_EDITS,
    )

    def text_edits(self) -> list[TextEdit]:
        """Return the replacements.

        Raises:
            SandboxError: No replacement is given.
        """
        asked = self.edits
        if self.old_str is not None and self.new_str is not None:
            first = Replacement(
                old_str=self.old_str, new_str=self.new_str, replace_all=self.replace_all
            )
            asked = [first, *asked]
        if not asked:
            raise SandboxError("give old_str and new_str, or edits. Nothing was changed")
        return [
            TextEdit(old=one.old_str, new=one.new_str, everywhere=one.replace_all) for one in asked
        ]


class GlobArgs(_Described):
    """Arguments of glob."""

    pattern: str = Field(description="For example **/*.py; ** spans folders.")
    path: str | None = Field(default=None, description=_EVERYWHERE.format(what="folder"))
    include_dirs: bool = Field(default=False, description="Also match folders.")
    max_results: int = Field(default=200, description="At most 1000.")


class GrepArgs(_Described):
    """Arguments of grep."""

    pattern: str = Field(description="A regular expression.")
    path: str | None = Field(default=None, description=_EVERYWHERE.format(what="folder or file"))
    glob: str | None = Field(default=None, description="Only matching files, for example *.py.")
    literal: bool = Field(default=False, description="Treat the pattern as plain text.")
    case_sensitive: bool = Field(default=False, description="Match case.")
    max_results: int = Field(default=100, description="At most 500.")


Args = TypeVar("Args", bound=BaseModel)


def file_tools(
    sandboxes: SandboxProvider,
    limits: ToolLimits,
    converter: DocumentConverter,
    images: ThreadStorage | None,
) -> tuple[BaseTool, ...]:
    """Build the file tools over a sandbox provider. See `read_file_tool`."""

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
        read_file_tool(sandboxes, limits, converter, images),
        tool(
            "write_file",
            "Write text to a file. Split long texts: write the first part, then append the others.",
            WriteArgs,
            _write_file,
        ),
        tool(
            "str_replace",
            "Replace exact texts in a file: one with old_str and new_str, or several with edits. Returns the diff.",
            ReplaceArgs,
            _str_replace,
        ),
        tool("glob", "Find files by name pattern.", GlobArgs, _glob),
        tool("grep", "Search text files. Returns lines as path:line: text.", GrepArgs, _grep),
    )


def read_file_tool(
    sandboxes: SandboxProvider,
    limits: ToolLimits,
    converter: DocumentConverter,
    images: ThreadStorage | None,
) -> BaseTool:
    """Build read_file.

    Args:
        sandboxes: Provides the files.
        limits: Limits of a result.
        converter: Reads documents.
        images: Threads' folders, for a model that supports images; None = it does not.
    """

    async def read_file(
        runtime: ToolRuntime, **arguments: object
    ) -> str | Command[None] | ToolMessage:
        args = ReadArgs.model_validate(arguments)
        suffix = PurePosixPath(args.path).suffix.lower()
        if images is not None and suffix in MIME_OF_SUFFIX:
            try:
                return await show_image(images, args.path, runtime, READ_FILE)
            except AgentError as error:
                return tool_message(runtime, READ_FILE, error_text(error), failed=True)

        async def work(sandbox: Sandbox) -> str:
            if suffix in MIME_OF_SUFFIX:
                return _image_note(await sandbox.read_bytes(args.path))
            if suffix in CONVERTIBLE:
                text = await _document_text(sandbox, args, suffix, converter)
                return text_page(text, args.offset, limits.reading_chars)
            text, encoding = await sandbox.read_file(args.path)
            # Not on the event loop: files may be several megabytes.
            shown = await anyio.to_thread.run_sync(_reading, text, args, limits.reading_chars)
            return shown if encoding == UTF_8 else f"{shown}\n[the file is {encoding}, not UTF-8]"

        return await run_in_sandbox(sandboxes, runtime, work)

    return StructuredTool.from_function(
        coroutine=read_file,
        name=READ_FILE,
        description=(
            "Read a file: text with line numbers (`number<tab>line`), or a range of its lines; a PDF by pages; "
            "other documents as text; an image if you can see images."
        ),
        args_schema=ReadArgs,
    )


def _image_note(content: bytes) -> str:
    """Return a line about an image for a model that cannot see images."""
    kind, size = image_type(content[:HEAD_BYTES]), image_size(content)
    pixels = f", {size[0]} x {size[1]} pixels" if size else ""
    what = (
        f"an image ({kind}{pixels}, {len(content):,} bytes)"
        if kind
        else "not an image of a known type"
    )
    return f"[The file is {what}. You cannot see images.]"


async def _document_text(
    sandbox: Sandbox, args: ReadArgs, suffix: str, converter: DocumentConverter
) -> str:
    pages = _page_range(args.pages) if suffix == ".pdf" else None
    content = await sandbox.read_bytes(args.path)
    descriptor = await anyio.to_thread.run_sync(_memory_file, content)
    try:
        return await converter.convert(descriptor, suffix, pages)
    except ConversionFailed as error:
        raise SandboxError(f"{error}: {args.path}") from error
    finally:
        os.close(descriptor)


def _page_range(pages: str | None) -> tuple[int, int]:
    """Return the first and last page to read, from 1.

    Raises:
        SandboxError: Not a range of at most MAX_PAGES pages.

    >>> _page_range(None), _page_range("3"), _page_range("2-4")
    ((1, 20), (3, 3), (2, 4))
    """
    if pages is None or not pages.strip():
        return 1, MAX_PAGES
    found = _PAGES.fullmatch(pages.replace(" ", ""))
    first, last = (int(found[1]), int(found[2] or found[1])) if found else (0, 0)
    if not 0 < first <= last < first + MAX_PAGES:
        raise SandboxError(f"pages must be like 3 or 1-5, at most {MAX_PAGES} at once")
    return first, last


def _memory_file(content: bytes) -> int:
    """Return a descriptor at the start of a file in memory. Blocking."""
    descriptor = os.memfd_create("document")
    with os.fdopen(os.dup(descriptor), "wb") as file:
        file.write(content)
    os.lseek(descriptor, 0, os.SEEK_SET)
    return descriptor


async def _ls(sandbox: Sandbox, args: ListArgs, _: ToolLimits) -> str:
    return _format(await sandbox.list_dir(args.path), EMPTY)


def _reading(whole: str, args: ReadArgs, limit: int) -> str:
    """Return the requested part of a file with line numbers. For the start of a long file, also list its headings."""
    total = whole.count("\n") + (not whole.endswith("\n"))
    text = line_range(whole, args.start_line, args.end_line)
    is_range = text is not whole
    first = max(args.start_line or 1, 1)
    if not text:
        return f"{EMPTY}\n[there are {total} lines]" if is_range else EMPTY
    start = max(args.offset, 0)
    if start and start >= len(text):
        return text_page(text, start, limit)  # a note
    end = _page_end(text, start, limit)
    number = first + text.count("\n", 0, start)
    shown = number_lines(text[start:end], number)
    while limit < len(shown) and limit > 0 and end - start > 1:  # line numbers count too
        end = _page_end(text, start, (end - start) * limit // len(shown))
        shown = number_lines(text[start:end], number)
    is_cut = end < len(text)
    if is_cut:
        shown += f"\n... [characters {start} to {end} of {len(text)}; continue with offset={end}]"
    if is_range:
        last = total if args.end_line is None else min(args.end_line, total)
        return f"{shown}\n[lines {first} to {last} of {total}]"
    if args.path.endswith(".md") and start == 0 and is_cut:
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
    return await sandbox.edit_file(args.path, args.text_edits())


async def _glob(sandbox: Sandbox, args: GlobArgs, _: ToolLimits) -> str:
    found = await sandbox.glob(
        "/" if args.path is None else args.path,
        _at_any_depth(args.pattern) if args.path is None else args.pattern,
        include_dirs=args.include_dirs,
        max_results=min(max(args.max_results, 1), MAX_GLOB_RESULTS),
    )
    return _format(found, NO_MATCHES)


async def _grep(sandbox: Sandbox, args: GrepArgs, _: ToolLimits) -> str:
    query = GrepQuery(
        pattern=args.pattern,
        glob=_at_any_depth(args.glob) if args.glob and args.path is None else args.glob,
        literal=args.literal,
        case_sensitive=args.case_sensitive,
        max_results=min(max(args.max_results, 1), MAX_GREP_RESULTS),
    )
    return _format(await sandbox.grep("/" if args.path is None else args.path, query), NO_MATCHES)


def _format(listing: FileListing, if_empty: str) -> str:
    lines = [*listing.lines]
    if listing.truncated:
        lines.append("... [there is more; narrow the path or the pattern]")
    return "\n".join(lines) or if_empty


def _page_end(text: str, start: int, limit: int) -> int:
    """Return where a part of a text ends: at a line end if that keeps at least half of it. `limit` 0 = no limit."""
    end = start + limit
    if limit <= 0 or end >= len(text):
        return len(text)
    return text.rfind("\n", start + limit // 2, end) + 1 or end


def number_lines(text: str, first: int) -> str:
    r"""Put the number and a tab in front of each line.

    >>> number_lines("a\nb\n", 9)
    '9\ta\n10\tb'
    """
    lines = text.removesuffix("\n").split("\n")
    return "\n".join(f"{number}\t{line}" for number, line in enumerate(lines, first))


def find_shown_lines(result: str, text: str) -> tuple[int, int] | None:
    r"""Return the first and last line that a result of read_file shows; None if the text no longer contains them.

    >>> find_shown_lines("2\tb\n3\tc\n[lines 2 to 3 of 3]", "a\nb\nc\nd")
    (2, 3)
    >>> find_shown_lines("2\tb\n3\tc", "a\nb\nC")
    """
    number = _NUMBER.match(result)
    if not number:
        return None
    first, shown = int(number[1]), result.split("\n")
    lines = text.split("\n")[first - 1 : first - 1 + len(shown)]
    same = takewhile(lambda one: one[1] == f"{one[0]}\t{one[2]}", zip(count(first), shown, lines))
    after = first + sum(1 for _ in same)
    others = shown[after - first :]
    is_other = after == first or (others and others[0].startswith(f"{after}\t"))
    return None if is_other else (first, after - 1)


def _at_any_depth(pattern: str) -> str:
    """Return a pattern for a search of all folders, where paths start at `/`.

    >>> _at_any_depth("src/*.py"), _at_any_depth("*.py"), _at_any_depth("/mnt/user-data/outputs/*")
    ('**/src/*.py', '*.py', '/mnt/user-data/outputs/*')
    """
    return pattern if pattern.startswith(("/", "**")) or "/" not in pattern else f"**/{pattern}"


def line_range(text: str, start: int | None, end: int | None) -> str:
    r"""Return lines `start` to `end`, counted from 1, inclusive. None = from the first line, or to the last.

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
