"""A look at a command before it runs: what nobody should want is blocked, what may surprise is told. Pure.

This is no boundary: a command can say anything in many ways. The boundary is the sandbox.
"""

import posixpath
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from agent.sandbox.shell_parser import Command, Script, Word, parse

MAX_CHARS = 10_000
BLOCKED = "Command blocked: security violation detected. Please use a safer alternative approach."

_DEPTH = 5  # of substitutions and `bash -c` in each other
_SHELLS = frozenset(("sh", "bash", "zsh", "dash", "ksh", "ash"))
_INTERPRETERS = _SHELLS | {"python", "python3", "perl", "ruby", "node", "php"}
_NETWORK = frozenset(("curl", "wget", "nc", "ncat", "netcat", "socat", "telnet", "ftp"))
_BEFORE = frozenset(("sudo", "env", "nohup", "exec", "command", "builtin", "nice", "time", "xargs"))
_SYSTEM = r"(?:bin|boot|dev|etc|home|lib\w*|opt|proc|root|sbin|srv|sys|usr|var)"
_ROOTS = re.compile(rf"(?:/+|~|\$\{{?HOME\}}?)(?:/*\*?|(?:(?<=/){_SYSTEM}(?:/+\*?)?))")
_PROGRAMS = re.compile(r"/(?:usr/(?:local/)?)?s?bin/[^/]*|/(?:usr/)?lib\w*/.*")
_RC = re.compile(r"(?:~|\$\{?HOME\}?|/root|/home/[^/]+)/\.(?:bash\w*|profile|zsh\w*|kshrc|login)")
_SECRETS = re.compile(r"(?:\S*[=@:])?/etc/(?:g?shadow-?|sudoers\S*)")
_ENVIRON = re.compile(r"/proc/[^/\s]+/environ")
_SOCKET = re.compile(r"/dev/(?:tcp|udp)/")
_LOADER = re.compile(r"(?:LD_PRELOAD|LD_LIBRARY_PATH|LD_AUDIT)\+?=")
_BOMB = re.compile(r"(?<![\w:.])([\w:.]{1,64})\s*\(\s*\)\s*\{[^}]*?(?<![\w:.])\1\s*\|\s*\1\s*&")
_LOOP = re.compile(
    r"\bwhile\s+(?:true|:|1|\[\s*1\s*\])\s*[;\n]\s*do\b.*?(?<!&)&(?![&>])", re.DOTALL
)


class AuditDecision(StrEnum):
    """What becomes of a command."""

    PASS = "pass"  # noqa: S105 - no password
    WARN = "warn"
    BLOCK = "block"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditResult:
    """A judgement with its reason, a few words; "" for `pass`."""

    decision: AuditDecision
    reason: str = ""


def audit_command(command: str) -> AuditResult:
    """Judge a command.

    >>> audit_command("rm -rf /").kind, audit_command("rm -rf build").kind, audit_command("pip install x").kind
    (<AuditDecision.BLOCK: 'block'>, <AuditDecision.PASS: 'pass'>, <AuditDecision.WARN: 'warn'>)
    """
    script = parse(command)
    reason = _form_fault(command, script)
    if not reason:
        reason = _text_fault(command, script) or next(_faults(script), "")
    if reason:
        return AuditResult(decision=AuditDecision.BLOCK, reason=reason)
    everything = (command for level in _levels(script, _DEPTH) for command in level.commands)
    warning = next((said for one in everything if (said := _surprise(one))), "")
    return AuditResult(
        decision=AuditDecision.WARN if warning else AuditDecision.PASS, reason=warning
    )


def _form_fault(command: str, script: Script) -> str:
    if not command.strip():
        return "it is empty"
    if len(command) > MAX_CHARS:
        return f"it has more than {MAX_CHARS} characters"
    if "\0" in command:
        return "it holds a NUL character"
    return "" if script.is_whole else "a quote or bracket is not closed"


def _text_fault(command: str, script: Script) -> str:
    """Find what spans several commands."""
    bare = command
    for one in script.commands:  # text that is only data
        for heredoc in one.heredocs if _name(one) not in _SHELLS else ():
            bare = bare.replace(heredoc, "\n")
    bare = re.sub(r"'[^']*'|\"(?:[^\"\\]|\\.)*\"", "''", bare)
    if _BOMB.search(bare):
        return "a fork bomb"
    return "an endless loop in the background" if _LOOP.search(bare) else ""


def _levels(script: Script, depth: int) -> Iterator[Script]:
    """Yield a script, and those in its substitutions and in `bash -c`."""
    yield script
    if depth:
        for command in script.commands:
            for text in _inner_texts(command):
                yield from _levels(parse(text), depth - 1)


def _inner_texts(command: Command) -> Iterator[str]:
    for word in (*command.words, *command.targets):
        yield from word.inner
    name, arguments = _name(command), _arguments(command)
    if name in _SHELLS:
        yield from command.heredocs
        for flag, given in pairwise(arguments):
            if re.fullmatch(r"-\w*c", flag.text):
                yield given.text
    if name == "eval":
        yield " ".join(word.text for word in arguments)


