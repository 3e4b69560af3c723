"""One update at a time from Telegram to the bus, however it came in."""

import logging
from collections.abc import Collection
from typing import Any

from telegram import Update

from bots.telegram.api import MALFORMED
from bots.telegram.capabilities import CHANNEL
from bots.telegram.inbound import Ignored, convert
from bots.telegram.speech import Me
from bus.errors import BusError
from bus.messages import Inbound
from bus.ports import Intake, Reason

_LOG = logging.getLogger(__name__)


class Updates:
    """Hands updates over, and says whether Telegram may forget them.

    Args:
        intake: Where messages go.
        commands: Names of our commands.
    """

    def __init__(self, intake: Intake, commands: Collection[str]) -> None:
        self._intake = intake
        self._commands = commands
        self._unread: int | None = None

    async def take(self, raw: dict[str, Any], update_id: int, me: Me) -> str:
        """Hand one update over; return why it was not kept, or ""."""
        meaning = self._read(raw, update_id, me)
        if isinstance(meaning, Ignored):
            self._intake.ignored(CHANNEL, meaning.reason, meaning.detail)
            return ""
        try:
            await self._intake.receive(meaning)
        except BusError as error:
            return self._refused(update_id, error)
        except Exception as error:  # noqa: BLE001  Whatever it was, nothing was kept: it must come again.
            return self._refused(update_id, error)
        return ""

    def _read(self, raw: dict[str, Any], update_id: int, me: Me) -> Inbound | Ignored:
        try:
            return convert(Update.de_json(raw, None), me, self._commands)
        except MALFORMED as error:
            _LOG.warning("telegram: update %d cannot be read (%s)", update_id, type(error).__name__)
            return Ignored(reason=Reason.UNSUPPORTED, detail="unreadable update")

    def _refused(self, update_id: int, error: Exception) -> str:
        """Log, once an update, that it was not kept."""
        name = type(error).__name__
        if self._unread != update_id:
            self._unread = update_id
            _LOG.warning(
                "telegram: update %d was not accepted (%s); it will come again",
                update_id,
                name,
                exc_info=None if isinstance(error, BusError) else error,
            )
        return name


def id_of(raw: object) -> int | None:
    """Return an update's number."""
    update_id = raw.get("update_id") if isinstance(raw, dict) else None
    return update_id if isinstance(update_id, int) else None
