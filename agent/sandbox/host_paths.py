"""Checks the paths in a command for this machine's own shell. Pure.

This is not a security boundary: an operator who allows host bash allows everything that the service's user may do. The
    check keeps a well-meaning model from leaving its folders by mistake.
"""

import posixpath
import re

from agent.errors import PathNotAllowed
from agent.paths import USER_DATA, MountTable, relative_parts
from agent.sandbox.shell_parser import ShellCommand, ShellWord, parse_shell, shell_arguments

_SYSTEM = ("/bin", "/sbin", "/usr", "/lib", "/lib64", "/opt", "/tmp", "/etc/ssl/certs")  # noqa: S108 - names only
_DEVICES = re.compile(r"/dev/(?:null|zero|stdin|stdout|stderr|urandom|fd/\d+)")
_PATH = re.compile(r"(?:^|[=:,@])(/[^=:,]*)")


def check_host_paths(command: str, table: MountTable) -> None:
    """Check the paths that a command names.

    Raises:
        PathNotAllowed: A path leads outside the mounts, or cannot be known before the command runs.
    """
    for one in parse_shell(command):
        _check_cd(one)
        nested = shell_arguments(one.words)
        for word in (*one.words, *one.targets):
            _check_word(word, table)
            nested += word.substitutions
        for text in nested:
            check_host_paths(text, table)


def _check_cd(command: ShellCommand) -> None:
    if not command.words or command.words[0].text not in ("cd", "pushd"):
        return
    targets = [w for w in command.words[1:] if not w.text.startswith("-") or w.text == "-"]
    if not targets:
        raise PathNotAllowed("cd needs a folder; commands start in the workspace")
    target = targets[0].text
    if "$" in target or targets[0].substitutions or target in ("-", "/") or target[0:1] == "~":
        raise PathNotAllowed(f"cd takes only a literal folder name, not {target}")


def _check_word(word: ShellWord, table: MountTable) -> None:
    text = word.text
    if "file://" in text.lower():
        raise PathNotAllowed("file:// URLs are not allowed: use paths")
    if re.match(r"https?://", text, re.IGNORECASE):
        return
    if not word.is_quoted and ".." in re.split(r"[/\\=]", text):
        raise PathNotAllowed(f"path traversal is not allowed: {text}")
    if word.is_quoted and " " in text:
        return  # prose, not a path
    for path in _PATH.findall(text):
        _check_path(path, table)


def _check_path(path: str, table: MountTable) -> None:
    normal = "/" + posixpath.normpath(path).lstrip("/")
    mounts = sorted(mount.virtual for mount in table.mounts)
    if _DEVICES.fullmatch(normal) or any(
        relative_parts(normal, root) is not None for root in (USER_DATA, *mounts, *_SYSTEM)
    ):
        return
    raise PathNotAllowed(
        f"only paths below these folders can be used: {', '.join(mounts)} (not {path})"
    )
