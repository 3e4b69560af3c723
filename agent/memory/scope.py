"""MemoryScope: the person or room, and the custom agent, that a memory document belongs to. Pure."""

import hashlib
import re
from dataclasses import dataclass

from agent.errors import MemoryInvalid

DEFAULT = "default"
"""The scope of callers without one: the API and the embedded client."""

MAX_CHARS = 512

_AGENT = re.compile(r"[a-z0-9_-]{1,64}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_UNSAFE = re.compile(r"[^a-z0-9_-]+")
_READABLE_CHARS = 48
_DIGITS = 32  # hexadecimal digits of SHA-256: 128 bits, so that two scopes never share a folder


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryScope:
    """Identifies one document. Created by `memory_scope`, which validates it.

    Attributes:
        scope: Whose memory. Any text; compared exactly.
        agent: The custom agent, in lower case; None = the lead agent.
    """

    scope: str = DEFAULT
    agent: str | None = None

    def covers(self, other: "MemoryScope") -> bool:
        """Return whether this scope includes another one. Without an agent, it includes those of all its agents."""
        return self.scope == other.scope and self.agent in (None, other.agent)

    @property
    def folder(self) -> str:
        """The name of the scope's folder: a readable part, and a hash that makes it unique.

        >>> MemoryScope().folder
        'default'
        >>> memory_scope("person:slack:T1:U1").folder
        'person-slack-t1-u1-9a97008ee12ed6a36e9835613ca1c97b'
        """
        if self.scope == DEFAULT:
            return DEFAULT
        readable = _UNSAFE.sub("-", self.scope.lower())[:_READABLE_CHARS].strip("-") or "scope"
        digest = hashlib.sha256(self.scope.encode("utf-8")).hexdigest()[:_DIGITS]
        return f"{readable}-{digest}"


def memory_scope(scope: str | None = None, agent: str | None = None) -> MemoryScope:
    """Validate and return a scope.

    Args:
        scope: None or "" = `DEFAULT`.
        agent: A custom agent's name, in any case; None or "" = the lead agent.

    Raises:
        MemoryInvalid: One of them is invalid. There is no fallback to the default scope, because that belongs to
            others.
    """
    scope = scope or DEFAULT
    if len(scope) > MAX_CHARS or not _is_text(scope):
        raise MemoryInvalid(
            f"a scope must have 1 to {MAX_CHARS} characters and no control characters"
        )
    # Lowercasing turns some non-ASCII letters into ASCII, which would be another agent's name.
    name = (agent.lower() if agent.isascii() else agent) if agent else None
    if name is not None and _AGENT.fullmatch(name) is None:
        raise MemoryInvalid("an agent name must have 1 to 64 letters, digits, `_` or `-`")
    return MemoryScope(scope=scope, agent=name)


def _is_text(scope: str) -> bool:
    try:
        scope.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return bool(scope.strip()) and _CONTROL.search(scope) is None


def is_agent_name(name: str) -> bool:
    """Return whether a custom agent can have this name."""
    return _AGENT.fullmatch(name) is not None
