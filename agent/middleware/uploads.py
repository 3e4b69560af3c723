"""Describes uploaded files to the model, and shows it the images of the newest message."""

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import anyio.to_thread
from langchain.agents.middleware import AgentMiddleware
from langchain.agents.middleware.types import ExtendedModelResponse, ModelRequest
from langchain_core.messages import AnyMessage
from langgraph.config import get_config
from langgraph.types import Command
from typing_extensions import override

from agent.middleware.handler_types import ModelHandler
from agent.middleware.tool_calls import calls_tools
from agent.options import RunContext
from agent.paths import UPLOADS
from agent.state import ThreadState, UploadedFile
from agent.uploads.images import first_shown_turn, image_chars
from agent.uploads.names import suffix_of
from agent.uploads.prompt_block import uploads_block
from agent.uploads.snapshot import FileReference, UploadSnapshot, file_references
from agent.user_messages import is_user_message

Block = dict[str, Any]


MAX_TURNS = 256
"""Number of turns with cached blocks: enough for running turns and some that wait for a person."""

MAX_CACHED_IMAGE_CHARS = 64_000_000
"""Maximum total length of the images of cached turns, base64 characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _DescribedTurn:
    """The uploads shown in a turn's requests.

    Attributes:
        run_id: The run.
        newest: Position of a person's newest message; -1 = none.
        originals: By position, the newest message and all messages with files, as in the thread.
        described: By position, the same messages with their blocks. Messages without a block are missing.
        uploaded: The newest message's files.
        image_chars: Length of the newest message's images in base64.
    """

    run_id: str | None
    newest: int
    originals: Mapping[int, AnyMessage]
    described: Mapping[int, AnyMessage]
    uploaded: list[UploadedFile]
    image_chars: int

    def matches(self, run_id: str | None, messages: Sequence[AnyMessage]) -> bool:
        """Return whether these messages belong to the same turn of the same run."""
        return (
            self.run_id == run_id
            and self.newest == _newest_position(messages)
            and all(messages[at] is original for at, original in self.originals.items())
        )


class UploadsMiddleware(AgentMiddleware[ThreadState, Any]):
    """Adds an `<uploaded_files>` block to each message with files, before its text.

    The history keeps the original text. Each turn builds the blocks again, and the same files always give the same
    block. The newest message also lists earlier files if it has files itself, or if some files are not listed yet.
    Files that arrive without a message during a turn are listed in the next one. `uploaded_files` is set to this turn's
    files.

    Args:
        take_snapshot: Takes a snapshot of a thread's uploads. Blocking.
        supports_vision: Whether the model accepts images. If so, it sees the images of the latest turns' messages.
    """

    def __init__(
        self, take_snapshot: Callable[[str], UploadSnapshot], *, supports_vision: bool
    ) -> None:
        super().__init__()
        self._take_snapshot = take_snapshot
        self._supports_vision = supports_vision
        self._turns: OrderedDict[str, _DescribedTurn] = OrderedDict()

    @override
    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelHandler
    ) -> ExtendedModelResponse[Any]:
        caller = RunContext.from_runtime(request.runtime.context, get_config())
        turn = self._turns.pop(caller.thread_id, None)
        if turn is None or not turn.matches(caller.run_id, request.messages):
            turn = await anyio.to_thread.run_sync(self._describe_turn, request.messages, caller)
        response = await handler(_with_blocks(request, turn.described))
        if calls_tools(response.result):
            self._keep(caller.thread_id, turn)
        if turn.uploaded == (request.state.get("uploaded_files") or []):
            return ExtendedModelResponse(response)
        return ExtendedModelResponse(response, Command(update={"uploaded_files": turn.uploaded}))

    def _keep(self, thread_id: str, turn: _DescribedTurn) -> None:
        self._turns[thread_id] = turn
        size = sum(kept.image_chars for kept in self._turns.values())
        while len(self._turns) > MAX_TURNS or size > MAX_CACHED_IMAGE_CHARS:
            size -= self._turns.popitem(last=False)[1].image_chars

    def _describe_turn(self, messages: Sequence[AnyMessage], caller: RunContext) -> _DescribedTurn:
        """Build the blocks of messages. Blocking."""
        view = self._take_snapshot(caller.thread_id)
        newest = _newest_position(messages)
        # Most messages of a thread have no files: skip them.
        named = {
            i: file_references(options)
            for i, message in enumerate(messages)
            if ((options := message.additional_kwargs) or i == newest)
            and is_stored_user_message(message)
        }
        files = {i: view.present(found) for i, found in named.items()}
        shown = self._shown_images(view, messages, files)
        described: dict[int, AnyMessage] = {}
        for i, found in files.items():
            block = self._block(view, found, files if i == newest else None)
            if block is not None:
                content = _prepend_block(messages[i].content, block, shown.get(i, ()))
                described[i] = messages[i].model_copy(update={"content": content})
        return _DescribedTurn(
            run_id=caller.run_id,
            newest=newest,
            originals={i: messages[i] for i, found in named.items() if found or i == newest},
            described=described,
            uploaded=[_uploaded_file(file) for file in files.get(newest, ())],
            image_chars=sum(image_chars(image) for images in shown.values() for image in images),
        )

    def _shown_images(
        self,
        view: UploadSnapshot,
        messages: Sequence[AnyMessage],
        files: Mapping[int, Sequence[FileReference]],
    ) -> dict[int, list[Block]]:
        """Return the images of the messages of the latest turns, by position."""
        if not self._supports_vision or not any(files.values()):
            return {}
        turns = [i for i, message in enumerate(messages) if is_stored_user_message(message)]
        latest = turns[first_shown_turn(len(turns)) :]
        until = view.deadline()
        return {i: view.images(files[i], until) for i in reversed(latest) if files.get(i)}

    def _block(
        self,
        view: UploadSnapshot,
        named: Sequence[FileReference],
        known: Mapping[int, Sequence[FileReference]] | None,
    ) -> str | None:
        """Return the block of a message. The newest message's block also lists earlier files.

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


def _newest_position(messages: Sequence[AnyMessage]) -> int:
    """Return the position of a person's newest message; -1 if there is none."""
    positions = range(len(messages) - 1, -1, -1)
    return next((at for at in positions if is_stored_user_message(messages[at])), -1)


def _with_blocks(
    request: ModelRequest[Any], described: Mapping[int, AnyMessage]
) -> ModelRequest[Any]:
    if not described:
        return request
    messages = list(request.messages)
    for at, message in described.items():
        messages[at] = message
    return request.override(messages=messages)


def _uploaded_file(file: FileReference) -> UploadedFile:
    return UploadedFile(
        filename=file.name,
        size=file.size,
        path=f"{UPLOADS}/{file.name}",
        extension=suffix_of(file.name),
    )


def is_stored_user_message(message: AnyMessage) -> bool:
    """Return whether a message is a user's and stored. The framework's reminders are only in requests.

    >>> from langchain_core.messages import HumanMessage
    >>> is_stored_user_message(HumanMessage("hi", id="1")), is_stored_user_message(HumanMessage("go on"))
    (True, False)
    """
    # Only stored messages have an id.
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
