"""Chats that get another id while Parley runs: a Telegram group that becomes a supergroup."""

import logging

from bus.choices import Choices
from bus.delivery import Delivery
from store.conversations import Move
from store.moves import Moves

log = logging.getLogger(__name__)


class Relocations:
    """Lets what was kept under a chat's old id go on under the new one.

    Args:
        table: Where the moves are kept.
        choices: Read anew after a move.
    """

    def __init__(self, table: Moves, choices: Choices) -> None:
        self._table = table
        self._choices = choices

    async def load(self, delivery: Delivery) -> None:
        """Tell of earlier moves. Raises StoreError."""
        for move in await self._table.all():
            await delivery.relocate(move)

    async def carry_out(self, move: Move, delivery: Delivery) -> None:
        """Move a chat, once; when this returns it is kept. Raises StoreError.

        Args:
            move: From where to where.
            delivery: Told, so that what is owed goes out in the lane of the new id.
        """
        if not await self._table.carry_out(move):
            return
        log.info("chat %r of %s is now %r", move.old_chat, move.channel, move.new_chat)
        await self._choices.load()
        await delivery.relocate(move)
