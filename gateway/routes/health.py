"""GET /health and /health/ready: whether the gateway serves, and whether people can be answered."""

from typing import Literal

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, ConfigDict

from gateway.deps import Parts
from gateway.entrance import WHO
from gateway.readiness import checks

router = APIRouter()


class Health(BaseModel):
    """A sign of life."""

    status: Literal["healthy"] = "healthy"
    service: Literal["parley"] = "parley"


class PartState(BaseModel):
    """How one part stands."""

    model_config = ConfigDict(from_attributes=True)

    ok: bool
    state: str
    detail: str


class Readiness(BaseModel):
    """Whether people can be answered; which part keeps them from it is told to holders of the token."""

    status: Literal["ready", "not ready"]
    checks: dict[str, PartState] | None = None


@router.get("/health")
@router.head("/health", include_in_schema=False)
async def health() -> Health:
    """Say that the gateway serves; channels may still be connecting. Needs no token."""
    return Health()


@router.get(
    "/health/ready",
    response_model_exclude_none=True,
    responses={503: {"model": Readiness, "description": "People cannot be answered now"}},
)
@router.head("/health/ready", include_in_schema=False)
async def ready(request: Request, response: Response, parts: Parts) -> Readiness:
    """Say whether people can be answered. Needs no token; with it each part is told."""
    found = await checks(parts)
    is_ready = all(check.ok for check in found.values())
    response.status_code = 200 if is_ready else 503
    told = {name: PartState.model_validate(check) for name, check in found.items()}
    return Readiness(
        status="ready" if is_ready else "not ready", checks=told if WHO in request.scope else None
    )
