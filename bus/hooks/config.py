"""Configuration of a hook."""

from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from bus.hooks.signature import signing_key

MIN_SECRET_CHARS = 16
"""Shortest secret, characters. Anyone on the internet can try secrets."""

HookName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]


def _usable(secret: str) -> str:
    signing_key(secret)
    return secret


class HookConfig(BaseModel):
    """A hook: who signs its events, and which message they become in which chat."""

    model_config = ConfigDict(extra="allow", frozen=True)

    secret: Annotated[str, AfterValidator(_usable)] = Field(min_length=MIN_SECRET_CHARS, repr=False)
    form: Literal["hmac", "github"] = Field(
        default="hmac",
        description="how events are signed: as in Standard Webhooks, or as GitHub does",
    )
    channel: str = Field(min_length=1)
    chat: str = Field(min_length=1, description="the platform's ID of the chat")
    topic: str = Field(default="", description="a thread or topic of the chat")
    prompt: str = Field(
        min_length=1, description="the message; `{field.path}` stands for a value of the event"
    )
