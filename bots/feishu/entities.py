"""Which messages are card entities, and whether this app may make any.

A card that streams is an entity of its own, which a message shows. It is changed under its own id: the id of such a
message is the platform's, a blank, and the card's. Where the app may not make entities (the scope `cardkit:card:write`
is missing, or the platform has no CardKit), cards are sent whole and replaced by PATCH, for as long as this process
lives.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, TypeVar

from bots.feishu.api import Sent
from bots.feishu.cardkit import CardKit, Made
from bots.feishu.cards import Card
from bots.feishu.errors import SCOPE_CODE, FeishuError
from bus.messages import MessageId

_log: Final = logging.getLogger(__name__)

T = TypeVar("T")

_KEPT: Final = 1000
_FAILURES: Final = 3
"""So many failures one after the other that may mend themselves, and entities are given up as well."""

_CLOCKS_S: Final = 2.0
"""How far apart the platform's clocks may be."""

SCOPE: Final = "cardkit:card:write"


class Entities:
    """Makes entities and knows them.

    Args:
        kit: Their API.
        wanted: Whether the configuration wants cards to stream.
        given_up: Told once why they do not, for the admin.
    """

    def __init__(self, kit: CardKit, *, wanted: bool, given_up: Callable[[str], None]) -> None:
        self._kit = kit
        self._given_up = given_up
        self._failures = 0
        self._made: OrderedDict[str, Made] = OrderedDict()
        self._shown_by: OrderedDict[str, str] = OrderedDict()
        self.usable = wanted

    async def make(self, uuid: str, card: Card) -> Made | None:
        """Return the entity to be sent under `uuid`, the same one each time; None = send the card whole."""
        if uuid in self._made:
            return self._made[uuid]
        if not self.usable:
            return None
        try:
            made = await self._kit.create(card)
        except FeishuError as error:
            if error.bad_card:
                return None
            self._failures += 1
            if not error.retryable or self._failures >= _FAILURES:
                self.give_up(error)
            return None
        self._failures = 0
        _keep(self._made, uuid, made)
        return made

    def give_up(self, error: FeishuError) -> None:
        """Make no entities any more."""
        if not self.usable:
            return
        self.usable = False
        why = f"the app lacks the scope {SCOPE}" if error.code == SCOPE_CODE else str(error)
        _log.info("answers do not stream, their cards are replaced (PATCH): %s", why)
        self._given_up(f"answers grow by replacing their cards, they do not stream: {why}")

    async def sent(self, sent: Sent, made: Made) -> MessageId:
        """Return the id of the message under which an entity was sent.

        After a crash the platform may take the send for a repetition and name the message of the first one: that
        one shows another entity, which is looked up.
        """
        card_id = made.id
        if sent.at and made.at and sent.at < made.at:
            try:
                card_id = await self._kit.card_of(sent.id)
            except FeishuError as error:
                _log.info("the card of a message sent before is not told: %s", error)
                card_id = card_id if sent.at >= made.at - _CLOCKS_S else ""
        if not card_id:
            return MessageId(sent.id)
        _keep(self._shown_by, sent.id, card_id)
        return MessageId(f"{sent.id} {card_id}")

    def apart(self, message: MessageId) -> tuple[str, str]:
        """Return a message's id and that of its entity; "" if it shows none, or none that is known."""
        plain, _, card_id = message.partition(" ")
        return plain, card_id or self._shown_by.get(plain, "")

    async def find(self, message: str) -> str:
        """Ask for the entity of a message that is not known to show one; "" if it does not."""
        try:
            card_id = await self._kit.card_of(message)
        except FeishuError as error:
            _log.info("the card of a message is not told: %s", error)
            return ""
        _keep(self._shown_by, message, card_id)
        return card_id


def _keep(known: OrderedDict[str, T], name: str, value: T) -> None:
    known[name] = value
    while len(known) > _KEPT:
        known.popitem(last=False)
