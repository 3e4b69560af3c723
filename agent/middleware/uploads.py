"""Describes uploaded files to the model, and shows it the images of the newest message."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import anyio.to_thread
from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ExtendedModelResponse, ModelRequest
from langchain_core.messages import AnyMessage
from langgraph.config import get_config
from langgraph.types import Command
from typing_extensions import override

from agent.middleware.handlers import ModelHandler
from agent.options import thread_id_for_run
from agent.paths import UPLOADS
from agent.state import ThreadState, UploadedFile
from agent.uploads.names import suffix_of
from agent.uploads.prompt_block import uploads_block
from agent.uploads.snapshot import FileReference, UploadSnapshot, file_references
from agent.user_messages import is_user_message

Block = dict[str, Any]


class UploadsMiddleware(AgentMiddleware[ThreadState, Any]):
    """Adds an `<uploaded_files>` block to each message with files, before its text.

    The history keeps the original text: blocks are built for each request, always the same for the same files. The
    newest message also lists earlier files, if it has files or if there are files that the model has not been told
    about. `uploaded_files` is set to this turn's files.

    Args:
        take_snapshot: Takes a snapshot of a thread's uploads. Blocking.
        supports_vision: Whether the model accepts images; then the newest message's images are shown to it.
    """

    def __init__(
        self, take_snapshot: Callable[[str], UploadSnapshot], *, supports_vision: bool
    ) -> None:
        super().__init__()
        self._take_snapshot = take_snapshot
        self._supports_vision = supports_vision

    @override
    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelHandler
    ) -> ExtendedModelResponse[Any]:
        thread_id = _thread_id(request)
        messages, update = await anyio.to_thread.run_sync(
            self._describe_uploads, request, thread_id
        )
        return ExtendedModelResponse(await handler(request.override(messages=messages)), update)

    def _describe_uploads(
        self, request: ModelRequest[Any], thread_id: str
    ) -> tuple[list[AnyMessage], Command[Any] | None]:
        """Return the messages with their blocks, and the state update. Blocking."""
        messages = _UploadMessages(
            self._take_snapshot(thread_id), request.messages, supports_vision=self._supports_vision
        )
        files = messages.newest_files()
        if files == (request.state.get("uploaded_files") or []):
            return messages.messages(), None
        return messages.messages(), Command(update={"uploaded_files": files})


@dataclass(frozen=True, slots=True, kw_only=True)
class _MessageFiles:
    """A message's files that still exist."""

    files: Sequence[FileReference]
    is_newest: bool


class _UploadMessages:
    """Builds the messages of one request."""

    def __init__(
        self, view: UploadSnapshot, messages: Sequence[AnyMessage], *, supports_vision: bool
    ) -> None:
        self._view = view
        self._messages = messages
        self._supports_vision = supports_vision
        people = [i for i, message in enumerate(messages) if is_stored_user_message(message)]
        self._named = {
            i: _MessageFiles(
                files=view.present(file_references(messages[i].additional_kwargs)),
                is_newest=i == people[-1],
            )
            for i in people
        }

    def newest_files(self) -> list[UploadedFile]:
        """Return this turn's files for the state."""
        return [
            UploadedFile(
                filename=file.name,
                size=file.size,
                path=f"{UPLOADS}/{file.name}",
                extension=suffix_of(file.name),
            )
            for named in self._named.values()
            if named.is_newest
            for file in named.files
        ]

    def messages(self) -> list[AnyMessage]:
        """Return the messages with blocks; messages without files stay the same objects."""
        return [
            self._with_block(message, self._named[i]) if i in self._named else message
            for i, message in enumerate(self._messages)
        ]

    def _with_block(self, message: AnyMessage, named: _MessageFiles) -> AnyMessage:
        block = self._newest_block(named) if named.is_newest else self._block(named)
        if block is None:
            return message
        images = self._view.images(named.files) if self._supports_vision and named.is_newest else []
        return message.model_copy(
            update={"content": _prepend_block(message.content, block, images)}
        )

    def _block(self, named: _MessageFiles) -> str | None:
        if not named.files:
            return None
        return uploads_block(
            [self._view.summarize(file) for file in named.files], sees=self._supports_vision
        )

    def _newest_block(self, named: _MessageFiles) -> str | None:
        known = {file.name for files in self._named.values() for file in files.files}
        if not named.files and not self._view.has_unlisted(known):
            return None
        files = [self._view.summarize(file) for file in named.files]
        earlier = self._view.earlier({file.name for file in named.files})
        return uploads_block(files, earlier, sees=self._supports_vision)


def is_stored_user_message(message: AnyMessage) -> bool:
    """Return whether a user wrote a message that is stored: reminders of the framework are in requests only.

    >>> from langchain_core.messages import HumanMessage
    >>> is_stored_user_message(HumanMessage("hi", id="1")), is_stored_user_message(HumanMessage("go on"))
    (True, False)
    """
    # Every stored message has an id.
    return is_user_message(message) and message.id is not None


def _prepend_block(
    content: str | list[str | Block], block: str, images: Sequence[Block]
) -> str | list[str | Block]:
    """Put a block before a message's text, and images after it."""
    if isinstance(content, str):
        text = f"{block}\n\n{content}" if content else block
        return [{"type": "text", "text": text}, *images] if images else text
    parts = list(content)
    for i, part in enumerate(parts):
        if isinstance(part, str):
            parts[i] = f"{block}\n\n{part}"
            break
        if part.get("type") == "text":
            parts[i] = {**part, "text": f"{block}\n\n{part.get('text', '')}"}
            break
    else:
        parts.insert(0, {"type": "text", "text": block})
    return [*parts, *images]


def _thread_id(request: ModelRequest[Any]) -> str:
    return thread_id_for_run(request.runtime.context, get_config())
