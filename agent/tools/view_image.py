"""view_image: lets the model look at an image of the thread's files."""

import os
import stat
from dataclasses import dataclass

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
from agent.state import ViewedImage
from agent.thread_storage import ThreadFolders, ThreadStorage
from agent.uploads.images import HEAD_BYTES, MIME_OF_SUFFIX, image_type
from agent.uploads.names import suffix_of

NAME = "view_image"
MAX_IMAGE_BYTES = 20 * 1024 * 1024
"""Largest image; providers take no larger ones."""


class ViewImageArgs(BaseModel):
    """Arguments of view_image."""

    image_path: str = Field(description=f"The image, as an absolute path below {USER_DATA}.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageFile:
    """An image that may be shown; `path` is virtual, `data` empty where only a look was asked for."""

    path: str
    mime: str
    size: int
    data: bytes


def view_image_tool(folders: ThreadStorage) -> BaseTool:
    """Build view_image over the threads' folders. The image itself is added to the next request."""

    async def view_image(image_path: str, runtime: ToolRuntime) -> Command[None] | ToolMessage:
        try:
            thread = folders.folders(thread_id_for_run(runtime.context, runtime.config))
            image = await anyio.to_thread.run_sync(load_image, thread, image_path)
        except AgentError as error:
            return _told(runtime, f"Error: {error.user_message}"[:600], failed=True)
        viewed = {image.path: ViewedImage(mime_type=image.mime, size=image.size)}
        message = _told(runtime, f"Successfully read image {image.path}; it follows.")
        return Command(update={"viewed_images": viewed, "messages": [message]})

    return StructuredTool.from_function(
        coroutine=view_image,
        name=NAME,
        description=(
            f"Look at an image file below {USER_DATA} (jpg, jpeg, png, webp or gif, at most "
            f"{MAX_IMAGE_BYTES // 1024 // 1024} MB). You see it in the next step. "
            "Call it once for each image; several calls at once are fine."
        ),
        args_schema=ViewImageArgs,
    )


def load_image(thread: ThreadFolders, path: str, *, with_data: bool = False) -> ImageFile:
    """Check that a path names an image that may be shown; read it when asked to. Blocking.

    Raises:
        PathNotAllowed: Outside the thread's own folders, or through a link out of them.
        SandboxError: No such file, no image, too large, or not what its name says.
    """
    way = files.resolve_path(
        MountTable(m for m in thread.mounts() if relative_parts(m.virtual, USER_DATA)), path
    )
    suffix = suffix_of(way.virtual)
    if suffix not in MIME_OF_SUFFIX:
        kinds = ", ".join(MIME_OF_SUFFIX)
        raise SandboxError(f"this is not an image that can be viewed ({kinds}): {way.virtual}")
    with files.open_path(way) as descriptor, files.os_errors_explained(way.virtual):
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise SandboxError(f"this is a folder, not an image: {way.virtual}")
        if status.st_size > MAX_IMAGE_BYTES:
            raise SandboxError(
                f"the image has {status.st_size} bytes, more than the {MAX_IMAGE_BYTES} that can be "
                f"viewed; make a smaller copy: {way.virtual}"
            )
        with os.fdopen(os.dup(descriptor), "rb") as file:
            data = file.read(MAX_IMAGE_BYTES if with_data else HEAD_BYTES)
    mime = image_type(data[:HEAD_BYTES])
    if mime != MIME_OF_SUFFIX[suffix]:
        found = f"it holds {mime}" if mime else "it holds no image"
        raise SandboxError(f"the content is not what the name says ({found}): {way.virtual}")
    return ImageFile(
        path=way.virtual, mime=mime, size=status.st_size, data=data if with_data else b""
    )


def _told(runtime: ToolRuntime, text: str, *, failed: bool = False) -> ToolMessage:
    return ToolMessage(
        content=text,
        name=NAME,
        tool_call_id=runtime.tool_call_id or "",
        status="error" if failed else "success",
    )
