"""Hands events to the bus, and says whether the platform may forget them."""

import logging
from typing import Final

from bots.feishu.api import Bot
from bots.feishu.inbound import CHANNEL, Ignored, read_event
from bots.lanes import Lanes
from bus.errors import IntakeClosed, IntakeFull
from bus.ports import Intake

_log: Final = logging.getLogger(__name__)


class Receiver:
    """Takes events one chat at a time, in the order of their arrival, and different chats at once."""

    def __init__(self, intake: Intake, bot: Bot) -> None:
        self._intake = intake
        self._bot = bot
        self._lanes = Lanes()

    async def handle(self, payload: bytes) -> bool:
        """Return whether the event is done with; False asks the platform to send it again."""
        event = read_event(payload, self._bot)
        if isinstance(event, Ignored):
            self._intake.ignored(CHANNEL, event.reason, event.detail)
            return True
        async with self._lanes.lane(event.key.chat):
            try:
                await self._intake.receive(event)
            except (IntakeFull, IntakeClosed) as error:
                _log.warning(
                    "event %s was not taken, it will come again: %s", event.event_id, error
                )
                return False
            except Exception:  # noqa: BLE001 - one event's boundary: the platform still has it
                _log.exception("event %s was not stored, it will come again", event.event_id)
                return False
        return True
