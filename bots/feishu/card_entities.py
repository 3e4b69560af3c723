"""Card entities: creates them, and knows which messages show one.

A card that streams is an entity of its own, which a message shows. It is changed under its own id: the id of such a
message is the platform's, a blank, and the card's. Where the app may not make entities (the scope `cardkit:card:write`
is missing, or the platform has no CardKit), cards are sent whole and replaced by PATCH, for as long as this process
lives.
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
"""So many failures one after the other that may mend themselves, and entities are given up as well."""

_CLOCKS_S = 2.0
"""How far apart the platform's clocks may be."""

SCOPE = "cardkit:card:write"


class CardEntities:
    """Makes entities and knows them.

    Args:
        kit: Their API.
        enabled: Whether the configuration wants cards to stream.
        on_disabled: Told once why they do not, for the admin.
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
        """Return the entity to be sent under `uuid`, the same one each time; None = send the card whole."""
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
        """Make no entities any more."""
        if not self.usable:
            return
        self.usable = False
        why = f"the app lacks the scope {SCOPE}" if error.code == SCOPE_CODE else str(error)
        log.info("answers do not stream, their cards are replaced (PATCH): %s", why)
        self._on_disabled(f"answers grow by replacing their cards, they do not stream: {why}")

    async def register(self, sent: SentMessage, made: CardEntity) -> MessageId:
        """Return the id of the message under which an entity was sent.

        After a crash the platform may take the send for a repetition and name the message of the first one: that
        one shows another entity, which is looked up.
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
        """Return a message's id and that of its entity; "" if it shows none, or none that is known."""
        plain, _, card_id = message.partition(" ")
        return plain, card_id or self._cards.get(plain, "")

    async def find_card(self, message: str) -> str:
        """Ask for the entity of a message that is not known to show one; "" if it does not."""
        try:
            card_id = await self._kit.get_card_id(message)
        except FeishuError as error:
            log.info("the card of a message cannot be looked up: %s", error)
            return ""
        self._cards[message] = card_id
        return card_id
