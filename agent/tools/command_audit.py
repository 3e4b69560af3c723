"""Audits a bash command before it runs: blocks what no task needs, warns about what may surprise. Pure.

Not a security boundary: a command can be written in many ways. The sandbox is the boundary.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from posixpath import basename

from agent.sandbox.shell_parser import (
    ShellCommand,
    ShellScript,
    ShellWord,
    parse_shell,
    shell_arguments,
)

MAX_CHARS = 10_000
BLOCKED = "Command blocked: security violation detected. Please use a safer alternative approach."

_DEPTH = 5  # of nested substitutions and `bash -c`
_SHELLS = frozenset(("sh", "bash", "zsh", "dash", "ksh", "ash"))
_INTERPRETERS = _SHELLS | {"python", "python3", "perl", "ruby", "node", "php"}
_NETWORK = frozenset(("curl", "wget", "nc", "ncat", "netcat", "socat", "telnet", "ftp"))
_WRAPPERS = frozenset(
    ("sudo", "env", "nohup", "exec", "command", "builtin", "nice", "time", "xargs")
)
_PRINTERS = frozenset(("echo", "printf"))
_SYSTEM = r"(?:bin|boot|dev|etc|home|lib\w*|opt|proc|root|sbin|srv|sys|usr|var)"
_ROOTS = re.compile(rf"(?:/+|~|\$\{{?HOME\}}?)(?:/*\*?|(?:(?<=/){_SYSTEM}(?:/+\*?)?))")
_SECRETS = re.compile(r"(?:\S*[=@:])?/etc/(?:g?shadow-?|sudoers\S*)")
_LOADER = re.compile(r"(?:LD_PRELOAD|LD_LIBRARY_PATH|LD_AUDIT)\+?=")
_OUTSIDE = (
    (re.compile(r"/proc/[^/\s]+/environ"), "reads the environment of a process"),
    (re.compile(r"/dev/(?:tcp|udp)/"), "opens a network connection from the shell"),
)
_PROTECTED = (
    (re.compile(r"/etc(?:/.*)?"), "writes to /etc"),
    (
        re.compile(r"/(?:usr/(?:local/)?)?s?bin/[^/]*|/(?:usr/)?lib\w*/.*"),
        "overwrites system programs",
    ),
    (
        re.compile(
            r"(?:~|\$\{?HOME\}?|/root|/home/[^/]+)/\.(?:bash\w*|profile|zsh\w*|kshrc|login)"
        ),
        "changes shell startup files",
    ),
)
_FORK_BOMB = re.compile(
    r"(?<![\w:.])([\w:.]{1,64})\s*\(\s*\)\s*\{[^}]*?(?<![\w:.])\1\s*\|\s*\1\s*&"
)
_LOOP = re.compile(
    r"\bwhile\s+(?:true|:|1|\[\s*1\s*\])\s*[;\n]\s*do\b.*?(?<!&)&(?![&>])", re.DOTALL
)


class AuditDecision(StrEnum):
    """What happens to a command."""

    PASS = "pass"  # noqa: S105 - no password
    WARN = "warn"
    BLOCK = "block"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """A decision and its reason: a verb phrase about the command; "" for `pass`."""

    decision: AuditDecision
    reason: str = ""


def audit_command(command: str) -> AuditResult:
    """Audit a command.

    >>> [audit_command(c).decision.value for c in ("rm -rf /", "rm -rf build", "pip install x")]
    ['block', 'pass', 'warn']
    """
    if fault := _format_problem(command):
        return AuditResult(decision=AuditDecision.BLOCK, reason=fault)
    script = parse_shell(command)
    reason = "has an unclosed quote or bracket" if not script.is_complete else ""
    scripts = list(_nested_scripts(script, _DEPTH))
    reason = reason or _text_problem(command, script) or _first(_pipe_problems(scripts))
    commands = [one for level in scripts for one in level.commands]
    reason = reason or _first(found for one in commands for found in _problems(one))
    if reason:
        return AuditResult(decision=AuditDecision.BLOCK, reason=reason)
    warning = _first(found for one in commands for found in _warnings(one))
    decision = AuditDecision.WARN if warning else AuditDecision.PASS
    return AuditResult(decision=decision, reason=warning)


def _first(reasons: Iterator[str]) -> str:
    return next(reasons, "")


def _format_problem(command: str) -> str:
    if not command.strip():
        return "is empty"
    if len(command) > MAX_CHARS:
        return f"has more than {MAX_CHARS} characters"
    return "contains a NUL character" if "\0" in command else ""


def _text_problem(command: str, script: ShellScript) -> str:
    """Find patterns that span several commands, outside quotes and heredocs."""
    bare = command
    for one in script.commands:
        for heredoc in one.heredocs if _program(one)[0] not in _SHELLS else ():
            if heredoc:  # replacing "" would insert a line before each character
                bare = bare.replace(heredoc, "\n")
    bare = re.sub(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"", "''", bare)
    if _FORK_BOMB.search(bare):
        return "is a fork bomb"
    return "starts an endless loop in the background" if _LOOP.search(bare) else ""


def _nested_scripts(script: ShellScript, depth: int) -> Iterator[ShellScript]:
    """Yield a script and those in its substitutions, `eval`, `bash -c` and heredocs for shells."""
    yield script
    for command in script.commands if depth else ():
        name, arguments = _program(command)
        texts = [text for word in (*command.words, *command.targets) for text in word.substitutions]
        if name in _SHELLS:
            texts += [*command.heredocs, *shell_arguments(arguments)]
        if name == "eval":
            texts.append(" ".join(word.text for word in arguments))
        for text in texts:
            yield from _nested_scripts(parse_shell(text), depth - 1)


def _pipe_problems(scripts: list[ShellScript]) -> Iterator[str]:
    for script in scripts:
        for command, following in pairwise(script.commands):
            if command.separator not in ("|", "|&"):
                continue
            name, arguments = _program(following)
            if name in _SHELLS and all(
                word.text.startswith("-") and "c" not in word.text for word in arguments
            ):
                yield "pipes text into a shell"
            name, arguments = _program(command)
            if name == "base64" and {w.text for w in arguments} & {"-d", "-D", "--decode", "-di"}:
                yield "pipes decoded base64 text"


def _problems(command: ShellCommand) -> Iterator[str]:
    name, arguments = _program(command)
    words = [word.text for word in arguments]
    targets = [word.text for word in command.targets]
    if name == "rm" and _removes_root(words):
        yield "removes system folders"
    if name.startswith("mkfs"):
        yield "creates a file system"
    if name == "dd" and any(word.startswith("if=") for word in words):
        yield "copies data with dd"
    if name not in _PRINTERS and any(_SECRETS.fullmatch(word) for word in (*words, *targets)):
        yield "reads system passwords"
    used = (*_used_words(command, name), *targets)
    yield from (text for pattern, text in _OUTSIDE if any(pattern.search(word) for word in used))
    written = targets + (words if name == "tee" else [])
    written += words[-1:] if name in ("cp", "mv", "install", "ln") else []
    yield from (text for pattern, text in _PROTECTED if any(map(pattern.fullmatch, written)))
    if _loads_libraries(command):
        yield "loads libraries before those of the system"
    if _runs_output(command, name):
        yield "runs the output of another program"


def _loads_libraries(command: ShellCommand) -> bool:
    words = [word.text for word in command.words]
    exported = (
        words if words and basename(words[0]) in ("export", "declare", "typeset", "env") else []
    )
    return any(map(_LOADER.match, (*command.assignments, *exported)))


def _warnings(command: ShellCommand) -> Iterator[str]:
    name, arguments = _program(command)
    words = [word.text for word in arguments]
    if command.words and basename(command.words[0].text) in ("sudo", "su"):
        yield "asks for privileges that the sandbox does not have"
    if name == "chmod" and any(re.fullmatch(r"0?777|a\+rwx", one) for one in words):
        yield "makes files writable for everyone"
    if name in ("pip", "pip3", "apt", "apt-get") and "install" in words:
        yield "installs packages, which needs a network and does not persist"
    if any(one.startswith("PATH=") for one in (*command.assignments, *words[:1])):
        yield "changes PATH, so different programs may run"


def _program(command: ShellCommand) -> tuple[str, list[ShellWord]]:
    """Return the program's base name, behind `sudo`, `env` and the like, and its arguments."""
    words = command.words
    while words and basename(words[0].text) in _WRAPPERS:
        words = words[1:]
        while words and (words[0].text.startswith("-") or "=" in words[0].text):
            words = words[1:]
    words = words or command.words
    return (basename(words[0].text), words[1:]) if words else ("", [])


def _removes_root(words: list[str]) -> bool:
    flags = "".join(word for word in words if word.startswith("-"))
    recursive = "r" in flags or "R" in flags
    return "--no-preserve-root" in words or (
        recursive and any(_ROOTS.fullmatch(word) for word in words)
    )


def _used_words(command: ShellCommand, name: str) -> list[str]:
    """Return the words that are neither printed nor searched for."""
    if name in _PRINTERS:
        return []
    return [w.text for w in command.words if not (name in ("grep", "rg") and w.is_quoted)]


def _runs_output(command: ShellCommand, name: str) -> bool:
    """Return whether the output of a network program or interpreter is run as a command."""
    run = command.words[:1]
    takes_text = any(re.fullmatch(r"-\w*c", word.text) for word in command.words)
    if name in ("eval", "source", ".") or (name in _SHELLS and takes_text):
        run = command.words
    return any(
        _program(one)[0] in _NETWORK | _INTERPRETERS
        for word in run
        for text in word.substitutions
        for one in parse_shell(text).commands
    )
