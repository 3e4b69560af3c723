"""Chats that get another id while Parley runs: a Telegram group that becomes a supergroup."""

import logging

from bus.choices import Choices
from bus.delivery import Delivery
from store.conversations import ConversationKey, Move
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
        self._moves: list[Move] = []

    async def load(self, delivery: Delivery) -> None:
        """Tell of earlier moves. Raises StoreError."""
        self._moves = await self._table.all()
        for move in self._moves:
            await delivery.relocate(move)

    def room(self, key: ConversationKey) -> str:
        """Return the first id that a chat had; "" if it has it still."""
        chat = key.chat
        for move in self._moves[::-1]:
            if (move.channel, move.workspace, move.new_chat) == (key.channel, key.workspace, chat):
                chat = move.old_chat
        return chat if chat != key.chat else ""

    async def carry_out(self, move: Move, delivery: Delivery) -> None:
        """Move a chat, once; when this returns it is kept. Raises StoreError.

        Args:
            move: From where to where.
            delivery: Told, so that what is owed goes out in the lane of the new id.
        """
        if not await self._table.carry_out(move):
            return
        self._moves.append(move)
        log.info("chat %r of %s is now %r", move.old_chat, move.channel, move.new_chat)
        await self._choices.load()
        await delivery.relocate(move)
