"""Walks folders and searches files. Standard library only: also runs as a child process with a deadline.

A regular expression from the model can run forever and hold the interpreter lock; a child process can be killed. The
folder is passed as an inherited descriptor, so it cannot be swapped, and no symlink below it is followed.
"""

import codecs
import contextlib
import fnmatch
import json
import os
import re
import resource
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

IGNORED = frozenset(
    (
        *(".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", "venv", "dist", "build"),
        *(".cache", ".mypy_cache", ".pytest_cache", ".ruff_cache", ".tox", ".idea", ".DS_Store"),
        *(".tool-results", ".conversation"),  # texts omitted from requests: read by path only
    )
)
"""Names that listings and searches skip."""

MAX_VISITED = 50_000  # maximum entries of one walk, to bound its time on huge trees
MAX_DEPTH = 40  # maximum nesting; each level holds one descriptor open
MAX_FILE_BYTES = 50_000_000  # larger files are not searched
SHOWN_LINE_CHARS = 1_000  # characters of a matching line around each match
MAX_MEMORY_BYTES = 512_000_000  # of the child process
MAX_CPU_S = 30  # CPU time of the child process, in case it is not killed at its deadline


class WalkEntry(NamedTuple):
    """An entry of a walk: its path below the start, and how to open it (`name` in `dir_fd`)."""

    path: str
    is_dir: bool
    is_file: bool
    dir_fd: int
    name: str


def is_ignored(name: str) -> bool:
    """Return whether listings skip this name.

    >>> is_ignored("node_modules"), is_ignored("a.pyc"), is_ignored("a.py")
    (True, True, False)
    """
    return name in IGNORED or name.endswith((".pyc", ".pyo"))


def printable_name(name: str) -> str:
    r"""Return a name as one line of valid text: control characters and invalid bytes become `?`.

    >>> printable_name("a\nb"), printable_name("caf\udce9"), printable_name("café")
    ('a?b', 'caf?', 'café')
    """
    return "".join(char if char.isprintable() else "?" for char in name)


def walk(folder_fd: int, *, max_depth: int = MAX_DEPTH, prefix: str = "") -> Iterator[WalkEntry]:
    """Yield the entries below an open folder, sorted, each folder before its content. Does not follow symlinks.

    Args:
        folder_fd: The folder; the caller closes it.
        max_depth: 1 = direct entries only.
        prefix: The folder's path below the start, with a trailing slash, or "".
    """
    with os.scandir(folder_fd) as entries:
        # DirEntry knows these from the listing. A symlink counts as neither a file nor a folder.
        children = sorted(
            (entry.name, entry.is_dir(follow_symlinks=False), entry.is_file(follow_symlinks=False))
            for entry in entries
            if not is_ignored(entry.name)
        )
    for name, is_dir, is_file in children:
        path = prefix + printable_name(name)
        yield WalkEntry(path, is_dir, is_file, folder_fd, name)
        if is_dir and max_depth > 1:
            yield from _walk_below(folder_fd, name, max_depth - 1, f"{path}/")


def _walk_below(parent_fd: int, name: str, max_depth: int, prefix: str) -> Iterator[WalkEntry]:
    try:
        folder_fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent_fd)
    except OSError:
        return  # removed, replaced by a symlink, or not readable
    try:
        yield from walk(folder_fd, max_depth=max_depth, prefix=prefix)
    finally:
        os.close(folder_fd)


def glob_matcher(pattern: str) -> Callable[[str], bool]:
    """Return a predicate for paths below a folder. `*` stays within a name, `**` spans folders.

    A pattern without a slash matches at every depth.

    >>> match = glob_matcher("src/**/*.py")
    >>> match("src/a.py"), match("src/x/y/a.py"), match("a.py"), match("src/a.txt")
    (True, True, False, False)
    >>> glob_matcher("*.md")("docs/deep/readme.md")
    True
    """
    segments = [segment for segment in pattern.strip("/").split("/") if segment]
    if len(segments) == 1 and segments[0] != "**":
        segments = ["**", *segments]
    tests = [None if s == "**" else re.compile(fnmatch.translate(s)) for s in segments]

    def matches(path: str) -> bool:
        # `reached` holds how many pattern segments the path so far can match: linear, no backtracking.
        reached = _skip({0}, tests)
        for name in path.split("/"):
            stepped = {at for at in reached if at < len(tests) and tests[at] is None}
            stepped |= {
                at + 1
                for at in reached
                if at < len(tests) and (test := tests[at]) is not None and test.match(name)
            }
            reached = _skip(stepped, tests)
        return len(tests) in reached

    return matches


def _skip(reached: set[int], tests: list[re.Pattern[str] | None]) -> set[int]:
    """Add the positions after each `**`, because it may match no folder at all."""
    result = set(reached)
    for at in range(len(tests)):
        if at in result and tests[at] is None:
            result.add(at + 1)
    return result


def find_files(
    folder_fd: int,
    pattern: str,
    *,
    include_dirs: bool = False,
    max_results: int,
    prefix: str = "",
) -> tuple[list[str], bool]:
    """Return the paths that match a glob pattern, and whether there are more.

    Args:
        folder_fd: The folder.
        pattern: See `glob_matcher`.
        include_dirs: Whether folders count.
        max_results: Maximum number of paths.
        prefix: The folder's path below the start of the pattern, with a trailing slash.
    """
    matches = glob_matcher(pattern)
    found: list[str] = []
    for visited, entry in enumerate(walk(folder_fd, prefix=prefix)):
        if visited >= MAX_VISITED:
            return found, True
        if not (entry.is_file or (include_dirs and entry.is_dir)) or not matches(entry.path):
            continue
        if len(found) >= max_results:
            return found, True
        found.append(entry.path + ("/" if entry.is_dir else ""))
    return found, False


