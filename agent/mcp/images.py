"""Saves images of MCP results in the thread's outputs, where models can view them and users get them. Blocking."""

import base64
import hashlib
import logging
import os
from collections.abc import Mapping

from mcp.types import CallToolResult, ImageContent

from agent.errors import SandboxError
from agent.paths import OUTPUTS
from agent.state import ViewedImage
from agent.thread_storage import SpaceMeter, ThreadFolders

log = logging.getLogger(__name__)

MAX_IMAGES = 8
"""Images saved per result."""

SUFFIXES: Mapping[str, str] = {
    "image/png": ".png",
    "image/jpeg": ".jpg",
    "image/gif": ".gif",
    "image/webp": ".webp",
}
"""The image types that all models with vision accept."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


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
            _write_new(folders, path.removeprefix(f"{OUTPUTS}/"), data)
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


def _write_new(folders: ThreadFolders, name: str, data: bytes) -> None:
    """Create a file. Never follow a link, because the agent's commands may have put one in its place."""
    folder = os.open(folders.outputs, _FOLDER)
    try:
        with os.fdopen(os.open(name, _NEW_FILE, 0o644, dir_fd=folder), "wb") as file:
            file.write(data)
    except FileExistsError:
        return  # the same image exists already; it is checked again when it is shown
    finally:
        os.close(folder)
