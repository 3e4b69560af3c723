"""Shows the model the images that tools returned: view_image, and tools of MCP servers."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import anyio.to_thread
from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ExtendedModelResponse, ModelRequest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.config import get_config
from langgraph.types import Command
from typing_extensions import override

from agent.errors import AgentError
from agent.middleware.handler_types import ModelHandler
from agent.middleware.tool_calls import calls_tools
from agent.middleware.uploads import is_stored_user_message
from agent.options import thread_id_for_run
from agent.state import SHOWS_IMAGES, ThreadState
from agent.thread_storage import ThreadFolders, ThreadStorage
from agent.tools.view_image import load_image
from agent.uploads.images import ModelImages, first_shown_turn, limit_images

MAX_IMAGES = 8
"""Maximum number of images after one step; the latest ones are kept."""

INTRO = "Here are the images you've viewed:"
NOT_SHOWN = "no longer shown here; view it again if you need it"

_CLEARED: Command[Any] = Command(update={"viewed_images": {}})


class ViewImageMiddleware(AgentMiddleware[ThreadState, Any]):
    """Adds the images of the latest turns to each request, after the results of the calls that returned them.

    A line with the file name replaces older images, and images that were viewed again later. The thread stores only
    paths, so that checkpoints and streams stay small. A request also has a limit for its images from all sources.
    """

    def __init__(self, folders: ThreadStorage, images: ModelImages) -> None:
        super().__init__()
        self._folders = folders
        self._images = images

    @override
    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelHandler
    ) -> ExtendedModelResponse[Any]:
        places = image_places(request.messages)
        if places:
            messages = await anyio.to_thread.run_sync(
                _with_images, request.messages, places, self._thread(request), self._images
            )
            request = request.override(messages=messages)
        messages = limit_images(request.messages)
        if messages is not request.messages:
            request = request.override(messages=messages)
        response = await handler(request)
        is_over = not calls_tools(response.result)
        viewed = request.state.get("viewed_images")
        return ExtendedModelResponse(response, _CLEARED if viewed and is_over else None)

    def _thread(self, request: ModelRequest[Any]) -> ThreadFolders:
        return self._folders.folders(thread_id_for_run(request.runtime.context, get_config()))


@dataclass(frozen=True, slots=True, kw_only=True)
class ImagePlace:
    """Images of one step.

    Attributes:
        position: The position of their message in the request, before others are inserted.
        turn: The number of the turn, from 0.
        paths: Their virtual paths.
        shown: The paths whose images the model sees. The others are only named.
    """

    position: int
    turn: int
    paths: tuple[str, ...]
    shown: frozenset[str] = frozenset()


def image_places(messages: Sequence[AnyMessage]) -> list[ImagePlace]:
    """Return where images belong: right after the results of a step's calls, once all results are there."""
    places = list(_steps_with_images(messages))
    if not places:
        return []
    turns = sum(map(is_stored_user_message, messages))
    first = first_shown_turn(turns)
    latest = {path: place.position for place in places for path in place.paths}
    return [
        ImagePlace(
            position=place.position,
            turn=place.turn,
            paths=place.paths,
            shown=frozenset(
                path
                for path in place.paths[-MAX_IMAGES:]
                if place.turn >= first and latest[path] == place.position
            ),
        )
        for place in places
    ]


def _steps_with_images(messages: Sequence[AnyMessage]) -> Iterator[ImagePlace]:
    turn, open_calls, paths = -1, set[str | None](), dict[str, None]()
    for at, message in enumerate(messages):
        # Compare `type` first: isinstance checks of messages are slow, and a thread may have thousands.
        if message.type == "tool":
            open_calls.discard(message.tool_call_id)
            paths |= dict.fromkeys(message.additional_kwargs.get(SHOWS_IMAGES) or ())
            if paths and not open_calls:
                yield ImagePlace(position=at + 1, turn=max(turn, 0), paths=tuple(paths))
                paths = {}
            continue
        open_calls, paths = set(), {}
        if isinstance(message, AIMessage):
            open_calls = {call["id"] for call in message.tool_calls}
        elif is_stored_user_message(message):
            turn += 1


def _with_images(
    messages: Sequence[AnyMessage],
    places: Sequence[ImagePlace],
    thread: ThreadFolders,
    images: ModelImages,
) -> list[AnyMessage]:
    """Insert the messages with images at their places. Blocking."""
    until, result, at = images.deadline(), list[AnyMessage](), 0
    for place in places:
        result += messages[at : place.position]
        result.append(image_message(thread, place, images, until=until))
        at = place.position
    return [*result, *messages[at:]]


def image_message(
    thread: ThreadFolders, place: ImagePlace, images: ModelImages, *, until: float
) -> HumanMessage:
    """Return a message with the images, and lines for images that are not shown or cannot be read. Blocking."""
    content: list[str | dict[Any, Any]] = [{"type": "text", "text": INTRO}]
    for path in place.paths:
        if path not in place.shown:
            content.append({"type": "text", "text": f"\n- {path}: {NOT_SHOWN}"})
            continue
        try:
            image = load_image(thread, path, images, until=until)
        except AgentError as error:
            content.append({"type": "text", "text": f"\n- {path}: {error.user_message}"})
            continue
        content.append({"type": "text", "text": f"\n- **{path}** ({image.mime})"})
        content.append(image.block or {})
    return HumanMessage(content, additional_kwargs={"hide_from_ui": True})
