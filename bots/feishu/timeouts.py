"""Timeouts of the Feishu adapter."""

from dataclasses import dataclass

from bots.common.connection import RECONNECT
from bus.retry import Backoff


@dataclass(frozen=True, slots=True, kw_only=True)
class FeishuTimeouts:
    """Timeouts in seconds. Tests pass shorter ones.

    Attributes:
        call_s: One API call.
        upload_s: One upload (30 MB on a slow line).
        connect_s: Fetching the connection's endpoint, and the handshake.
        lookup_s: All lookups of data that a message's event does not contain, while the event waits.
        ack_s: Responding to an event. The platform waits 3 s.
        press_s: Responding to a button press. The platform shows an error after 3 s.
        ping_s: Interval of pings until the platform changes it (its default is 120 s).
        close_s: Closing the connection, including calls still in progress.
        parts_s: How long to keep the parts of a split event.
        backoff: Delays after failed attempts to connect.
        failed_retry_s: Delay after the platform refuses the app's credentials.
        check_s: In mode webhook, how often to check the app's credentials.
    """

    call_s: float = 20.0
    upload_s: float = 120.0
    connect_s: float = 15.0
    lookup_s: float = 1.0
    ack_s: float = 2.5
    press_s: float = 2.0
    ping_s: float = 120.0
    close_s: float = 1.0
    parts_s: float = 10.0
    backoff: Backoff = RECONNECT
    failed_retry_s: float = 60.0
    check_s: float = 60.0
