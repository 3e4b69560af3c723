"""DELETE /api/threads/{id}: a thread with everything that belongs to it."""

import logging
from uuid import UUID

from anyio import to_thread
from fastapi import APIRouter, HTTPException, Response

from gateway.dependencies import ServicesDep

log = logging.getLogger(__name__)

router = APIRouter()


@router.delete("/threads/{thread_id}", status_code=204, include_in_schema=False)
async def delete_thread(thread_id: UUID, services: ServicesDep) -> Response:
    """Delete a thread: what runs on it is stopped; its runs, state and files go."""
    known = await services.runs.delete_thread(str(thread_id))
    try:
        had_files = await to_thread.run_sync(services.folders.delete, str(thread_id))
    except OSError:
        log.exception("the files of thread %s could not be deleted", thread_id)
        raise HTTPException(500, "Failed to delete local thread data.") from None
    if not (known or had_files):
        raise HTTPException(404, f"Thread {thread_id} not found")
    return Response(status_code=204)
