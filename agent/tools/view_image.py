"""view_image: shows the model an image from the thread's files."""

import math
import os
import stat
from dataclasses import dataclass, replace
from typing import Any

import anyio.to_thread
from langchain.tools import ToolRuntime
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.types import Command
from pydantic import BaseModel, Field

from agent.errors import AgentError, SandboxError
from agent.options import thread_id_for_run
from agent.paths import USER_DATA, MountTable, relative_parts
from agent.sandbox import files
from agent.state import SHOWS_IMAGES, ViewedImage
from agent.thread_storage import ThreadFolders, ThreadStorage
from agent.tools.results import error_text, tool_message
from agent.uploads.images import HEAD_BYTES, MIME_OF_SUFFIX, ModelImages, image_type
from agent.uploads.names import suffix_of

NAME = "view_image"
MAX_IMAGE_BYTES = 20 * 1024 * 1024
"""Largest image to read, bytes. If it exceeds the provider's limits, the model sees a smaller version."""


class ViewImageArgs(BaseModel):
    """Arguments of view_image."""

    image_path: str = Field(description=f"Absolute path of the image, below {USER_DATA}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFile:
    """An image that can be viewed; `path` is virtual, `block` is its content for the model, if requested."""

    path: str
    mime: str
    size: int
    block: dict[str, Any] | None = None


def view_image_tool(folders: ThreadStorage) -> BaseTool:
    """Build view_image over threads' folders. The image itself goes into the next model request."""

    async def view_image(image_path: str, runtime: ToolRuntime) -> Command[None] | ToolMessage:
        try:
            return await show_image(folders, image_path, runtime, NAME)
        except AgentError as error:
            return tool_message(runtime, NAME, error_text(error), failed=True)

    return StructuredTool.from_function(
        coroutine=view_image,
        name=NAME,
        description=(
            f"View an image file below {USER_DATA} (jpg, jpeg, png, webp or gif, at most "
            f"{MAX_IMAGE_BYTES // 1024 // 1024} MB). You see it in the next step. "
            "Call this once per image; several calls in one step are fine."
        ),
        args_schema=ViewImageArgs,
    )


async def show_image(
    folders: ThreadStorage, path: str, runtime: ToolRuntime, name: str
) -> Command[None]:
    """Return the result of a tool call that shows an image. `name`: the tool's name.

    Raises:
        PathNotAllowed, SandboxError: See `load_image`.
    """
    thread = folders.folders(thread_id_for_run(runtime.context, runtime.config))
    image = await anyio.to_thread.run_sync(load_image, thread, path)
    viewed = {image.path: ViewedImage(mime_type=image.mime, size=image.size)}
    message = tool_message(runtime, name, f"Successfully read image {image.path}; it follows.")
    message.additional_kwargs[SHOWS_IMAGES] = [image.path]
    return Command(update={"viewed_images": viewed, "messages": [message]})


def load_image(
    thread: ThreadFolders, path: str, images: ModelImages | None = None, *, until: float = math.inf
) -> ImageFile:
    """Check that a path names an image that models can view. With `images`, build its block. Blocking.

    Args:
        thread: The thread's folders.
        path: The image's virtual path.
        images: Builds blocks.
        until: The common deadline of the images in one request (`ModelImages.deadline`).

    Raises:
        PathNotAllowed: The path is outside the thread's folders, or a link leads out of them.
        SandboxError: The file does not exist, is not an image, is too large, or has a different type than its name
            says.
    """
    mounts = (m for m in thread.mounts() if relative_parts(m.virtual, USER_DATA))
    resolved = files.resolve_path(MountTable(mounts), path)
    suffix = suffix_of(resolved.virtual)
    if suffix not in MIME_OF_SUFFIX:
        kinds = ", ".join(MIME_OF_SUFFIX)
        raise SandboxError(f"only images ({kinds}) can be viewed: {resolved.virtual}")
    with files.open_path(resolved) as descriptor, files.os_errors_explained(resolved.virtual):
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise SandboxError(f"this is a folder, not an image: {resolved.virtual}")
        if status.st_size > MAX_IMAGE_BYTES:
            raise SandboxError(
                f"the image has {status.st_size} bytes, more than the limit of {MAX_IMAGE_BYTES}; "
                f"make a smaller copy: {resolved.virtual}"
            )
        with os.fdopen(os.dup(descriptor), "rb") as file:
            head = file.read(HEAD_BYTES)
            mime = image_type(head)
            if mime != MIME_OF_SUFFIX[suffix]:
                found = f"it is {mime}" if mime else "it is not an image"
                raise SandboxError(
                    f"the content does not match the file name ({found}): {resolved.virtual}"
                )
            shown = ImageFile(path=resolved.virtual, mime=mime, size=status.st_size)
            if images is None:
                return shown
            version = (status.st_ino, status.st_mtime_ns, status.st_size)
            block = images.block(
                version, mime, lambda: head + file.read(MAX_IMAGE_BYTES), until=until
            )
    if block is None:
        raise SandboxError(
            f"the image is too large to be shown; make a smaller copy: {resolved.virtual}"
        )
    return replace(shown, block=block)
