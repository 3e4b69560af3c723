"""Feishu's and Lark's capabilities and limits. Sources: the open platform's message and card pages."""

from dataclasses import replace

from bots.common.call_limits import Windows
from bus.platform import Capabilities

IMAGE_BYTES = 10 * 1024 * 1024
"""Largest picture of `im/v1/images`; a larger one is sent as a file."""

FILE_BYTES = 30 * 1024 * 1024
"""Largest file of `im/v1/files`. An empty file is refused."""

CALL_WINDOWS: Windows = {1.0: 45, 60.0: 950}
"""Calls of one API within so many seconds. The platform allows 50 a second and 1,000 a minute."""

FRAME_SHARE = 0.8
"""The part of these windows that growing cards may use, so that finished answers always find room."""

PATCHES_PER_S = 5
"""Patches of one message a second; one more gives 230020."""

FEISHU = Capabilities(
    streaming=True,
    # Somewhat more than half of the patches are left for retries.
    stream_interval_s=2.5 / PATCHES_PER_S,
    # A chat takes 5 messages a second, shared by all bots in it: two at once and three more within that second.
    send_interval_s=0.3,
    send_burst=2,
    # One hour by the documentation; 5 minutes less for clocks and queues.
    idempotent_send_s=3300.0,
    # Calls that change a message carry no number; those that change a card entity do, and late ones are refused.
    edits_can_overtake=True,
    # A reaction stays until it is taken away.
    indicator_refresh_s=0.0,
    max_file_bytes=FILE_BYTES,
)

STREAMING = replace(
    FEISHU,
    # A card entity takes 10 operations a second and the app 1,000 a minute: half a dozen answers at once.
    stream_interval_s=0.25,
)
"""While the app may make card entities (CardKit)."""
