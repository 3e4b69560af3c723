"""/api/threads/{id}/uploads: files uploaded to a thread."""

from datetime import datetime
from typing import Any

from fastapi import APIRouter, HTTPException, Request
from pydantic import BaseModel, Field

from agent.client.files import upload_message, upload_to_json
from agent.errors import (
    ThreadIdInvalid,
    UploadError,
    UploadNotAllowed,
    UploadNotFound,
    UploadTooLarge,
)
from gateway.dependencies import AgentServicesDep
from gateway.multipart import FILES_FIELD, NOT_A_FORM, MultipartForm
from gateway.openapi import error_responses

router = APIRouter(responses=error_responses(400, 404, 500))

_STATUS: tuple[tuple[type[Exception], int], ...] = (
    (ThreadIdInvalid, 400),
    (UploadNotAllowed, 400),
    (UploadNotFound, 404),
    (UploadTooLarge, 413),
    (UploadError, 507),
)

_REQUEST_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "properties": {
                        FILES_FIELD: {
                            "type": "array",
                            "items": {"type": "string", "format": "binary"},
                        }
                    },
                    "required": [FILES_FIELD],
                }
            }
        },
    }
}


class UploadedFileView(BaseModel):
    """A stored file. Paths are as the agent sees them."""

    filename: str
    size: int = Field(description="Bytes")
    path: str
    virtual_path: str
    artifact_url: str
    extension: str
    original_filename: str | None = Field(
        default=None, description="The name before it was changed"
    )
    markdown_file: str | None = Field(default=None, description="The text version of a document")
    markdown_path: str | None = None
    markdown_virtual_path: str | None = None
    markdown_artifact_url: str | None = None
    markdown_error: str | None = Field(default=None, description="Why there is no text version")


class ListedFileView(UploadedFileView):
    """A file in the list."""

    modified: datetime


class UploadResponse(BaseModel):
    """The stored files. `success` is false if a file was skipped."""

    success: bool
    files: list[UploadedFileView]
    message: str
    skipped_files: list[str]


class UploadList(BaseModel):
    """All files of a thread."""

    files: list[ListedFileView]
    count: int


class UploadLimitsView(BaseModel):
    """Limits of one request; sizes in bytes."""

    max_files: int
    max_file_size: int
    max_total_size: int


class UploadDeleteResponse(BaseModel):
    """The file was deleted."""

    success: bool
    message: str


@router.post(
    "/threads/{thread_id}/uploads", openapi_extra=_REQUEST_BODY, response_model_exclude_none=True
)
async def upload_files(
    thread_id: str, request: Request, agent_services: AgentServicesDep
) -> UploadResponse:
    """Store the files of a multipart form. Documents are also converted to text."""
    form = MultipartForm(request.headers.get("content-type", ""), request.stream())
    try:
        accepted = await agent_services.uploads.accept(thread_id, form.files())
    except (ThreadIdInvalid, UploadError) as error:
        raise _http_error(error) from None
    if form.count == 0:
        raise HTTPException(400, f"No files were sent. {NOT_A_FORM}")
    if not accepted.files:
        names = ", ".join(accepted.skipped)
        raise HTTPException(400, f"No file was stored: these names cannot be used: {names}.")
    return UploadResponse(
        success=not accepted.skipped,
        files=[UploadedFileView(**upload_to_json(thread_id, file)) for file in accepted.files],
        message=upload_message(accepted),
        skipped_files=list(accepted.skipped),
    )


@router.get("/threads/{thread_id}/uploads/limits")
async def get_limits(thread_id: str, agent_services: AgentServicesDep) -> UploadLimitsView:
    """Return the limits of one request."""
    try:
        agent_services.folders.folders(thread_id)
    except ThreadIdInvalid as error:
        raise _http_error(error) from None
    known = agent_services.uploads.limits
    return UploadLimitsView(
        max_files=known.max_files,
        max_file_size=known.max_file_size,
        max_total_size=known.max_total_size,
    )


@router.get("/threads/{thread_id}/uploads/list", response_model_exclude_none=True)
async def list_files(thread_id: str, agent_services: AgentServicesDep) -> UploadList:
    """List the files of a thread, including text versions."""
    try:
        files = await agent_services.uploads.list_files(thread_id)
    except ThreadIdInvalid as error:
        raise _http_error(error) from None
    shown = [
        ListedFileView(**upload_to_json(thread_id, file), modified=file.modified) for file in files
    ]
    return UploadList(files=shown, count=len(shown))


@router.delete("/threads/{thread_id}/uploads/{filename:path}")
async def delete_file(
    thread_id: str, filename: str, agent_services: AgentServicesDep
) -> UploadDeleteResponse:
    """Delete a file and its text version."""
    try:
        await agent_services.uploads.delete(thread_id, filename)
    except (ThreadIdInvalid, UploadError) as error:
        raise _http_error(error) from None
    return UploadDeleteResponse(success=True, message=f"Deleted {filename}")


def _http_error(error: ThreadIdInvalid | UploadError) -> HTTPException:
    status = next(status for kind, status in _STATUS if isinstance(error, kind))
    return HTTPException(status, error.user_message)