def _faults(script: Script) -> Iterator[str]:
    for level in _levels(script, _DEPTH):
        for command in level.commands:
            yield from (said for rule in _RULES if (said := rule(command)))
        for command, following in pairwise(level.commands):
            if command.ended_by in ("|", "|&"):
                if _reads_script(following):
                    yield "a pipe into a shell"
                if _decodes(command):
                    yield "decoded text in a pipe"


def _removes_roots(command: Command) -> str:
    if _name(command) != "rm":
        return ""
    words = [word.text for word in _arguments(command)]
    flags = "".join(word for word in words if word.startswith("-"))
    is_deep = "r" in flags or "R" in flags
    if "--no-preserve-root" in words or (is_deep and any(_ROOTS.fullmatch(w) for w in words)):
        return "removing system folders"
    return ""


def _writes_disks(command: Command) -> str:
    name = _name(command)
    if name.startswith("mkfs"):
        return "making a file system"
    if name == "dd" and any(word.text.startswith("if=") for word in _arguments(command)):
        return "copying with dd"
    return ""


def _reads_secrets(command: Command) -> str:
    if _name(command) in ("echo", "printf"):
        return ""
    for word in (*_arguments(command), *command.targets):
        if _SECRETS.fullmatch(word.text):
            return "the system's passwords"
    return ""


def _looks_outside(command: Command) -> str:
    for word in (*command.words, *command.targets):
        if _ENVIRON.search(word.text) and not _is_said(command, word):
            return "variables of other processes"
        if _SOCKET.search(word.text) and not _is_said(command, word):
            return "a network connection by the shell"
    return ""


def _loads_code(command: Command) -> str:
    named = command.assignments
    first = command.called[0].text if command.called else ""
    if posixpath.basename(first) in ("export", "declare", "typeset", "env"):
        named = [*named, *(word.text for word in command.called)]
    return "libraries put before the system's" if any(_LOADER.match(one) for one in named) else ""


def _overwrites(command: Command) -> str:
    name, words = _name(command), [word.text for word in _arguments(command)]
    written = [word.text for word in command.targets]
    if name == "tee":
        written += words
    elif name in ("cp", "mv", "install", "ln"):
        written += words[-1:]
    for path in written:
        if path.startswith("/etc/") or path == "/etc":
            return "writing to /etc"
        if _PROGRAMS.fullmatch(path):
            return "overwriting system programs"
        if _RC.fullmatch(path):
            return "changing a shell's start files"
    return ""


def _runs_the_unknown(command: Command) -> str:
    """Find substitutions of network programs or interpreters whose output is run as a command."""
    called = command.called
    name = _name(command)
    runs = [*called[:1]]
    takes_text = any(re.fullmatch(r"-\w*c", word.text) for word in called)
    if name in ("eval", "source", ".") or (name in _SHELLS and takes_text):
        runs += called[1:]
    for word in runs:
        for text in word.inner:
            if any(_name(one) in _NETWORK | _INTERPRETERS for one in parse(text).commands):
                return "running what another program brings"
    return ""


_RULES: tuple[Callable[[Command], str], ...] = (
    _removes_roots,
    _writes_disks,
    _reads_secrets,
    _looks_outside,
    _loads_code,
    _overwrites,
    _runs_the_unknown,
)


def _surprise(command: Command) -> str:
    words = [word.text for word in command.called]
    name, arguments = _name(command), [word.text for word in _arguments(command)]
    if words and posixpath.basename(words[0]) in ("sudo", "su"):
        return "there are no other rights to get here"
    if name == "chmod" and any(re.fullmatch(r"0?777|a\+rwx", one) for one in arguments):
        return "everybody may now change that"
    if name in ("pip", "pip3", "apt", "apt-get") and "install" in arguments:
        return "installing needs a network, and does not last"
    if any(one.startswith("PATH=") for one in (*command.assignments, *arguments[:1])):
        return "other programs may run now than usual"
    return ""


def _name(command: Command) -> str:
    """Return the program's name without its folder, behind `sudo`, `env` and the like."""
    called = _program(command)
    return posixpath.basename(called[0].text) if called else ""


def _arguments(command: Command) -> list[Word]:
    return _program(command)[1:]


def _program(command: Command) -> list[Word]:
    called = command.called
    while called and posixpath.basename(called[0].text) in _BEFORE:
        called = called[1:]
        while called and (called[0].text.startswith("-") or "=" in called[0].text):
            called = called[1:]
    return called or command.called


def _reads_script(command: Command) -> bool:
    """Say whether a shell takes its script from the pipe: it is given none by name."""
    if _name(command) not in _SHELLS:
        return False
    return all(word.text.startswith("-") and "c" not in word.text for word in _arguments(command))


def _decodes(command: Command) -> bool:
    flags = {word.text for word in _arguments(command)}
    return _name(command) == "base64" and bool(flags & {"-d", "-D", "--decode", "-di"})


def _is_said(command: Command, word: Word) -> bool:
    """Say whether a word is only printed or searched for."""
    if _name(command) in ("echo", "printf"):
        return not any(word is target for target in command.targets)
    return _name(command) in ("grep", "rg") and word.is_quoted
