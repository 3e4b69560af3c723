"""The request body that sends a broadcast. Pure."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, Field

MAX_TEXT_CHARS = 3000
"""Longest text, characters. It fits one message on each platform, unless it is mostly emoji."""

ID_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"


def _with_words(text: str) -> str:
    if not text.strip():
        raise ValueError("the text is empty")
    return text


class NewBroadcastRequest(BaseModel):
    """A broadcast."""

    text: Annotated[str, AfterValidator(_with_words)] = Field(
        max_length=MAX_TEXT_CHARS, description="Markdown"
    )
    channels: list[str] | None = Field(
        default=None, min_length=1, max_length=100, description="null = all connected channels"
    )
    audience: Literal["private", "groups", "all"] = "private"
    active_within_days: float | None = Field(
        default=None, gt=0, le=3650, description="Only chats with a message in this many days"
    )
    id: str | None = Field(
        default=None,
        pattern=ID_PATTERN,
        description="A repeated request with the same ID sends nothing",
    )
    dry_run: bool = Field(default=False, description="Only count")
