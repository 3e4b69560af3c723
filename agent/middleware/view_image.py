"""Shows the model the images that tools returned: view_image, and tools of MCP servers."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

import anyio.to_thread
from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ExtendedModelResponse, ModelRequest, ModelResponse
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langgraph.config import get_config
from langgraph.types import Command
from typing_extensions import override

from agent.errors import AgentError
from agent.middleware.handler_types import ModelHandler
from agent.middleware.tool_calls import calls_tools
from agent.middleware.uploads import is_stored_user_message
from agent.options import thread_id_for_run
from agent.state import SHOWS_IMAGES, ThreadState, ViewedImage
from agent.thread_storage import ThreadFolders, ThreadStorage
from agent.tools.view_image import load_image
from agent.uploads.images import ModelImages, limit_images

MAX_IMAGES = 8
"""Maximum number of images per request; the latest ones are kept."""

INTRO = "Here are the images you've viewed:"

_CLEARED: Command[Any] = Command(update={"viewed_images": {}})


class ViewImageMiddleware(AgentMiddleware[ThreadState, Any]):
    """Adds the turn's images to each request, after the results of the latest calls that returned images.

    The state holds only their paths, and only until the turn ends, so that checkpoints and streams stay small. The
    images of a request, from all sources, also have a common limit.
    """

    def __init__(self, folders: ThreadStorage, images: ModelImages) -> None:
        super().__init__()
        self._folders = folders
        self._images = images

    @override
    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelHandler
    ) -> ExtendedModelResponse[Any]:
        viewed, place = _viewed_images(request), image_insert_position(request.messages)
        if viewed and place is not None:
            thread = self._thread(request)
            message = await anyio.to_thread.run_sync(image_message, thread, viewed, self._images)
            request = _insert_message(request, place, message)
        messages = limit_images(request.messages)
        if messages is not request.messages:
            request = request.override(messages=messages)
        response = await handler(request)
        return ExtendedModelResponse(response, _clear_viewed_images(viewed, place, response))

    def _thread(self, request: ModelRequest[Any]) -> ThreadFolders:
        return self._folders.folders(thread_id_for_run(request.runtime.context, get_config()))


def image_insert_position(messages: Sequence[AnyMessage]) -> int | None:
    """Return the position for the turn's images: right after the results of the latest calls that returned images.

    None if the turn has no such calls, or if a parallel call has no result yet.
    """
    has_images = False
    for position in range(len(messages) - 1, -1, -1):
        message = messages[position]
        if is_stored_user_message(message):
            return None
        has_images |= SHOWS_IMAGES in message.additional_kwargs
        if isinstance(message, AIMessage) and has_images:
            return _position_after_results(messages, position, message)
    return None


def image_message(
    thread: ThreadFolders, viewed: Mapping[str, ViewedImage], images: ModelImages
) -> HumanMessage:
    """Return the message with the images, and notes for those that cannot be read. Blocking."""
    content: list[str | dict[Any, Any]] = [{"type": "text", "text": INTRO}]
    until = images.deadline()
    for path in list(viewed)[-MAX_IMAGES:]:
        try:
            image = load_image(thread, path, images, until=until)
        except AgentError as error:
            content.append({"type": "text", "text": f"\n- {path}: {error.user_message}"})
            continue
        content.append({"type": "text", "text": f"\n- **{path}** ({image.mime})"})
        content.append(image.block or {})
    return HumanMessage(content, additional_kwargs={"hide_from_ui": True})


def _position_after_results(
    messages: Sequence[AnyMessage], position: int, caller: AIMessage
) -> int | None:
    open_calls = {call["id"] for call in caller.tool_calls}
    position += 1
    while position < len(messages):
        message = messages[position]
        if not isinstance(message, ToolMessage):
            break
        open_calls.discard(message.tool_call_id)
        position += 1
    return None if open_calls else position


def _viewed_images(request: ModelRequest[Any]) -> dict[str, ViewedImage]:
    return cast("dict[str, ViewedImage]", request.state.get("viewed_images") or {})


def _insert_message(
    request: ModelRequest[Any], place: int, message: HumanMessage
) -> ModelRequest[Any]:
    messages = [*request.messages[:place], message, *request.messages[place:]]
    return request.override(messages=messages)


def _clear_viewed_images(
    viewed: Mapping[str, ViewedImage], place: int | None, response: ModelResponse[Any]
) -> Command[Any] | None:
    """Return the update that clears the images if the turn is over, or if they are from a cancelled turn."""
    return _CLEARED if viewed and (place is None or not calls_tools(response.result)) else None
