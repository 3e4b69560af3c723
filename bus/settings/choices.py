"""What people chose by command: the model and the custom agent of a conversation, or of its whole chat; a language."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import anyio

from bus.messages import ConversationKey, chat_of
from store import conversation_settings
from store.conversation_settings import ConversationSettings


class Choices:
    """The choices, at hand for every turn; changes are on disk before they hold.

    Args:
        table: Where they are kept.
    """

    def __init__(self, table: conversation_settings.ConversationSettingsStore) -> None:
        self._table = table
        self._known: dict[ConversationKey, ConversationSettings] = {}
        self._changing = (
            anyio.Lock()
        )  # commands run side by side; none must undo what another changes

    async def load(self) -> None:
        """Read what was chosen before. Raises StoreError."""
        self._known = await self._table.list_all()

    def of(self, key: ConversationKey) -> ConversationSettings:
        """Return what holds for a conversation: its own choice, and where it has none the chat's."""
        own, chat = (
            self._known.get(key, ConversationSettings()),
            self._known.get(chat_of(key), ConversationSettings()),
        )
        return ConversationSettings(model=own.model or chat.model, agent=own.agent or chat.agent)

    def own(self, key: ConversationKey) -> ConversationSettings:
        """Return what was chosen under this very key."""
        return self._known.get(key, ConversationSettings())

    async def set(self, key: ConversationKey, **changes: str | None) -> None:
        """Change the choice of a conversation, or of a chat (its key without topic). Raises StoreError."""
        async with self._changing:
            changed = replace(self._known.get(key, ConversationSettings()), **changes)
            await self._table.save(key, changed)
            self._known[key] = changed


def context_of(choice: ConversationSettings) -> Mapping[str, Any]:
    """Return a choice as keys of a run's context.

    >>> context_of(ConversationSettings(model="gpt"))
    {'model_name': 'gpt'}
    """
    keys = {"model_name": choice.model, "agent_name": choice.agent}
    return {key: value for key, value in keys.items() if value is not None}
