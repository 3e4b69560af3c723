"""Which model and which custom agent people chose for a conversation."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from store.conversations import ConversationKey, key_of, key_params
from store.database import Database, Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What holds for a conversation; None = as configured."""

    model: str | None = None
    agent: str | None = None


_ALL = "SELECT * FROM choice"
_SET = """
INSERT INTO choice (channel, workspace, chat, topic, model, agent, updated_at)
VALUES (:channel, :workspace, :chat, :topic, :model, :agent, :now)
ON CONFLICT (channel, workspace, chat, topic)
DO UPDATE SET model = excluded.model, agent = excluded.agent, updated_at = excluded.updated_at
"""
_CLEAR = """
DELETE FROM choice
WHERE channel = :channel AND workspace = :workspace AND chat = :chat AND topic = :topic
"""


class Choices:
    """The table of choices. Few conversations have one, so all of them are read at once."""

    def __init__(self, database: Database, *, now: Callable[[], float] = time.time) -> None:
        self._database = database
        self._now = now

    async def all(self) -> dict[ConversationKey, Choice]:
        """Return every choice."""
        rows = await self._database.read(_ALL, {})
        return {key_of(row): Choice(model=row["model"], agent=row["agent"]) for row in rows}

    async def set(self, key: ConversationKey, choice: Choice) -> None:
        """Keep a choice; an empty one is forgotten."""
        now = self._now()

        def work(tx: Transaction) -> None:
            if choice == Choice():
                tx.run(_CLEAR, key_params(key))
            else:
                own = {"model": choice.model, "agent": choice.agent, "now": now}
                tx.run(_SET, {**key_params(key), **own})

        await self._database.transaction(work)
