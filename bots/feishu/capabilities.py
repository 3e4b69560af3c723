"""Feishu's and Lark's capabilities and limits. Sources: the open platform's pages about messages and cards."""

from dataclasses import replace

from bots.common.call_limits import Windows
from bus.platform import Capabilities

IMAGE_BYTES = 10 * 1024 * 1024
"""Maximum size of a picture for `im/v1/images`, bytes. A larger one is sent as a file."""

FILE_BYTES = 30 * 1024 * 1024
"""Maximum size of a file for `im/v1/files`, bytes. An empty file is refused."""

CALL_WINDOWS: Windows = {1.0: 45, 60.0: 950}
"""Maximum number of calls of one API by window in seconds. The platform permits 50 a second and 1,000 a minute."""

FRAME_SHARE = 0.8
"""Share of these windows that growing cards may use, so that finished answers always have room."""

PATCHES_PER_S = 5
"""Patches of one message a second; one more gives 230020."""

FEISHU = Capabilities(
    streaming=True,
    # Somewhat more than half of the patches are left for retries.
    stream_interval_s=2.5 / PATCHES_PER_S,
    # A chat accepts 5 messages a second from all of its bots: two at once and three more within that second.
    send_interval_s=0.3,
    send_burst=2,
    # One hour according to the documentation, less 5 minutes for clocks and queues.
    idempotent_send_s=3300.0,
    # Updates of messages have no sequence number. Updates of card entities have one, and late ones are refused.
    edits_can_overtake=True,
    # A reaction stays until it is removed.
    indicator_refresh_s=0.0,
    max_file_bytes=FILE_BYTES,
)

STREAMING = replace(
    FEISHU,
    # A card entity accepts 10 operations a second, and the app 1,000 a minute, which is enough for six answers at once.
    stream_interval_s=0.25,
)
"""The capabilities while the app may create card entities (CardKit)."""
