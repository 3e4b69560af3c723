"""GET /api/memory: what the agent remembers. Nothing is remembered yet: the document is empty."""

from typing import Any

from fastapi import APIRouter

router = APIRouter()


def _empty(*names: str) -> dict[str, dict[str, str]]:
    return {name: {"summary": "", "updatedAt": ""} for name in names}


@router.get("/memory")
async def memory() -> dict[str, Any]:
    """Return the memory document."""
    return {
        "version": "1.0",
        "lastUpdated": "",
        "user": _empty("workContext", "personalContext", "topOfMind"),
        "history": _empty("recentMonths", "earlierContext", "longTermBackground"),
        "facts": [],
    }
