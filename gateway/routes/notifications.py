"""/api/channels/{channel}/messages: sends a client's message to one chat, topic or person, and tells its state."""

import json
import mimetypes
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path, PurePath
from typing import Annotated, Any, Literal

import anyio
from fastapi import APIRouter, HTTPException, Request
from fastapi import Path as PathParameter
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.datastructures import UploadFile

from bots.terminal.adapter import TERMINAL
from bus.characters import clean_name
from bus.notifications.notifications import NotificationRequest, NotificationStatus
from bus.platform import OutgoingFile
from bus.temporary_files import temporary_folder
from gateway.dependencies import BusDep
from gateway.middleware import AUDIT_DETAIL
from gateway.notification_requests import MAX_FILES, Key, NewMessageRequest
from gateway.openapi import error_responses
from gateway.routes.deliveries import OutboxRowView, outbox_row_view
from gateway.routes.views import iso_time

router = APIRouter(prefix="/channels/{channel}/messages", responses=error_responses(404, 409))

FILES_FIELD = "files"
_FORM = "multipart/form-data"
_SCHEMA = NewMessageRequest.model_json_schema()
_REQUEST_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {"schema": _SCHEMA},
            _FORM: {
                "schema": {
                    **_SCHEMA,
                    "properties": {
                        **_SCHEMA["properties"],
                        FILES_FIELD: {
                            "type": "array",
                            "items": {"type": "string", "format": "binary"},
                            "maxItems": MAX_FILES,
                        },
                    },
                }
            },
        },
    }
}


class SentMessageView(BaseModel):
    """A message that a client sends.

    Attributes:
        key: Its name: the client's, or a new one.
        chat, topic, person: As in the request.
        state: That of the delivery that is behind the others; `discarded` = an administrator deleted them.
        error: Why the last attempt failed, in the platform's words.
        message_ids: The platform's IDs of the messages that it became.
        is_repeat: Whether it was already accepted, so that this request changed nothing.
        deliveries: Its deliveries: one for each message of its text and one for each file.
    """

    channel: str
    key: str
    chat: str
    topic: str
    person: str
    state: Literal["pending", "sending", "delivered", "uncertain", "failed", "discarded"]
    error: str | None
    message_ids: list[str]
    is_repeat: bool
    created_at: str
    deliveries: list[OutboxRowView]


@router.post(
    "",
    response_model=SentMessageView,
    status_code=202,
    openapi_extra=_REQUEST_BODY,
    responses=error_responses(400),
)
async def send_message(channel: str, request: Request, bus: BusDep) -> dict[str, Any]:
    """Send a message to one chat, topic or person, once for each `key`. Files come in a form, in the field `files`."""
    if channel == TERMINAL:
        raise HTTPException(409, "A terminal shows messages only while it is open.")
    max_bytes = bus.notifications.max_file_bytes(channel)
    async with AsyncExitStack() as stack:
        new, files = await _read_request(request, stack, max_bytes)
        status = await bus.notifications.send(
            NotificationRequest(
                channel=channel,
                chat=new.chat or new.person,
                topic=new.topic,
                is_person=bool(new.person),
                text=new.text,
                key=new.key or "",
                files=files,
            )
        )
    repeated = ", repeated" if status.is_repeat else ""
    place = f"person {status.chat}" if status.is_person else f"chat {status.chat}"
    request.scope[AUDIT_DETAIL] = f"message {status.key} to {place}{repeated}"
    return sent_message_view(status)


@router.get("/{key}", response_model=SentMessageView)
async def get_message(
    channel: str, key: Annotated[Key, PathParameter()], bus: BusDep
) -> dict[str, Any]:
    """Return a message that a client sent, with its state."""
    return sent_message_view(await bus.notifications.find(channel, key))


async def _read_request(
    request: Request, stack: AsyncExitStack, max_bytes: int
) -> tuple[NewMessageRequest, Sequence[OutgoingFile]]:
    """Return the request and its files, which `stack` deletes. Raises HTTPException, RequestValidationError."""
    files: list[OutgoingFile] = []
    if request.headers.get("content-type", "").startswith(_FORM):
        form = await stack.enter_async_context(
            request.form(
                max_files=MAX_FILES,
                max_fields=len(NewMessageRequest.model_fields),
                max_part_size=1_000_000,
            )
        )
        fields: Any = {name: value for name, value in form.items() if isinstance(value, str)}
        folder = await stack.enter_async_context(temporary_folder())
        for number, upload in enumerate(form.getlist(FILES_FIELD)):
            if not isinstance(upload, UploadFile):
                raise HTTPException(400, f"`{FILES_FIELD}` has a part without a file name.")
            files.append(await _save(upload, folder / str(number), max_bytes))
    else:
        fields = await _read_json(request)
    try:
        new = NewMessageRequest.model_validate(fields)
    except ValidationError as error:
        found = [
            {**one, "loc": ("body", *one["loc"])}
            for one in error.errors(include_url=False, include_context=False)
        ]
        raise RequestValidationError(found) from None
    if not (new.text.strip() or files):
        raise HTTPException(422, "The message has neither a text nor a file.")
    return new, files


async def _read_json(request: Request) -> object:
    try:
        return json.loads(await request.body())
    except ValueError:  # not UTF-8, or not JSON
        raise HTTPException(400, f"The body is neither JSON nor {_FORM}.") from None


async def _save(upload: UploadFile, path: Path, max_bytes: int) -> OutgoingFile:
    """Copy a file of the form. Raises HTTPException if it is empty or too large."""
    name = clean_name(PurePath((upload.filename or "").replace("\\", "/")).name) or "file"
    size = upload.size or 0
    if not size:
        raise HTTPException(422, f"The file {name} is empty.")
    if size > max_bytes:
        raise HTTPException(413, f"The file {name} is larger than {max_bytes:,} bytes.")
    async with await anyio.open_file(path, "wb") as copy:
        while chunk := await upload.read(1_000_000):
            await copy.write(chunk)
    mime = upload.content_type or mimetypes.guess_type(name)[0] or "application/octet-stream"
    return OutgoingFile(path=path, name=name, mime=mime, size_bytes=size)


def sent_message_view(status: NotificationStatus) -> dict[str, Any]:
    """Return a message that a client sends as a `SentMessageView`."""
    return {
        "channel": status.channel,
        "key": status.key,
        "chat": "" if status.is_person else status.chat,
        "topic": status.topic,
        "person": status.chat if status.is_person else "",
        "state": status.state,
        "error": status.error or None,
        "message_ids": status.message_ids,
        "is_repeat": status.is_repeat,
        "created_at": iso_time(status.created_at),
        "deliveries": [outbox_row_view(row) for row in status.deliveries],
    }
