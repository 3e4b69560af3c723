"""/model, /agent and /skills: what answers in a conversation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bus.choices import Choices, chat_of
from bus.commands.call import Call
from bus.commands.lookup import Lookups
from store.conversations import ConversationKey, Conversations

RESET = frozenset({"default", "none", "reset", "off"})
"""Words that undo a choice."""

MAX_LISTED = 50


@dataclass(frozen=True, slots=True)
class _Kind:
    """What can be chosen: its word for people, and the choice's field."""

    word: str
    field: str


_MODEL = _Kind("model", "model")
_AGENT = _Kind("agent", "agent")


class Choosing:
    """Commands that choose for the conversation they are sent in; before its first message, for its chat."""

    def __init__(self, *, choices: Choices, conversations: Conversations, lookups: Lookups) -> None:
        self._choices = choices
        self._conversations = conversations
        self._lookups = lookups

    async def model(self, call: Call) -> str:
        """Show or choose the model."""
        found = await self._lookups.names("models", "models")
        if found is None:
            return "Failed to fetch models information."
        return await self._choose(call, _MODEL, found)

    async def agent(self, call: Call) -> str:
        """Show or choose the custom agent."""
        found = await self._lookups.names("agents", "agents")
        if found is None:
            return "Failed to fetch agents information."
        return await self._choose(call, _AGENT, found)

    async def skills(self, call: Call) -> str:  # noqa: ARG002 - every handler gets its call
        """List the skills that the agent may use."""
        listed = await self._lookups.entries("skills", "skills")
        if listed is None:
            return "Failed to fetch skills information."
        enabled = [skill for skill in listed if skill.get("enabled", True)]
        if not enabled:
            return "No skills enabled."
        return "\n".join(["Enabled skills:", *map(_line, enabled[:MAX_LISTED])])

    async def _choose(self, call: Call, kind: _Kind, known: Sequence[str]) -> str:
        wanted = call.argument.strip()
        if not wanted:
            return self._shown(call, kind, known)
        reset = wanted.lower() in RESET and wanted not in known
        name = None if reset else _matching(wanted, known)
        if not reset and name is None:
            return _listed(f"There is no {kind.word} “{wanted[:64]}”.", kind, known)
        key = await self._target(call)
        await self._choices.set(key, **{kind.field: name})
        where = "conversation" if key == call.row.key and key.topic else "chat"
        return f"The {kind.word} of this {where} is now {name or 'the default'}."

    def _shown(self, call: Call, kind: _Kind, known: Sequence[str]) -> str:
        chosen = getattr(self._choices.of(call.row.key), kind.field)
        return _listed(f"Current {kind.word}: {chosen or 'default'}", kind, known)

    async def _target(self, call: Call) -> ConversationKey:
        """Return whose choice it is: a message that opens a new topic speaks for the whole chat."""
        found = await self._conversations.find(call.row.key)
        if found is not None and found.thread_id is not None:
            return call.row.key
        return chat_of(call.row.key)


def _matching(wanted: str, known: Sequence[str]) -> str | None:
    if wanted in known:
        return wanted
    return next((name for name in known if name.lower() == wanted.lower()), None)


def _listed(head: str, kind: _Kind, known: Sequence[str]) -> str:
    if not known:
        return f"{head}\nNo {kind.word}s configured."
    names = [f"• {name}" for name in known[:MAX_LISTED]]
    return "\n".join([head, f"Available {kind.word}s:", *names, f"Choose with /{kind.word} NAME."])


def _line(skill: dict[str, Any]) -> str:
    description = " ".join(str(skill.get("description") or "").split())
    short = description if len(description) <= 120 else f"{description[:119]}…"  # noqa: PLR2004 - one line
    return f"• {skill.get('name')}" + (f" — {short}" if short else "")
