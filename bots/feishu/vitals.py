"""The true state of the connection, as `health` tells it."""

import logging
from typing import Final

from bus.platform import ChannelHealth, Clock, ConnectionState

_log: Final = logging.getLogger(__name__)


class Vitals:
    """Keeps the link's state, since when it holds, and when the platform last sent anything."""

    def __init__(self, now: Clock) -> None:
        self._now = now
        self._link = ConnectionState.CONNECTING
        self._detail = ""
        self._since = now()
        self._last_event_at: float | None = None
        self._was_connected = False
        self._awaits_call = False
        self._note = ""

    def connected(self) -> None:
        """Events can arrive."""
        self._was_connected = True
        self._set(ConnectionState.CONNECTED, "")

    def trying(self, detail: str = "") -> None:
        """No events now; the adapter goes on trying by itself."""
        self._set(
            ConnectionState.RECONNECTING if self._was_connected else ConnectionState.CONNECTING,
            detail,
        )

    def waiting(self, detail: str) -> None:
        """The platform, which calls us, has yet to do so for the first time."""
        self._set(ConnectionState.CONNECTING, detail)
        self._awaits_call = True

    def failed(self, detail: str) -> None:
        """Somebody has to act; `detail` says who on what."""
        self._set(ConnectionState.FAILED, detail)

    def noted(self, text: str) -> None:
        """Something works less well than it could; told while nothing worse is."""
        self._note = text

    def stopped(self) -> None:
        """The adapter was told to stop."""
        self._set(ConnectionState.STOPPED, "")

    def seen(self) -> None:
        """The platform sent something."""
        self._last_event_at = self._now()

    def health(self) -> ChannelHealth:
        """Return the state for the admin."""
        return ChannelHealth(
            state=self._link,
            detail=self._detail or (self._note if self._link is ConnectionState.CONNECTED else ""),
            since=self._since,
            last_event_at=self._last_event_at,
            awaiting_first_event=self._awaits_call,
        )

    def _set(self, link: ConnectionState, detail: str) -> None:
        if link is not self._link:
            self._since = self._now()
        if (link, detail) != (self._link, self._detail):
            level = logging.WARNING if detail else logging.INFO
            _log.log(level, "feishu is %s%s", link.value, f": {detail}" if detail else "")
        self._link, self._detail = link, detail
        self._awaits_call = False
