"""A tool whose result is large, for the `bursts` benchmark."""

from langchain_core.tools import tool

RESULT_CHARS = 50_000_000


@tool
async def fetch_everything() -> str:
    """Return 50 MB."""
    return "A line of a long result, 40 characters.\n" * (RESULT_CHARS // 40)
