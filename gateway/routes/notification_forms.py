"""Reads requests that send a notification: JSON, or a form with files."""

import json
import mimetypes
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path, PurePath
from typing import Any, TypeVar

import anyio
from fastapi import HTTPException, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError
from starlette.datastructures import UploadFile

from bus.characters import clean_name
from bus.platform import OutgoingFile
from bus.temporary_files import temporary_folder
from gateway.multipart import FILES_FIELD
from gateway.notification_requests import MAX_FILES, NotificationBody

_FORM = "multipart/form-data"

_MAX_FIELDS = 110
"""Maximum number of a form's fields other than files: 100 channels of a broadcast, and one of each other field."""

Body = TypeVar("Body", bound=NotificationBody)


def describe_body(model: type[NotificationBody]) -> dict[str, Any]:
    """Return the request body's part of the OpenAPI document."""
    schema = model.model_json_schema()
    files = {
        "type": "array",
        "items": {"type": "string", "format": "binary"},
        "maxItems": MAX_FILES,
    }
    form = {**schema, "properties": {**schema["properties"], FILES_FIELD: files}}
    content = {"application/json": {"schema": schema}, _FORM: {"schema": form}}
    return {"requestBody": {"required": True, "content": content}}


async def read_notification(
    request: Request, stack: AsyncExitStack, model: type[Body]
) -> tuple[Body, Sequence[UploadFile]]:
    """Return the request and its files, which `stack` closes. Raises HTTPException, RequestValidationError."""
    uploads: Sequence[str | UploadFile] = []
    if request.headers.get("content-type", "").startswith(_FORM):
        parsing = request.form(max_files=MAX_FILES, max_fields=_MAX_FIELDS, max_part_size=1_000_000)
        try:
            form = await stack.enter_async_context(parsing)
        except UnicodeError:
            raise HTTPException(400, "The form is not in the charset that it names.") from None
        uploads = form.getlist(FILES_FIELD)
        lists = {name: form.getlist(name) for name in form if name != FILES_FIELD}
        fields: Any = {name: one[0] if len(one) == 1 else one for name, one in lists.items()}
    else:
        fields = await _read_json(request)
    try:
        new = model.model_validate(fields)
    except ValidationError as error:
        found = [
            {**one, "loc": ("body", *one["loc"])}
            for one in error.errors(include_url=False, include_context=False, include_input=False)
        ]
        raise RequestValidationError(found) from None
    files = [one for one in uploads if isinstance(one, UploadFile)]
    if len(files) < len(uploads):
        raise HTTPException(400, f"`{FILES_FIELD}` has a part without a file name.")
    return new, files


async def save_files(
    new: NotificationBody,
    uploads: Sequence[UploadFile],
    stack: AsyncExitStack,
    max_bytes: Mapping[str, int],
) -> Sequence[OutgoingFile]:
    """Copy the files of a form into a temporary folder.

    Args:
        new: The request.
        uploads: Its files.
        stack: Deletes the folder when it exits.
        max_bytes: The size of the largest file that each channel sends.

    Raises:
        HTTPException: A file is empty or too large, or there is neither a text nor a file.
    """
    if not (new.text.strip() or uploads):
        raise HTTPException(422, "The message has neither a text nor a file.")
    folder = await stack.enter_async_context(temporary_folder())
    return [
        await _save(upload, folder / str(number), max_bytes)
        for number, upload in enumerate(uploads)
    ]


async def _read_json(request: Request) -> object:
    try:
        return json.loads(await request.body())
    except (ValueError, RecursionError):  # not UTF-8, not JSON, or nested too deeply
        raise HTTPException(400, f"The body is neither JSON nor {_FORM}.") from None


async def _save(upload: UploadFile, path: Path, max_bytes: Mapping[str, int]) -> OutgoingFile:
    name = clean_name(PurePath((upload.filename or "").replace("\\", "/")).name) or "file"
    size = upload.size or 0
    if not size:
        raise HTTPException(422, f"The file {name} is empty.")
    for channel, limit in max_bytes.items():
        if size > limit:
            raise HTTPException(
                413, f"The file {name} is larger than the {limit:,} bytes that {channel} sends."
            )
    async with await anyio.open_file(path, "wb") as copy:
        while chunk := await upload.read(1_000_000):
            await copy.write(chunk)
    mime = upload.content_type or mimetypes.guess_type(name)[0] or "application/octet-stream"
    return OutgoingFile(path=path, name=name, mime=mime, size_bytes=size)
