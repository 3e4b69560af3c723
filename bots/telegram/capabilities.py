"""Telegram's capabilities and limits, with their sources."""

from bus.platform import Capabilities

MAX_FILE_BYTES = 50_000_000
"""Maximum size of a file that a bot can send, bytes ("up to 50 MB", Bot API: sendDocument)."""

MAX_DOWNLOAD_BYTES = 20_000_000
"""Maximum size of a file that a bot can download, bytes ("up to 20MB in size", Bot API: getFile)."""

MAX_PHOTO_BYTES = 10_000_000
"""Maximum size of a photo, bytes ("at most 10 MB in size", Bot API: sendPhoto)."""

PHOTO_MIMES = frozenset({"image/jpeg", "image/png", "image/webp"})
"""Images that can be sent as photos. A GIF would lose its animation, and an SVG is refused."""


MAX_TEXT = 4_096
"""Maximum length of a message's text after parsing, UTF-16 code units (Bot API: sendMessage)."""

CALLS_PER_S = 30
"""Calls per second in all chats together. Telegram says 30 messages "or so" for bulk notifications (Bot FAQ)."""

GROUP_CALLS_PER_MINUTE = 20
"""Maximum messages per minute in one group, including edits (Bot FAQ, "hitting limits")."""

PATCH_SHARE = 0.75
"""Share of these limits that growing answers may use. The rest is reserved for final answers."""

TYPING_SHARE = 0.8
"""Share of these limits that "typing" may use. It is sent 15 times a minute."""

TYPING_SHARE_BESIDE_PATCHES = 0.4
"""Share for "typing" if growing answers already show that work continues."""

NOTICE_AFTER_S = 8.0
"""Seconds until the progress notice. Most answers take less, and until then "typing" is enough."""

PATCH_INTERVAL_S = 3.0
"""Seconds between updates of a message. A group accepts 20 messages per minute, including edits: one every 3 s."""


def capabilities(
    *, streaming: bool, notice_s: float = NOTICE_AFTER_S, patch_s: float = PATCH_INTERVAL_S
) -> Capabilities:
    """Return the capabilities.

    Args:
        streaming: Whether answers grow while the agent writes them.
        notice_s: See `NOTICE_AFTER_S`.
        patch_s: See `PATCH_INTERVAL_S`.
    """
    return Capabilities(
        streaming=streaming,
        stream_interval_s=patch_s,
        # "Avoid sending more than one message per second" in one chat (Bot FAQ, "hitting limits"). A group accepts 20
        # per minute. Telegram refuses more and says how many seconds to wait, and Parley waits.
        send_interval_s=1.0,
        # There is no idempotency key, and sent messages cannot be looked up.
        idempotent_send_s=0.0,
        edits_can_overtake=True,
        # "The status is set for 5 seconds or less" (Bot API: sendChatAction).
        indicator_refresh_s=4.0,
        max_file_bytes=MAX_FILE_BYTES,
        progress_notice_after_s=notice_s,
    )
