"""Images for the model: their types, content blocks and limits."""

import base64
import io
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from langchain_core.messages import AnyMessage

logger = logging.getLogger(__name__)

MAX_SHOWN_BYTES = 3_750_000
"""Anthropic accepts images of 5 MB in base64; larger ones are made smaller."""

MAX_SIDE = 8_000  # pixels; Anthropic
FITTED_SIDE = 2_000  # pixels; models see no more detail
MAX_PIXELS = (
    64_000_000  # of an image that is made smaller: bounds memory, against decompression bombs
)

MAX_REQUEST_IMAGES = 20
MAX_REQUEST_CHARS = 20_000_000
"""Length of all images of a request in base64: within Gemini's 20 MB, Anthropic's 32 MB and OpenAI's 50 MB."""

MAX_CACHED_CHARS = 64_000_000
LEFT_OUT = "[An image is left out here: the images of this conversation are too many or too large together.]"

_IMAGE_TYPES = frozenset({"image", "image_url", "input_image"})

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


Version = tuple[int, int, int]
"""Inode, modification time and size of a file: changes with its content."""


class ModelImages:
    """Builds the content blocks of images, and caches them while their files stay the same. Thread-safe.

    Images are encoded once, not for every model call. Those beyond what all providers accept are made smaller.
    """

    def __init__(self) -> None:
        self._blocks: OrderedDict[Version, dict[str, Any]] = OrderedDict()
        self._lock = threading.Lock()

    def block(
        self, version: Version, mime: str, read: Callable[[], bytes]
    ) -> dict[str, Any] | None:
        """Return the block of an image; None if it cannot be made small enough. Blocking.

        Args:
            version: The version of its file.
            mime: Its type.
            read: Returns its content.
        """
        with self._lock:
            block = self._blocks.get(version)
        if block is None:
            fitted = fit_image(read(), mime)
            if fitted is None:
                return None
            block = image_block(*fitted)
        with self._lock:
            self._blocks[version] = block
            self._blocks.move_to_end(version)
            while sum(map(image_chars, self._blocks.values())) > MAX_CACHED_CHARS:
                self._blocks.popitem(last=False)
        return block


def fit_image(data: bytes, mime: str) -> tuple[bytes, str] | None:
    """Return an image within the providers' limits, and its type; None if that is not possible. Blocking.

    An image that is too large becomes a JPEG of at most `FITTED_SIDE` pixels a side, with its first frame on white.
    """
    from PIL import Image, ImageOps  # noqa: PLC0415 - 30 ms, and most processes see no image

    try:
        with Image.open(io.BytesIO(data)) as image:
            if len(data) <= MAX_SHOWN_BYTES and max(image.size) <= MAX_SIDE:
                return data, mime
            if image.width * image.height > MAX_PIXELS:
                return None
            image.draft("RGB", (FITTED_SIDE, FITTED_SIDE))
            small = ImageOps.exif_transpose(image).convert("RGBA")
            small.thumbnail((FITTED_SIDE, FITTED_SIDE))
            white = Image.new("RGBA", small.size, "white")
            fitted = io.BytesIO()
            Image.alpha_composite(white, small).convert("RGB").save(fitted, "JPEG", quality=85)
    except Exception as error:  # noqa: BLE001 - each decoder raises its own kinds
        logger.info("Cannot read an image: %s", type(error).__name__)
        # The provider may know what Pillow does not.
        return (data, mime) if len(data) <= MAX_SHOWN_BYTES else None
    return fitted.getvalue(), "image/jpeg"


def image_block(data: bytes, mime: str) -> dict[str, Any]:
    """Return the content block for an image.

    >>> image_block(b"abc", "image/png")["image_url"]["url"]
    'data:image/png;base64,YWJj'
    """
    encoded = base64.b64encode(data).decode("ascii")
    return {"type": "image_url", "image_url": {"url": f"data:{mime};base64,{encoded}"}}


def image_chars(block: object) -> int:
    """Return the length of an image's content block in any provider's form; 0 for other blocks.

    >>> image_chars(image_block(b"abc", "image/png")), image_chars({"type": "text", "text": "hi"})
    (26, 0)
    """
    if not isinstance(block, dict) or block.get("type") not in _IMAGE_TYPES:
        return 0
    inner = [v for value in block.values() if isinstance(value, dict) for v in value.values()]
    return max((len(v) for v in [*block.values(), *inner] if isinstance(v, str)), default=0)


def limit_images(messages: list[AnyMessage]) -> list[AnyMessage]:
    """Return the messages with the latest images only, within the limits of a request; others become notes.

    The same list is returned if all images are within the limits.
    """
    count = chars = 0
    limited = list(messages)
    for at in range(len(messages) - 1, -1, -1):
        content = messages[at].content
        if isinstance(content, str):
            continue
        blocks = list(content)
        for i in range(len(blocks) - 1, -1, -1):
            size = image_chars(blocks[i])
            if not size:
                continue
            if count < MAX_REQUEST_IMAGES and chars + size <= MAX_REQUEST_CHARS:
                count, chars = count + 1, chars + size
            else:
                blocks[i] = {"type": "text", "text": LEFT_OUT}
        if blocks != content:
            limited[at] = messages[at].model_copy(update={"content": blocks})
    return messages if all(a is b for a, b in zip(limited, messages, strict=True)) else limited
