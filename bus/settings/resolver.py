"""Settings that people chose by command: the model and agent of a conversation or its chat, and a language.

With `Setting`, all resolvers of this package say where a value comes from.

A channel may limit the choice of models and agents.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import anyio

from bus.config import ChannelPolicy
from bus.messages import ConversationKey, chat_of
from store.conversation_settings import ConversationSettings, ConversationSettingsStore

SettingSource = Literal[
    "default",
    "service",
    "channel",
    "room",
    "person",
    "command",
    "agent",
    "platform",
    "message",
    "host",
]
"""Where a value comes from: built in, a level of the configuration, a command, or automatic detection."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A value in force.

    Attributes:
        key: Its key in the configuration, such as `channels.slack.language`; "" = it does not come from there.
        place: The conversation or chat of the command.
    """

    value: Any
    source: SettingSource
    key: str = ""
    place: ConversationKey | None = None


class AllowedChoices:
    """The channels' `models` and `agents`. Without such a list, everything may be chosen.

    Args:
        policies: The channels' policies.
    """

    def __init__(self, policies: Mapping[str, ChannelPolicy]) -> None:
        self._policies = policies

    def models(self, channel: str, known: Sequence[str]) -> list[str]:
        """Return the known models that people may choose.

        >>> policies = {"slack": ChannelPolicy(models=["small", "gone"])}
        >>> AllowedChoices(policies).models("slack", ["large", "small"])
        ['small']
        """
        return _allowed(self._policy(channel).models, known)

    def agents(self, channel: str, known: Sequence[str]) -> list[str]:
        """Return the known agents and graphs that people may choose."""
        return _allowed(self._policy(channel).agents, known)

    def keep_allowed(self, channel: str, chosen: ConversationSettings) -> ConversationSettings:
        """Return the settings without choices that are no longer allowed."""
        if chosen.model is None and chosen.agent is None:
            return chosen
        model = chosen.model and next(iter(self.models(channel, [chosen.model])), None)
        agent = chosen.agent and next(iter(self.agents(channel, [chosen.agent])), None)
        return replace(chosen, model=model, agent=agent)

    def _policy(self, channel: str) -> ChannelPolicy:
        return self._policies.get(channel, _OPEN)


_OPEN = ChannelPolicy()


def _allowed(listed: Sequence[str] | None, known: Sequence[str]) -> list[str]:
    return [name for name in known if listed is None or name in listed]


def _ignore() -> None: ...


class SettingsResolver:
    """Keeps all settings in memory, so that turns need no disk reads. A change is stored before it takes effect.

    Args:
        store: The settings.
        on_change: Called after a change has been stored, so that other nodes reload the settings.
        allowed: The allowed choices. Earlier choices that are no longer allowed do not apply.
    """

    def __init__(
        self,
        store: ConversationSettingsStore,
        on_change: Callable[[], None] = _ignore,
        *,
        allowed: AllowedChoices | None = None,
    ) -> None:
        self.allowed = allowed or AllowedChoices({})
        self._store = store
        self._on_change = on_change
        self._settings: dict[ConversationKey, ConversationSettings] = {}
        # Commands run concurrently, and an update must not undo another one.
        self._updating = anyio.Lock()

    async def load(self) -> None:
        """Read all settings from the store. Raises StoreError."""
        async with self._updating:
            self._settings = await self._store.list_all()

    def resolve(self, key: ConversationKey) -> ConversationSettings:
        """Return a conversation's settings. Missing ones come from its chat."""
        found = self.explain(key)
        return ConversationSettings(**{name: setting.value for name, setting in found.items()})

    def explain(self, key: ConversationKey) -> dict[str, Setting]:
        """Return the model and agent that were chosen for a conversation or its chat, by name."""
        found: dict[str, Setting] = {}
        for place in (chat_of(key), key):
            chosen = self.allowed.keep_allowed(key.channel, self.get(place))
            for name, value in (("model", chosen.model), ("agent", chosen.agent)):
                if value:
                    found[name] = Setting(value=value, source="command", place=place)
        return found

    def get(self, key: ConversationKey) -> ConversationSettings:
        """Return the settings of exactly this key."""
        return self._settings.get(key, ConversationSettings())

    async def update(self, key: ConversationKey, **changes: str | None) -> None:
        """Change settings of a conversation, or of a chat (a key without topic). Raises StoreError."""
        async with self._updating:
            changed = replace(self.get(key), **changes)
            await self._store.save(key, changed)
            self._settings[key] = changed
            self._on_change()


def run_context(settings: ConversationSettings) -> Mapping[str, Any]:
    """Return settings as keys of a run's context.

    >>> run_context(ConversationSettings(model="gpt"))
    {'model_name': 'gpt'}
    """
    keys = {"model_name": settings.model, "agent_name": settings.agent}
    return {key: value for key, value in keys.items() if value is not None}
