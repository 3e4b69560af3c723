"""A look at where a command for this machine's own shell leads: only what names a path outside is refused. Pure.

This is no boundary: who allows commands on this machine allows all that its user may do. It keeps a model that means
no harm from leaving its folders by mistake.
"""

import posixpath
import re

from agent.errors import PathNotAllowed
from agent.paths import USER_DATA, MountTable, relative_parts
from agent.sandbox.shell_parser import Command, Word, parse

_SYSTEM = ("/bin", "/sbin", "/usr", "/lib", "/lib64", "/opt", "/tmp", "/etc/ssl/certs")  # noqa: S108 - only named here
_FILES = ("/dev/null", "/dev/zero", "/dev/stdin", "/dev/stdout", "/dev/stderr", "/dev/urandom")
_DESCRIPTOR = re.compile(r"/dev/fd/\d+")
_URL = re.compile(r"https?://", re.IGNORECASE)
_FILE_URL = re.compile(r"file://", re.IGNORECASE)
_PATH = re.compile(r"(?:^|[=:,@])(/[^=:,]*)")
_MOVES = ("cd", "pushd")


def check_host_paths(command: str, table: MountTable) -> None:
    """Check the paths that a command names.

    Raises:
        PathNotAllowed: One leads outside, or cannot be known before.
    """
    for one in parse(command).commands:
        _check_move(one)
        for word in (*one.words, *one.targets):
            _check_word(word, table)
            for text in word.inner:
                check_host_paths(text, table)
        for flag, given in zip(one.called, one.called[1:], strict=False):
            if re.fullmatch(r"-\w*c", flag.text):
                check_host_paths(given.text, table)


def _check_move(command: Command) -> None:
    called = command.called
    if not called or called[0].text not in _MOVES:
        return
    goals = [word for word in called[1:] if not word.text.startswith("-") or word.text == "-"]
    if not goals:
        raise PathNotAllowed("cd needs a folder: the workspace is where every command begins")
    goal = goals[0]
    if goal.expands or goal.text in ("-", "/") or goal.text.startswith("~"):
        raise PathNotAllowed(f"cd only to a folder that is named as it is: {goal.text}")


def _check_word(word: Word, table: MountTable) -> None:
    text = word.text
    if _FILE_URL.search(text):
        raise PathNotAllowed("file:// addresses are not allowed: use paths")
    if _URL.match(text):
        return
    if not word.is_quoted and ".." in re.split(r"[/\\=]", text):
        raise PathNotAllowed(f"path traversal is not allowed: {text}")
    if word.is_quoted and " " in text:
        return  # text, not a path
    for path in _PATH.findall(text):
        _check_path(path, table)


def _check_path(path: str, table: MountTable) -> None:
    normal = posixpath.normpath(path)
    normal = f"/{normal.lstrip('/')}"
    roots = [USER_DATA, *(mapping.virtual for mapping in table.mounts)]
    if any(relative_parts(normal, root) is not None for root in (*roots, *_SYSTEM)):
        return
    if normal in _FILES or _DESCRIPTOR.fullmatch(normal):
        return
    shown = ", ".join(sorted(mapping.virtual for mapping in table.mounts))
    raise PathNotAllowed(f"only paths below these folders can be used: {shown} (not {path})")
