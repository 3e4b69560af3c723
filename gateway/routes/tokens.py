"""/api/tokens: named tokens with a scope, which programs use instead of the admin token."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Response
from pydantic import BaseModel

from gateway.dependencies import ServicesDep
from gateway.openapi import error_responses
from gateway.routes.views import api_token_view
from gateway.token_scopes import NAME_PATTERN, NewTokenRequest
from store.api_tokens import TokenScope

router = APIRouter(prefix="/tokens", responses=error_responses(404, 409))

TokenName = Annotated[str, Path(pattern=NAME_PATTERN)]


class TokenView(BaseModel):
    """A token without its value; times are ISO 8601.

    Attributes:
        last_used_at: When this process last accepted it; null = not since it started.
    """

    name: str
    scope: TokenScope
    created_at: str
    expires_at: str | None
    last_used_at: str | None


class TokenList(BaseModel):
    """All tokens by name."""

    rows: list[TokenView]


class NewTokenResponse(BaseModel):
    """The token, which is shown only here."""

    name: str
    token: str


@router.get("", response_model=TokenList)
async def list_tokens(services: ServicesDep) -> dict[str, Any]:
    """List the named tokens, including expired ones."""
    used = services.tokens.used_at
    tokens = await services.tokens.list_all()
    return {"rows": [api_token_view(token, used.get(token.digest)) for token in tokens]}


@router.post("", status_code=201)
async def create_token(new: NewTokenRequest, services: ServicesDep) -> NewTokenResponse:
    """Create a token."""
    value = await services.tokens.create(new.name, new.scope, lifetime_s=new.lifetime_s)
    return NewTokenResponse(name=new.name, token=value)


@router.post("/{name}/rotate")
async def rotate_token(name: TokenName, services: ServicesDep) -> NewTokenResponse:
    """Replace a token. The old value stops working."""
    return NewTokenResponse(name=name, token=await services.tokens.rotate(name))


@router.delete("/{name}", status_code=204)
async def revoke_token(name: TokenName, services: ServicesDep) -> Response:
    """Revoke a token."""
    await services.tokens.revoke(name)
    return Response(status_code=204)
