"""Saves images of MCP results in the thread's outputs, where models can view them and users get them. Blocking."""

import base64
import hashlib
import logging
import os
from collections.abc import Mapping
from contextlib import suppress

from mcp.types import CallToolResult, ImageContent

from agent.errors import SandboxError
from agent.paths import OUTPUTS
from agent.state import ViewedImage
from agent.thread_storage import SpaceMeter, ThreadFolders, create_file

log = logging.getLogger(__name__)

MAX_IMAGES = 8
"""Maximum number of images to save per result."""

SUFFIXES: Mapping[str, str] = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "image/webp": ".webp",
}
"""The image types that all models with vision accept."""


def save_images(
    result: CallToolResult, folders: ThreadFolders, meter: SpaceMeter | None = None
) -> dict[str, ViewedImage]:
    """Save the images of a result and return them by virtual path, in order. Skips images that cannot be saved.

    Args:
        result: The result.
        folders: The thread's folders.
        meter: Enforces the thread's disk quota.
    """
    saved: dict[str, ViewedImage] = {}
    for block in result.content:
        path = image_path(block) if isinstance(block, ImageContent) else None
        if path is None or not isinstance(block, ImageContent) or len(saved) >= MAX_IMAGES:
            continue
        try:
            data = base64.b64decode(block.data, validate=True)
            folders.create()
            if meter is not None:
                meter.require_space(len(data))
            # The same image may exist already. It is checked again when it is shown.
            with suppress(FileExistsError):
                name = path.removeprefix(f"{OUTPUTS}/")
                os.close(create_file(folders.outputs, name, data))
        except (OSError, ValueError, SandboxError) as error:
            log.warning("cannot save an image of an MCP server: %s", error)
            continue
        saved[path] = ViewedImage(mime_type=block.mimeType, size=len(data))
    return saved


def image_path(image: ImageContent) -> str | None:
    """Return the virtual path of an image, derived from its content. None if models cannot view its type."""
    suffix = SUFFIXES.get(image.mimeType)
    if suffix is None:
        return None
    data = image.data.encode("utf-8", "replace")  # a server can send any character
    return f"{OUTPUTS}/mcp-{hashlib.sha256(data).hexdigest()[:16]}{suffix}"
