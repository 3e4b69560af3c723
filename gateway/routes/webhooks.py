"""Webhooks of chat platforms. They need no admin token: each adapter verifies the platform's signature."""

from typing import Annotated

import anyio
from fastapi import APIRouter, HTTPException, Path, Request, Response
from pydantic import BaseModel
from starlette.requests import ClientDisconnect

from bots.common.webhooks import WebhookRequest
from gateway.dependencies import ServicesDep
from store.work_group import WORK_GROUP

router = APIRouter(prefix="/webhooks", tags=["webhooks"])


class WebhookError(BaseModel):
    """The reason why a request was rejected."""

    detail: str


RESPONSES: dict[int | str, dict[str, type[BaseModel] | str]] = {
    400: {"model": WebhookError, "description": "The request is signed correctly but malformed"},
    401: {
        "model": WebhookError,
        "description": "Wrong signature, secret or time",
    },
    404: {"model": WebhookError, "description": "The channel does not use webhooks"},
    408: {"model": WebhookError, "description": "The request body arrived too slowly"},
    413: {"model": WebhookError, "description": "The request body is too large"},
    503: {"model": WebhookError, "description": "Not stored; send it again"},
}


@router.get("/{channel}", include_in_schema=False)
@router.post("/{channel}", responses=RESPONSES, response_class=Response)
async def receive_webhook(
    channel: Annotated[str, Path()], request: Request, services: ServicesDep
) -> Response:
    """Receive an event from a platform. 200 means that it was stored."""
    webhook = services.webhooks.get(channel)
    if webhook is None:
        raise HTTPException(404, "This channel does not use webhooks.")
    if request.method not in webhook.methods:
        raise HTTPException(405, headers={"Allow": ", ".join(sorted(webhook.methods))})
    WORK_GROUP.set(channel)
    body = await read_body(request, max_bytes=webhook.max_bytes, timeout_s=webhook.read_timeout_s)
    answer = await webhook.handle(
        WebhookRequest(
            headers=dict(request.headers),
            body=body,
            method=request.method,
            query=dict(request.query_params),
        )
    )
    return Response(answer.body, answer.status, headers=dict(answer.headers))


async def read_body(request: Request, *, max_bytes: int, timeout_s: float) -> bytes:
    """Return the body of a request that is not verified yet.

    Raises:
        HTTPException: It is too large, too slow or incomplete.
    """
    body = bytearray()
    with anyio.move_on_after(timeout_s):
        try:
            async for piece in request.stream():
                body += piece
                if len(body) > max_bytes:
                    too_large = f"The body is larger than {max_bytes:,} bytes."
                    raise HTTPException(413, too_large)
        except ClientDisconnect:
            raise HTTPException(400, "The request body is incomplete.") from None
        return bytes(body)
    raise HTTPException(408, "The request body arrived too slowly.")
