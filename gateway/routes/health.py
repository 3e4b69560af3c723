"""GET /health: whether the gateway serves."""

from fastapi import APIRouter

router = APIRouter()


@router.get("/health")
@router.head("/health", include_in_schema=False)
async def health() -> dict[str, str]:
    """Say that the gateway serves; channels may still be connecting. Needs no token."""
    return {"status": "healthy", "service": "parley"}
