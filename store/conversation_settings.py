"""Settings chosen by command: the model, custom agent and language of a conversation, and a person's time zone."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

from store.conversations import ConversationKey, key_from_row, key_params
from store.database import Database, Transaction
from store.rows import from_row


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationSettings:
    """The settings of a conversation; None = as configured."""

    model: str | None = None
    agent: str | None = None
    language: str | None = None
    timezone: str | None = None


_ALL = "SELECT * FROM conversation_settings"
_SET = """
INSERT INTO conversation_settings (channel, workspace, chat, topic, model, agent, language, timezone, updated_at)
VALUES (:channel, :workspace, :chat, :topic, :model, :agent, :language, :timezone, :now)
ON CONFLICT (channel, workspace, chat, topic)
DO UPDATE SET model = excluded.model, agent = excluded.agent, language = excluded.language,
    timezone = excluded.timezone, updated_at = excluded.updated_at
"""
_CLEAR = """
DELETE FROM conversation_settings
WHERE channel = :channel AND workspace = :workspace AND chat = :chat AND topic = :topic
"""


class ConversationSettingsStore:
    """The conversation_settings table. Few conversations have a row, so all are read at once."""

    def __init__(self, database: Database, *, now: Callable[[], float] = time.time) -> None:
        self._database = database
        self._now = now

    async def list_all(self) -> dict[ConversationKey, ConversationSettings]:
        """Return all settings by conversation."""
        rows = await self._database.read(_ALL, {})
        return {key_from_row(row): from_row(ConversationSettings, row) for row in rows}

    async def save(self, key: ConversationKey, settings: ConversationSettings) -> None:
        """Save the settings of a conversation; delete the row if none is set."""
        now = self._now()

        def work(tx: Transaction) -> None:
            if settings == ConversationSettings():
                tx.run(_CLEAR, key_params(key))
            else:
                tx.run(_SET, {**key_params(key), **asdict(settings), "now": now})

        await self._database.transaction(work)
