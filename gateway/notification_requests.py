"""The request bodies that send a message to one chat, and a broadcast to many. Pure."""

from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, model_validator

from bus.characters import clean

MAX_TEXT_CHARS = 60_000
"""Longest text, characters. A text may need several messages."""

MAX_FILES = 10
"""Maximum number of files of one message."""

KEY_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"

Key = Annotated[str, Field(pattern=KEY_PATTERN)]
"""The key that a client gives a message or broadcast. A repeated request with the same key sends nothing."""

PlatformId = Annotated[str, Field(max_length=200, pattern=r"^[^\x00-\x20\x7f]*$")]

Text = Annotated[str, Field(max_length=MAX_TEXT_CHARS), AfterValidator(clean)]
"""Markdown."""


def with_words(text: str) -> str:
    """Return a text that is not empty. Raises ValueError."""
    if not text.strip():
        raise ValueError("the text is empty")
    return text


class NotificationBody(BaseModel):
    """The content of a message: a text, files or both."""

    text: Text = Field(default="", description="Markdown")
    key: Key | None = Field(
        default=None, description="A repeated request with the same key sends nothing"
    )


class NewMessageRequest(NotificationBody):
    """A message to one place. It has a text, files or both."""

    chat: PlatformId = Field(default="", description="The platform's ID of the chat")
    topic: PlatformId = Field(
        default="",
        description="In this chat: a Slack thread (`ts` of its first message), a Telegram forum topic, or a Feishu"
        " topic or message",
    )
    person: PlatformId = Field(
        default="",
        description="Instead of `chat`: the platform's ID of the person to write to in private",
    )

    @model_validator(mode="after")
    def _has_one_place(self) -> Self:
        if bool(self.chat) == bool(self.person):
            raise ValueError("give a chat or a person")
        if self.topic and self.person:
            raise ValueError("a topic needs a chat")
        return self


def _as_list(value: object) -> object:
    """Return the field of a form as a list. Forms have a list only if they repeat the field."""
    return [value] if isinstance(value, str) else value


class NewBroadcastRequest(NotificationBody):
    """A broadcast. It has a text, files or both."""

    channels: Annotated[list[PlatformId] | None, BeforeValidator(_as_list)] = Field(
        default=None, min_length=1, max_length=100, description="null = all connected channels"
    )
    audience: Literal["private", "groups", "all"] = "private"
    active_within_days: float | None = Field(
        default=None, gt=0, le=3650, description="Only chats with a message in this many days"
    )
    dry_run: bool = Field(
        default=False, description="Only count the chats; needs neither text nor files"
    )
