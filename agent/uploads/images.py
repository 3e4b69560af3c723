"""Images for the model: their types, content blocks and limits."""

import base64
import logging
import math
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from langchain_core.messages import AnyMessage

from agent.uploads import worker
from agent.uploads.image_size import image_size
from agent.user_messages import HUMAN

log = logging.getLogger(__name__)

MAX_SHOWN_BYTES = 3_750_000
"""Largest image to send, bytes. Anthropic accepts images of 5 MB in base64. Larger images are made smaller."""

MAX_SIDE = 8_000
"""Longest side that providers accept, pixels: Anthropic's limit."""

KEPT_TURNS = 4
"""Minimum number of turns that images stay in requests. The maximum is twice as many."""

DEADLINE_S = 10.0
"""Time limit for making an image smaller, seconds."""

ALL_DEADLINE_S = 20.0
"""Time limit for making all images of a request smaller, seconds. Images that are not ready are not shown."""

RETRY_S = 60.0
"""How long to wait before retrying an image that could not be made smaller, seconds. Prevents a retry on every call."""

MAX_FAILED = 1000
"""Maximum number of such images to remember."""

MEMORY_BYTES = 1_500_000_000
"""Address space of the process that makes an image smaller, bytes."""

MAX_CONCURRENT = 2
"""Maximum number of images to make smaller concurrently. Others wait."""

MAX_REQUEST_IMAGES = 20
MAX_REQUEST_CHARS = 20_000_000
"""Maximum total length of a request's images in base64: within Gemini's 20 MB, Anthropic's 32 MB and OpenAI's 50 MB."""

MAX_CACHED_CHARS = 64_000_000
LEFT_OUT = "[An image is left out here because this conversation has too many images, or they are too large in total.]"

REJECTED = (
    "[An image or file is left out here: the model's server did not accept it. It may be damaged.]"
)

_IMAGE_TYPES = frozenset({"image", "image_url", "input_image"})

SLOTS = threading.BoundedSemaphore(MAX_CONCURRENT)
"""Each image holds a slot while it is made smaller."""

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
"""Inode, modification time and size of a file. Changes with its content."""


class ImagesBusy(Exception):
    """There is no time left to make an image smaller, because other images used it up."""


