"""How long the Feishu adapter waits for what."""

from dataclasses import dataclass

from bots.common.connection import RECONNECT
from bus.retry import Backoff


@dataclass(frozen=True, slots=True, kw_only=True)
class FeishuTimeouts:
    """Timeouts in seconds; tests pass shorter ones.

    Attributes:
        call_s: One API call.
        upload_s: One upload (30 MB on a slow line).
        connect_s: Fetching the connection's endpoint, and the handshake.
        lookup_s: All lookups of what a message's event lacks, while the event waits to be answered.
        ack_s: An event is answered within this, well or badly. The platform waits 3 s.
        press_s: A button press is answered within this: the platform shows an error after 3 s.
        ping_s: Between two pings, until the platform says otherwise (its default is 120 s).
        close_s: Closing the connection, and calls still running then.
        parts_s: How long the parts of a split event are kept.
        backoff: Delays after failed attempts to connect.
        failed_retry_s: Delay after the platform refused the app's credentials.
        check_s: In mode webhook, between two checks whether the platform still knows the app.
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
