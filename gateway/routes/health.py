"""GET /health and /health/ready: liveness and readiness."""

from typing import Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict

from gateway.dependencies import ServicesDep
from gateway.middleware import AUTHENTICATED_AS
from gateway.readiness import check_readiness

router = APIRouter()


class HealthResponse(BaseModel):
    """The gateway is serving."""

    status: Literal["healthy"] = "healthy"
    service: Literal["parley"] = "parley"


class ReadinessCheckView(BaseModel):
    """The result of one check."""

    model_config = ConfigDict(from_attributes=True)

    ok: bool
    state: str
    detail: str


class ReadinessResponse(BaseModel):
    """Whether messages can be answered. Requests with the token also get the checks."""

    status: Literal["ready", "not ready"]
    checks: dict[str, ReadinessCheckView] | None = None


@router.get("/health")
@router.head("/health", include_in_schema=False)
async def get_health() -> HealthResponse:
    """Return 200 as soon as the gateway serves. Needs no token."""
    return HealthResponse()


@router.get(
    "/health/ready",
    response_model_exclude_none=True,
    responses={503: {"model": ReadinessResponse, "description": "Messages cannot be answered now"}},
)
@router.head("/health/ready", include_in_schema=False)
async def get_readiness(
    request: Request, response: Response, services: ServicesDep
) -> ReadinessResponse:
    """Return 200 if messages can be answered. Needs no token; with the token, the response includes the checks."""
    found = await check_readiness(services)
    is_ready = all(check.ok for check in found.values())
    response.status_code = 200 if is_ready else 503
    told = {name: ReadinessCheckView.model_validate(check) for name, check in found.items()}
    return ReadinessResponse(
        status="ready" if is_ready else "not ready",
        checks=told if AUTHENTICATED_AS in request.scope else None,
    )
