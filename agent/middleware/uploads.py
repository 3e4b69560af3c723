"""Describes uploaded files to the model, and shows it the images of the newest message."""

from collections.abc import Callable, Mapping, Sequence
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
        thread_id = thread_id_for_run(request.runtime.context, get_config())
        messages, update = await anyio.to_thread.run_sync(
            self._describe_uploads, request, thread_id
        )
        return ExtendedModelResponse(await handler(request.override(messages=messages)), update)

    def _describe_uploads(
        self, request: ModelRequest[Any], thread_id: str
    ) -> tuple[list[AnyMessage], Command[Any] | None]:
        """Return the messages with their blocks, and the state update. Blocking.

        Messages without files stay the same objects.
        """
        view, messages = self._take_snapshot(thread_id), list(request.messages)
        files = {
            i: view.present(file_references(message.additional_kwargs))
            for i, message in enumerate(messages)
            if is_stored_user_message(message)
        }
        newest = max(files, default=-1)
        for i, named in files.items():
            block = self._block(view, named, files if i == newest else None)
            if block is not None:
                images = view.images(named) if self._supports_vision and i == newest else []
                content = _prepend_block(messages[i].content, block, images)
                messages[i] = messages[i].model_copy(update={"content": content})
        uploaded = [_uploaded_file(file) for file in files.get(newest, ())]
        if uploaded == (request.state.get("uploaded_files") or []):
            return messages, None
        return messages, Command(update={"uploaded_files": uploaded})

    def _block(
        self,
        view: UploadSnapshot,
        named: Sequence[FileReference],
        known: Mapping[int, Sequence[FileReference]] | None,
    ) -> str | None:
        """Return the block of a message; the newest one also lists earlier files.

        Args:
            view: The thread's files.
            named: The message's files.
            known: For the newest message: the files of all messages.
        """
        names = {file.name for files in (known or {}).values() for file in files}
        if not named and (known is None or not view.has_unlisted(names)):
            return None
        earlier = view.earlier({file.name for file in named}) if known is not None else None
        summaries = [view.summarize(file) for file in named]
        return uploads_block(summaries, earlier, sees=self._supports_vision)


def _uploaded_file(file: FileReference) -> UploadedFile:
    return UploadedFile(
        filename=file.name,
        size=file.size,
        path=f"{UPLOADS}/{file.name}",
        extension=suffix_of(file.name),
    )


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
