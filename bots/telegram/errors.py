"""What Telegram's refusals and failures mean for a delivery. Pure.

`BadRequest` is a `NetworkError` in python-telegram-bot, and `TimeoutError` an `OSError`: the order matters.
"""

import re

import httpx
from telegram.error import (
    BadRequest,
    ChatMigrated,
    Conflict,
    Forbidden,
    InvalidToken,
    NetworkError,
    TelegramError,
)

from bots.telegram.api import RetryAfterError, UnexpectedStatus, redact_tokens
from bus.errors import DeliveryError

_NOT_SENT = (
    httpx.ConnectError,
    httpx.ConnectTimeout,
    httpx.PoolTimeout,
    httpx.ProxyError,
)
"""httpx's failures before the first byte of a request left."""

_NEVER_SENT = (httpx.UnsupportedProtocol, httpx.InvalidURL, UnicodeError)
"""Likewise, but the next attempt will end the same way."""

_TARGET_GONE = re.compile(
    "thread not found|topic_closed|topic_deleted|topic_id_invalid|message to (edit|delete|be replied|reply) not found"
    "|replied message not found|message can't be edited|message_id_invalid",
    re.IGNORECASE,
)
_GONE = re.compile("message to delete not found|message_id_invalid", re.IGNORECASE)
_ENTITIES = re.compile("entit", re.IGNORECASE)
_PICTURE = re.compile("photo|image", re.IGNORECASE)
_TOO_LARGE = 413
_REFUSED_RETRY_S = 60.0
"""A refused token does not mend itself, but it may be mended; the answers wait for that."""


class ChatMigratedError(DeliveryError):
    """The group became a supergroup. Message ids begin anew there."""

    def __init__(self, new_chat: str) -> None:
        super().__init__(f"The group became a supergroup with id {new_chat}", target_gone=True)
        self.new_chat = new_chat


def delivery_error(error: Exception) -> DeliveryError:
    """Return what a failed call asks of the outbox.

    Args:
        error: What the SDK, httpx's transport, or a deadline around them raised.
    """
    match error:
        case RetryAfterError() | UnexpectedStatus():
            return _unusual(error)
        case BadRequest() | Forbidden() | ChatMigrated() | InvalidToken() | Conflict():
            return _refusal(error)
        case NetworkError():
            return _no_answer(error)
        case TimeoutError() | TelegramError():
            return _uncertain("Telegram did not answer in time, or unreadably")
    # The request was made by then; the same one would be answered the same way.
    name = type(error).__name__
    return DeliveryError(f"Telegram's answer could not be read ({name})", ambiguous=True)


def is_entity_error(error: BadRequest) -> bool:
    """Tell whether the formatting was refused, so that the bare text may pass."""
    return bool(_ENTITIES.search(error.message))


def is_not_modified(error: BadRequest) -> bool:
    """Tell whether an edit was refused because the message is that already."""
    return "message is not modified" in error.message.lower()


def is_deleted(error: BadRequest) -> bool:
    """Tell whether a message cannot be taken away because it is not there."""
    return bool(_GONE.search(error.message))


def is_unknown_method(error: TelegramError) -> bool:
    """Tell whether a server does not know a method: to the library, that is a wrong token."""
    return isinstance(error, InvalidToken) and "not found" in error.message.lower()


def is_query_too_old(error: BadRequest) -> bool:
    """Tell whether a pressed button waits for no answer any more."""
    return "query is too old" in error.message.lower()


def is_photo_error(error: BadRequest) -> bool:
    """Tell whether the file was refused as a photo (dimensions, format), so that it may pass as a document."""
    return bool(_PICTURE.search(error.message))


def cause_name(error: Exception) -> str:
    """Return what went wrong below, in one word and without details that may hold a secret."""
    return type(error.__cause__ or error).__name__


def _unusual(error: RetryAfterError | UnexpectedStatus) -> DeliveryError:
    if isinstance(error, RetryAfterError):
        return DeliveryError(
            "Telegram asks to wait (429)", retryable=True, retry_after_s=error.retry_after_s
        )
    if error.status == _TOO_LARGE:
        return DeliveryError("Telegram refuses the request as too large (413)")
    if httpx.codes.is_success(error.status):
        return _uncertain("Something answered for Telegram that does not speak its language")
    return DeliveryError(f"Telegram answered HTTP {error.status}", retryable=True)


def _refusal(error: TelegramError) -> DeliveryError:
    """A clear no. Only what concerns the bot and not the message may mend itself."""
    match error:
        case ChatMigrated():
            return ChatMigratedError(str(error.new_chat_id))
        case Conflict():
            return DeliveryError("Telegram answered HTTP 409", retryable=True)
        case InvalidToken():
            return DeliveryError(
                "Telegram refuses the bot token: check channels.telegram.bot_token",
                retryable=True,
                retry_after_s=_REFUSED_RETRY_S,
            )
    said = redact_tokens(error.message)[:300]
    return DeliveryError(f"Telegram refused: {said}", target_gone=bool(_TARGET_GONE.search(said)))


def _no_answer(error: NetworkError) -> DeliveryError:
    cause, name = error.__cause__, cause_name(error)
    if isinstance(cause, _NOT_SENT):
        return DeliveryError(f"Telegram cannot be reached ({name})", retryable=True)
    if isinstance(cause, _NEVER_SENT):
        return DeliveryError(f"The request cannot be made ({name})")
    return _uncertain(f"The connection to Telegram failed ({name})")


def _uncertain(message: str) -> DeliveryError:
    return DeliveryError(message, retryable=True, ambiguous=True)
