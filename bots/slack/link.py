"""The state of the connection, as health reports show it."""

import logging

from bus.ports import Health, Link, Now

logger = logging.getLogger(__name__)


class LinkState:
    """What is known of the connection; every change is logged once."""

    def __init__(self, now: Now) -> None:
        self._now = now
        self._health = Health(link=Link.STOPPED, since=now())
        self._last_event_at: float | None = None
        self._lacking = ""

    def health(self) -> Health:
        """Return the present state."""
        known = self._health
        return Health(
            link=known.link,
            detail=known.detail or (self._lacking if known.link is Link.CONNECTED else ""),
            since=known.since,
            last_event_at=self._last_event_at,
            awaits_call=known.awaits_call,
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
        self._set(Link.CONNECTING)

    def connected(self) -> None:
        """Note that events can arrive."""
        self._set(Link.CONNECTED)

    def waiting(self, detail: str) -> None:
        """Note that Slack has yet to call for the first time."""
        self._set(Link.CONNECTING, detail, awaits_call=True)

    def lost(self, detail: str) -> None:
        """Note that there is no connection now; attempts go on."""
        waiting = self._health.link in {Link.CONNECTING, Link.STOPPED}
        self._set(Link.CONNECTING if waiting else Link.RECONNECTING, detail)

    def failed(self, detail: str) -> None:
        """Note that somebody must act."""
        self._set(Link.FAILED, detail)

    def stopped(self) -> None:
        """Note that the adapter stopped; a failure stays visible."""
        if self._health.link is not Link.FAILED:
            self._set(Link.STOPPED)

    def _set(self, link: Link, detail: str = "", *, awaits_call: bool = False) -> None:
        known = self._health
        if (link, detail) == (known.link, known.detail):
            return
        since = known.since if link is known.link else self._now()
        self._health = Health(link=link, detail=detail, since=since, awaits_call=awaits_call)
        level = logging.WARNING if detail else logging.INFO
        logger.log(level, "slack: %s%s", link.value, f": {detail}" if detail else "")
