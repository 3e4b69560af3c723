"""Detects image types by their first bytes, and builds image content blocks. Pure."""

import base64
from typing import Any

HEAD_BYTES = 16
"""Number of bytes needed to detect the type."""

MIME_OF_SUFFIX = {
    ".jpg": "image/jpeg",
    ".jpeg": "image/jpeg",
    ".png": "image/png",
    ".webp": "image/webp",
    ".gif": "image/gif",
}
"""The image types that all providers accept."""


def image_type(head: bytes) -> str | None:
    r"""Return the image type of a file that starts with these bytes, or None.

    >>> image_type(b"\x89PNG\r\n\x1a\n...."), image_type(b"%PDF-1.7")
    ('image/png', None)
    """
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if head.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if head[:6] in (b"GIF87a", b"GIF89a"):
        return "image/gif"
    return "image/webp" if head[:4] == b"RIFF" and head[8:12] == b"WEBP" else None


def image_block(data: bytes, mime: str) -> dict[str, Any]:
    """Return the content block for an image.

    >>> image_block(b"abc", "image/png")["image_url"]["url"]
    'data:image/png;base64,YWJj'
    """
    encoded = base64.b64encode(data).decode("ascii")
    return {"type": "image_url", "image_url": {"url": f"data:{mime};base64,{encoded}"}}
