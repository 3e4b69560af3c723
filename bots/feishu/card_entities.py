"""Card entities: creates them, and finds the entity of a message.

A streaming card is a separate entity with its own ID. A message shows it, and updates name the entity. That is why the
ID of such a message consists of the platform's message ID, a space, and the card's ID. If the app may not create
entities (the scope `cardkit:card:write` is missing, or the platform has no CardKit), cards are sent whole and replaced
by PATCH until the process restarts.
"""

import logging
from collections.abc import Callable

from bots.feishu.api import SentMessage
from bots.feishu.cardkit import CardEntity, CardKitApi
from bots.feishu.cards import Card
from bots.feishu.errors import SCOPE_CODE, FeishuError
from bus.bounded import BoundedDict
from bus.messages import MessageId

log = logging.getLogger(__name__)

_KEPT = 1000
_FAILURES = 3
"""After this many consecutive temporary failures, no more entities are created either."""

_CLOCKS_S = 2.0
"""Maximum difference between the platform's clocks, seconds."""

SCOPE = "cardkit:card:write"


class CardEntities:
    """Creates entities, and remembers which messages show them.

    Args:
        kit: The CardKit API.
        enabled: Whether the configuration permits streaming cards.
        on_disabled: Called once, with the reason for the admin, when cards can no longer stream.
    """

    def __init__(
        self, kit: CardKitApi, *, enabled: bool, on_disabled: Callable[[str], None]
    ) -> None:
        self._kit = kit
        self._on_disabled = on_disabled
        self._failures = 0
        self._created = BoundedDict[str, CardEntity](_KEPT)
        self._cards = BoundedDict[str, str](_KEPT)
        self.usable = enabled

    async def create(self, uuid: str, card: Card) -> CardEntity | None:
        """Return the entity to send with `uuid`, the same one on each call; None = send the card whole."""
        if uuid in self._created:
            return self._created[uuid]
        if not self.usable:
            return None
        try:
            made = await self._kit.create(card)
        except FeishuError as error:
            if error.bad_card:
                return None
            self._failures += 1
            if not error.retryable or self._failures >= _FAILURES:
                self.disable(error)
            return None
        self._failures = 0
        self._created[uuid] = made
        return made

    def disable(self, error: FeishuError) -> None:
        """Create no more entities."""
        if not self.usable:
            return
        self.usable = False
        why = f"the app lacks the scope {SCOPE}" if error.code == SCOPE_CODE else str(error)
        log.info("answers do not stream: cards are replaced (PATCH) instead: %s", why)
        self._on_disabled(
            f"answers grow by replacing their cards, because cards cannot stream: {why}"
        )

    async def register(self, sent: SentMessage, made: CardEntity) -> MessageId:
        """Return the ID of the message that shows a sent entity.

        After a crash, the platform may treat the send as a repetition and return the first message. That message shows
        another entity, so this method looks it up.
        """
        card_id = made.id
        if sent.created_at and made.created_at and sent.created_at < made.created_at:
            try:
                card_id = await self._kit.get_card_id(sent.id)
            except FeishuError as error:
                log.info("the card of an earlier message cannot be looked up: %s", error)
                card_id = card_id if sent.created_at >= made.created_at - _CLOCKS_S else ""
        if not card_id:
            return MessageId(sent.id)
        self._cards[sent.id] = card_id
        return MessageId(f"{sent.id} {card_id}")

    def split_id(self, message: MessageId) -> tuple[str, str]:
        """Return a message's ID and its entity's ID; "" if it shows none or the entity is unknown."""
        plain, _, card_id = message.partition(" ")
        return plain, card_id or self._cards.get(plain, "")

    async def find_card(self, message: str) -> str:
        """Look up the entity of a message; "" if it shows none."""
        try:
            card_id = await self._kit.get_card_id(message)
        except FeishuError as error:
            log.info("the card of a message cannot be looked up: %s", error)
            return ""
        self._cards[message] = card_id
        return card_id
