"""POST /hooks/{name}: signed events of other systems. They need no admin token: the hook verifies the signature."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response
from pydantic import BaseModel

from bus.hooks.hooks import HookOutcome, HookRequest
from gateway.dependencies import BusDep
from gateway.openapi import error_responses
from gateway.routes.webhooks import read_body
from store.work_group import WORK_GROUP

MAX_BODY_BYTES = 5_000_000
"""Largest event, bytes."""

HOOKS_GROUP = "hooks"
"""Work group of all requests to hooks. The event loop never forgets a group, and anyone can make up names."""

READ_TIMEOUT_S = 10.0
"""How long the body may take to arrive, seconds. It is not verified until then."""

router = APIRouter(
    prefix="/hooks", tags=["hooks"], responses=error_responses(400, 401, 408, 413, 429, 503)
)


class HookResponse(BaseModel):
    """The result for an event: `accepted`, `duplicate` (it was accepted before), or `pong` (GitHub's ping)."""

    status: HookOutcome


_REQUEST_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "The event, in whatever form its sender gives it. The sender signs these bytes.",
        "content": {
            "application/json": {"schema": {}},
            "application/x-www-form-urlencoded": {"schema": {"type": "object"}},
        },
    }
}


@router.post("/{name}", status_code=202, openapi_extra=_REQUEST_BODY)
async def receive_hook(
    name: Annotated[str, Path()], request: Request, response: Response, bus: BusDep
) -> HookResponse:
    """Receive an event. 202: the event was stored and the agent will get it. 200: there is nothing to do."""
    WORK_GROUP.set(HOOKS_GROUP)
    body = await read_body(request, max_bytes=MAX_BODY_BYTES, timeout_s=READ_TIMEOUT_S)
    outcome = await bus.hooks.receive(name, HookRequest(headers=dict(request.headers), body=body))
    if outcome is not HookOutcome.ACCEPTED:
        response.status_code = 200
    return HookResponse(status=outcome)
