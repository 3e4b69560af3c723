"""Installation of a Slack app by OAuth. It needs no admin token, because browsers come from links and from Slack."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import APIRouter, HTTPException, Path, Request, Response

from bots.common.installation import InstallationEndpoint
from bots.common.webhooks import WebhookHandler, WebhookRequest
from gateway.dependencies import ServicesDep
from gateway.openapi import Responses, error_responses
from gateway.services import Services

router = APIRouter(prefix="/slack", tags=["webhooks"], responses=error_responses(404))

REDIRECT: Responses = {302: {"description": "Redirects to Slack"}}
PAGES: Responses = {
    status: {"description": "A page with the error", "content": {"text/plain": {}}}
    for status in (400, 502)
}

Channel = Annotated[str, Path()]


def paths(channel: str) -> Sequence[str]:
    """Return the paths of a channel's installation."""
    return [f"/slack/{channel}/install", f"/slack/{channel}/oauth_redirect"]


@router.get("/{channel}/install", response_class=Response, responses=REDIRECT)
async def start_slack_install(
    channel: Channel, request: Request, services: ServicesDep
) -> Response:
    """Redirect to Slack, which asks the user to confirm the installation."""
    return await _respond(_endpoint(services, channel).start, request)


@router.get("/{channel}/oauth_redirect", response_class=Response, responses=PAGES)
async def finish_slack_install(
    channel: Channel, request: Request, services: ServicesDep
) -> Response:
    """Handle the redirect from Slack and store the workspace's token."""
    return await _respond(_endpoint(services, channel).finish, request)


def _endpoint(services: Services, channel: str) -> InstallationEndpoint:
    endpoint = services.installations.get(channel)
    if endpoint is None:
        raise HTTPException(404, "This channel cannot be installed: it has no client_id.")
    return endpoint


async def _respond(handle: WebhookHandler, request: Request) -> Response:
    answer = await handle(
        WebhookRequest(
            headers=dict(request.headers),
            body=b"",
            method=request.method,
            query=dict(request.query_params),
        )
    )
    return Response(answer.body, answer.status, headers=dict(answer.headers))
