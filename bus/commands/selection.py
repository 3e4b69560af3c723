"""/model, /agent and /skills: choose the model and agent of a conversation."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bus.commands.choices import Choices
from bus.commands.context import CommandContext
from bus.commands.gateway import GatewayCommands
from bus.context import BusContext
from bus.locales import Messages
from bus.messages import chat_of
from store.conversations import ConversationKey

RESET_WORDS = frozenset({"default", "none", "reset", "off"})
"""Arguments that reset to the default."""

MAX_LISTED = 50


@dataclass(frozen=True, slots=True)
class _Kind:
    """A kind of choice. `name` is the command's name and the settings' field."""

    name: str

    def word(self, texts: Messages) -> str:
        """Return its name in the reader's language."""
        return texts.word_model if self is _MODEL else texts.word_agent


_MODEL = _Kind("model")
_AGENT = _Kind("agent")


class SelectionCommands:
    """Commands that apply to their conversation. A command that starts a new topic applies to the whole chat."""

    def __init__(self, bus: BusContext, gateway: GatewayCommands) -> None:
        self._settings = bus.settings
        self._conversations = bus.stores.conversations
        self._gateway = gateway
        self._choices = Choices(bus, gateway)

    async def model(self, context: CommandContext) -> str:
        """Show or choose the model."""
        found = await self._choices.models(context.row.key.channel)
        if found is None:
            return context.texts.models_failed
        return await self._choose(context, _MODEL, found)

    async def agent(self, context: CommandContext) -> str:
        """Show or choose the custom agent or graph."""
        found = await self._choices.agents(context.inbound)
        if found is None:
            return context.texts.agents_failed
        return await self._choose(context, _AGENT, found)

    async def skills(self, context: CommandContext) -> str:
        """List the enabled skills."""
        listed = await self._gateway.entries("skills", "skills")
        if listed is None:
            return context.texts.skills_failed
        enabled = [skill for skill in listed if skill.get("enabled", True)]
        if not enabled:
            return context.texts.skills_none
        return "\n".join([context.texts.skills_head, *map(_line, enabled[:MAX_LISTED])])

    async def _choose(self, context: CommandContext, kind: _Kind, known: Sequence[str]) -> str:
        wanted, texts = context.argument.strip(), context.texts
        if not wanted:
            chosen = getattr(self._settings.resolve(context.row.key), kind.name)
            name = chosen or await self._default(context, kind, texts.word_default)
            head = texts.choice_now.format(kind=kind.word(texts), name=name)
            return _listed(head, kind, known, texts)
        reset = wanted.lower() in RESET_WORDS and wanted not in known
        name = None if reset else _matching(wanted, known)
        if not reset and name is None:
            head = texts.choice_unknown.format(kind=kind.word(texts), wanted=wanted[:64])
            return _listed(head, kind, known, texts)
        key = await self._target(context)
        await self._settings.update(key, **{kind.name: name})
        is_own = key == context.row.key and key.topic
        return texts.choice_done.format(
            kind=kind.word(texts),
            where=texts.word_conversation if is_own else texts.word_chat,
            name=name or await self._default(context, kind, texts.word_the_default),
        )

    async def _default(self, context: CommandContext, kind: _Kind, word: str) -> str:
        """Return the word for the default, with the name of the default model, agent or graph."""
        if kind is _AGENT:
            name = self._choices.default_agent(context.inbound)
        else:
            found = await self._choices.model(context.inbound)
            name = "" if found is None else found.value
        return f"{word} ({name})" if name else word

    async def _target(self, context: CommandContext) -> ConversationKey:
        """Return the key of the setting: the chat's if the command starts a new topic."""
        found = await self._conversations.find(context.row.key)
        if found is not None and found.thread_id is not None:
            return context.row.key
        return chat_of(context.row.key)


def _matching(wanted: str, known: Sequence[str]) -> str | None:
    if wanted in known:
        return wanted
    return next((name for name in known if name.lower() == wanted.lower()), None)


def _listed(head: str, kind: _Kind, known: Sequence[str], texts: Messages) -> str:
    word = kind.word(texts)
    if not known:
        return f"{head}\n{texts.choice_none.format(kind=word)}"
    names = [f"• {name}" for name in known[:MAX_LISTED]]
    hint = texts.choice_hint.format(command=kind.name)
    return "\n".join([head, texts.choice_head.format(kind=word), *names, hint])


def _line(skill: dict[str, Any]) -> str:
    description = " ".join(str(skill.get("description") or "").split())
    short = description if len(description) <= 120 else f"{description[:119]}…"  # noqa: PLR2004 - one line
    return f"• {skill.get('name')}" + (f" — {short}" if short else "")
