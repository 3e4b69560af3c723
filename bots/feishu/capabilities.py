"""Feishu's and Lark's capabilities and limits. Source: the open platform's documentation of messages and cards."""

from dataclasses import replace

from bots.common.call_limits import Windows
from bus.platform import Capabilities

IMAGE_BYTES = 10 * 1024 * 1024
"""Maximum size of a picture for `im/v1/images`, bytes. A larger one is sent as a file."""

FILE_BYTES = 30 * 1024 * 1024
"""Maximum size of a file for `im/v1/files`, bytes. An empty file is refused."""

CALL_WINDOWS: Windows = {1.0: 45, 60.0: 950}
"""Maximum calls of one API by window length in seconds. The platform permits 50 per second and 1,000 per minute."""

FRAME_SHARE = 0.8
"""Share of these windows that growing cards may use. The rest is reserved for finished answers."""

PATCHES_PER_S = 5
"""Maximum number of patches of one message per second. One more returns error 230020."""

FEISHU = Capabilities(
    streaming=True,
    # More than half of the permitted patches are left for retries.
    stream_interval_s=2.5 / PATCHES_PER_S,
    # A chat accepts 5 messages per second from all of its bots: two at once, and three more within that second.
    send_interval_s=0.3,
    send_burst=2,
    # The documentation says one hour. This is 5 minutes less, to allow for clocks and queues.
    idempotent_send_s=3300.0,
    # Message updates have no sequence number. Updates of card entities have one, and outdated ones are refused.
    edits_can_overtake=True,
    # A reaction stays until it is removed.
    indicator_refresh_s=0.0,
    max_file_bytes=FILE_BYTES,
)

STREAMING = replace(
    FEISHU,
    # A card entity accepts 10 operations per second, and the app 1,000 per minute: enough for six answers at once.
    stream_interval_s=0.25,
)
"""The capabilities while the app may create card entities (CardKit)."""