def search_text(descriptors: Sequence[int], query: dict[str, Any]) -> dict[str, object]:
    """Search folders, or one file, for a pattern.

    Args:
        descriptors: The open folders, or the regular file.
        query: `pattern`, `glob`, `literal`, `case_sensitive`, `max_results`, and `prefixes`: the path of each
            folder below the requested path.

    Returns:
        `{"lines": [[path, number, text], ...], "truncated": bool}` (path "" for the file itself), or `{"error": text}`.
    """
    text = str(query["pattern"])
    flags = re.NOFLAG if query["case_sensitive"] else re.IGNORECASE
    try:
        pattern = re.compile(re.escape(text) if query["literal"] else text, flags)
    except (re.error, RecursionError, OverflowError) as error:
        return {"error": f"the pattern is not a valid regular expression: {error}"}
    limit = int(str(query["max_results"]))
    found: list[tuple[str, int, str]] = []
    is_cut = False
    for fd, prefix in zip(descriptors, query["prefixes"], strict=True):
        for path, file_fd in _files(fd, query["glob"], f"{prefix}/" if prefix else ""):
            if file_fd is None:  # too many files
                is_cut = True
                break
            for number, line in _matching_lines(file_fd, pattern):
                if len(found) >= limit:
                    return {"lines": found, "truncated": True}
                found.append((path, number, line))
    return {"lines": found, "truncated": is_cut}


def _files(fd: int, glob: object, prefix: str) -> Iterator[tuple[str, int | None]]:
    """Yield each file to search, opened, and close it before the next one. None = more files exist."""
    if stat.S_ISREG(os.fstat(fd).st_mode):
        yield "", fd
        return
    matches = glob_matcher(glob) if isinstance(glob, str) and glob else None
    for visited, entry in enumerate(walk(fd, prefix=prefix)):
        if visited >= MAX_VISITED:
            yield "", None
            return
        if not entry.is_file or (matches is not None and not matches(entry.path)):
            continue
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
            file_fd = os.open(entry.name, flags, dir_fd=entry.dir_fd)
        except OSError:
            continue
        try:
            yield entry.path, file_fd
        finally:
            os.close(file_fd)


def _matching_lines(fd: int, pattern: re.Pattern[str]) -> Iterator[tuple[int, str]]:
    """Yield the number and text of matching lines. For a long line, yield the text around each match."""
    status = os.fstat(fd)
    if not stat.S_ISREG(status.st_mode):
        return
    if status.st_size > MAX_FILE_BYTES:
        yield 0, f"[not searched: the file is larger than {MAX_FILE_BYTES // 1_000_000} MB]"
        return
    encoding = _encoding(os.pread(fd, 8192, 0))
    if encoding is None:
        return
    with os.fdopen(os.dup(fd), encoding=encoding, errors="replace", newline="\n") as file:
        for number, line in enumerate(file, start=1):
            for shown in _matches(line.rstrip("\r\n"), pattern):
                yield number, shown


def _encoding(head: bytes) -> str | None:
    r"""Return the encoding of a file, based on its first bytes; None = the file is binary.

    >>> _encoding("a".encode("utf-16")), _encoding("张三".encode("gb18030")[:-1]), _encoding(b"caf\xe9\n")
    ('utf-16', 'gb18030', 'utf-8')
    """
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if b"\0" in head:
        return None
    for encoding in ("utf-8", "gb18030"):
        with contextlib.suppress(UnicodeDecodeError):
            codecs.getincrementaldecoder(encoding)().decode(head)
            return encoding
    return "utf-8"


def _matches(line: str, pattern: re.Pattern[str]) -> Iterator[str]:
    """Yield a matching line, or the parts of a long one around its matches.

    >>> [len(part) for part in _matches("x" * 5000 + "needle" + "x" * 5000 + "needle", re.compile("needle"))]
    [1008, 510]
    """
    end = 0
    for found in pattern.finditer(line):
        if len(line) <= SHOWN_LINE_CHARS:
            yield line
            return
        if found.end() <= end:
            continue  # already in the previous part
        start = max(0, found.start() - SHOWN_LINE_CHARS // 2)
        end = max(start + SHOWN_LINE_CHARS, found.start() + SHOWN_LINE_CHARS // 2)
        part = line[start:end]
        yield f"{'... ' if start else ''}{part}{' ...' if end < len(line) else ''}"


def main() -> None:
    """Search the descriptors given as arguments. The query is JSON on stdin, the result JSON on stdout."""
    limits = ((resource.RLIMIT_AS, MAX_MEMORY_BYTES), (resource.RLIMIT_CPU, MAX_CPU_S))
    for kind, most in limits:
        with contextlib.suppress(OSError, ValueError):  # some systems do not support every limit
            resource.setrlimit(kind, (most, most))
    sys.stdout.write(
        json.dumps(search_text([int(one) for one in sys.argv[1:]], json.load(sys.stdin)))
    )


if __name__ == "__main__":
    main()
