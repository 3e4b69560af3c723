"""The state of the connection, as health reports show it."""

import logging

from bus.platform import ChannelHealth, Clock, ConnectionState

logger = logging.getLogger(__name__)


class LinkState:
    """What is known of the connection; every change is logged once."""

    def __init__(self, now: Clock) -> None:
        self._now = now
        self._health = ChannelHealth(state=ConnectionState.STOPPED, since=now())
        self._last_event_at: float | None = None
        self._lacking = ""

    def health(self) -> ChannelHealth:
        """Return the present state."""
        known = self._health
        return ChannelHealth(
            state=known.state,
            detail=known.detail
            or (self._lacking if known.state is ConnectionState.CONNECTED else ""),
            since=known.since,
            last_event_at=self._last_event_at,
            awaiting_first_event=known.awaiting_first_event,
        )

    def heard(self) -> None:
        """Note that Slack sent something."""
        self._last_event_at = self._now()

    def lacks(self, detail: str) -> None:
        """Note what the app may not do, though all else works; "" = it may."""
        if detail and detail != self._lacking:
            logger.warning("slack: %s", detail)
        self._lacking = detail

    def connecting(self) -> None:
        """Note that the first attempt begins."""
        self._set(ConnectionState.CONNECTING)

    def connected(self) -> None:
        """Note that events can arrive."""
        self._set(ConnectionState.CONNECTED)

    def waiting(self, detail: str) -> None:
        """Note that Slack has yet to call for the first time."""
        self._set(ConnectionState.CONNECTING, detail, awaits_call=True)

    def lost(self, detail: str) -> None:
        """Note that there is no connection now; attempts go on."""
        waiting = self._health.state in {ConnectionState.CONNECTING, ConnectionState.STOPPED}
        self._set(ConnectionState.CONNECTING if waiting else ConnectionState.RECONNECTING, detail)

    def failed(self, detail: str) -> None:
        """Note that somebody must act."""
        self._set(ConnectionState.FAILED, detail)

    def stopped(self) -> None:
        """Note that the adapter stopped; a failure stays visible."""
        if self._health.state is not ConnectionState.FAILED:
            self._set(ConnectionState.STOPPED)

    def _set(self, link: ConnectionState, detail: str = "", *, awaits_call: bool = False) -> None:
        known = self._health
        if (link, detail) == (known.state, known.detail):
            return
        since = known.since if link is known.state else self._now()
        self._health = ChannelHealth(
            state=link, detail=detail, since=since, awaiting_first_event=awaits_call
        )
        level = logging.WARNING if detail else logging.INFO
        logger.log(level, "slack: %s%s", link.value, f": {detail}" if detail else "")
