"""Connection health of an adapter: the state for `Adapter.health`. Each change is logged once."""

import logging
import time
from dataclasses import replace

from bus.platform import ChannelHealth, Clock, ConnectionState

log = logging.getLogger(__name__)


def describe_refusal(reason: str) -> str:
    """Return the detail to show while the bus accepts no messages and the platform keeps them."""
    return f"Messages wait at the platform: they are not accepted now ({reason})."


class HealthTracker:
    """Records the state of one connection.

    `connected` means that events can arrive now. Call `mark_connected` only after the platform has confirmed this.

    Args:
        channel: Instance name, for the log.
        now: Wall clock.
    """

    def __init__(self, channel: str, now: Clock = time.time) -> None:
        self._channel = channel
        self._now = now
        self._health = ChannelHealth(state=ConnectionState.STOPPED, since=now())
        self._was_connected = False
        self._warning = ""
        self._refusal = ""

    def health(self) -> ChannelHealth:
        """Return the current state. If nothing worse is wrong, it includes the last refusal, or else the warning."""
        known = self._health
        if known.state is ConnectionState.CONNECTED and not known.detail:
            return replace(known, detail=self._refusal or self._warning)
        return known

    @property
    def state(self) -> ConnectionState:
        """The current state."""
        return self._health.state

    def mark_connecting(self) -> None:
        """Record that `run` has started its first attempt."""
        self._was_connected = False
        self._set(ConnectionState.CONNECTING)

    def mark_connected(self, detail: str = "") -> None:
        """Record that events can arrive. `detail` describes any other problem."""
        self._was_connected = True
        self._set(ConnectionState.CONNECTED, detail)

    def mark_disconnected(self, detail: str) -> None:
        """Record that no events can arrive and that the adapter retries by itself."""
        state = ConnectionState.RECONNECTING if self._was_connected else ConnectionState.CONNECTING
        self._set(state, detail)

    def mark_waiting(self, detail: str) -> None:
        """Record that our side is ready, but the platform has not sent a request yet."""
        self._set(ConnectionState.CONNECTING, detail, awaiting_first_event=True)

    def mark_failed(self, detail: str) -> None:
        """Record that an operator must act. `detail` says what to do."""
        self._set(ConnectionState.FAILED, detail)

    def mark_stopped(self) -> None:
        """Record that `run` ended. A failure stays visible."""
        if self._health.state is not ConnectionState.FAILED:
            self._set(ConnectionState.STOPPED)

    def mark_event(self) -> None:
        """Record that the platform sent something."""
        self._health = replace(self._health, last_event_at=self._now())

    def mark_accepted(self) -> None:
        """Record that the bus accepted an event."""
        self._refusal = ""

    def mark_refused(self, error: Exception) -> None:
        """Record that the bus refused an event, which the platform will resend."""
        self._refusal = describe_refusal(type(error).__name__)

    def set_warning(self, text: str) -> None:
        """Set a warning about a limitation, such as a missing permission; "" clears it."""
        if text and text != self._warning:
            log.warning("%s: %s", self._channel, text)
        self._warning = text

    def _set(
        self, state: ConnectionState, detail: str = "", *, awaiting_first_event: bool = False
    ) -> None:
        known = self._health
        if (state, detail) != (known.state, known.detail):
            level = logging.WARNING if detail else logging.INFO
            log.log(level, "%s: %s%s", self._channel, state.value, f": {detail}" if detail else "")
        self._health = replace(
            known,
            state=state,
            detail=detail,
            since=known.since if state is known.state else self._now(),
            awaiting_first_event=awaiting_first_event,
        )