class ModelImages:
    """Builds the content blocks of images, and caches them until their files change. Thread-safe.

    Encodes an image once, not for every model call. Makes images smaller if a provider would reject them.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._blocks: OrderedDict[Version, dict[str, Any]] = OrderedDict()
        self._failed: OrderedDict[Version, float] = OrderedDict()
        self._lock = threading.Lock()
        self._clock = clock

    def deadline(self) -> float:
        """Return the deadline, counted from now, for making the images of one request smaller."""
        return self._clock() + ALL_DEADLINE_S

    def block(
        self, version: Version, mime: str, read: Callable[[], bytes], *, until: float
    ) -> dict[str, Any] | None:
        """Return the block of an image. None if it cannot be made small enough. Blocking.

        Args:
            version: The version of its file.
            mime: Its type.
            read: Returns its content.
            until: The common `deadline` of the images in one request.
        """
        with self._lock:
            block = self._blocks.get(version)
            has_failed = self._clock() < self._failed.get(version, -math.inf) + RETRY_S
        if block is None and not has_failed:
            block = self._build(version, mime, read, min(DEADLINE_S, until - self._clock()))
        if block is None:
            return None
        with self._lock:
            self._blocks[version] = block
            self._blocks.move_to_end(version)
            while sum(map(image_chars, self._blocks.values())) > MAX_CACHED_CHARS:
                self._blocks.popitem(last=False)
        return block

    def _build(
        self, version: Version, mime: str, read: Callable[[], bytes], deadline_s: float
    ) -> dict[str, Any] | None:
        try:
            fitted = fit_image(read(), mime, deadline_s=deadline_s)
        except ImagesBusy:
            return None
        if fitted is not None:
            return image_block(*fitted)
        with self._lock:
            self._failed[version] = self._clock()
            while len(self._failed) > MAX_FAILED:
                self._failed.popitem(last=False)
        return None


def first_shown_turn(turns: int) -> int:
    """Return the first turn, from 0, whose images are in a request. `turns` is the number of turns in the thread.

    It moves only every `KEPT_TURNS` turns, because a dropped image makes providers read everything after it again.

    >>> [first_shown_turn(turns) for turns in (0, 1, 8, 9, 12, 13)]
    [0, 0, 0, 4, 4, 8]
    """
    return max(0, (max(turns - 1, 0) // KEPT_TURNS - 1) * KEPT_TURNS)


def fit_image(
    data: bytes, mime: str, *, deadline_s: float = DEADLINE_S, memory_bytes: int = MEMORY_BYTES
) -> tuple[bytes, str] | None:
    """Return an image within the providers' limits, and its type. None if that is not possible. Blocking.

    An image with a side of more than `worker.FITTED_SIDE` pixels, or with too many bytes, becomes a smaller JPEG of its
    first frame on white. Models see no more detail in larger images, and images stay in requests for several turns. A
    child process with limited time and memory decodes the image; the service itself never decodes images. If that
    fails, an image within the limits stays unchanged.

    Raises:
        ImagesBusy: The image must be made smaller, but did not get a slot within `deadline_s`.
    """
    # If we cannot read the header, the provider may still be able to.
    size = image_size(data) or (0, 0)
    given = (data, mime) if len(data) <= MAX_SHOWN_BYTES and max(size) <= MAX_SIDE else None
    if given is not None and max(size) <= worker.FITTED_SIDE:
        return given
    if size[0] * size[1] > worker.MAX_PIXELS:
        return given
    try:
        smaller = _smaller_image(data, deadline_s, memory_bytes)
    except ImagesBusy:
        if given is None:
            raise
        return given
    return given if smaller is None else (smaller, "image/jpeg")


def _smaller_image(data: bytes, deadline_s: float, memory_bytes: int) -> bytes | None:
    if deadline_s <= 0 or not SLOTS.acquire(timeout=deadline_s):
        log.warning("Could not make an image smaller: other images used up the time")
        raise ImagesBusy
    limits = [str(max(1, round(deadline_s))), str(memory_bytes)]
    try:
        done = subprocess.run(  # noqa: S603 - a fixed command
            [sys.executable, "-I", worker.__file__, worker.IMAGE, *limits],
            input=data,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=deadline_s,
            cwd="/",
            env={"LC_ALL": "C.UTF-8"},
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        log.warning("Could not make an image smaller: %s", type(error).__name__)
        return None
    finally:
        SLOTS.release()
    if done.returncode != 0:
        log.info("Could not make an image smaller: exit code %d", done.returncode)
        return None
    return done.stdout


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
    if not isinstance(block, dict) or str(block.get("type")) not in _IMAGE_TYPES:
        return 0
    inner = [v for value in block.values() if isinstance(value, dict) for v in value.values()]
    return max((len(v) for v in [*block.values(), *inner] if isinstance(v, str)), default=0)


def limit_images(messages: list[AnyMessage], most: int = MAX_REQUEST_IMAGES) -> list[AnyMessage]:
    """Return the messages with only the latest images, within the limits of a request. Other images become notes.

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
            if count < most and chars + size <= MAX_REQUEST_CHARS:
                count, chars = count + 1, chars + size
            else:
                blocks[i] = {"type": "text", "text": LEFT_OUT}
        if blocks != content:
            limited[at] = messages[at].model_copy(update={"content": blocks})
    return messages if all(a is b for a, b in zip(limited, messages, strict=True)) else limited


def without_attachments(messages: list[AnyMessage]) -> list[AnyMessage]:
    """Return the messages with a note in place of each image and other attachment.

    The same list is returned if it contains only text.
    """
    bare = [_without_attachments(message) for message in messages]
    return messages if all(a is b for a, b in zip(bare, messages, strict=True)) else bare


def _without_attachments(message: AnyMessage) -> AnyMessage:
    if isinstance(message.content, str):
        return message
    blocks = [
        {"type": "text", "text": REJECTED} if _is_attachment(block, message) else block
        for block in message.content
    ]
    return message if blocks == message.content else message.model_copy(update={"content": blocks})


def _is_attachment(block: str | dict[str, Any], message: AnyMessage) -> bool:
    if isinstance(block, str):
        return False
    return bool(image_chars(block)) or (message.type == HUMAN and block.get("type") != "text")
