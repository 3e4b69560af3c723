"""Converts Telegram's errors to DeliveryError. Pure.

The order matters, because `BadRequest` is a `NetworkError` in python-telegram-bot, and `TimeoutError` an `OSError`.
"""

import re
from http import HTTPStatus

import aiohttp
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
from bus.errors import DeliveryError, PlaceGone

_NOT_SENT = (
    aiohttp.ClientConnectorError,
    aiohttp.ConnectionTimeoutError,
    aiohttp.ClientHttpProxyError,
)
"""aiohttp's errors that occur before the first byte of a request is sent."""

_NEVER_SENT = (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError, UnicodeError)
"""The same, except that the next attempt would fail in the same way."""

_TARGET_GONE = re.compile(
    "thread not found|topic_closed|topic_deleted|topic_id_invalid|message to (edit|delete|be replied|reply) not found"
    "|replied message not found|message can't be edited|message_id_invalid",
    re.IGNORECASE,
)
_THREAD_GONE = re.compile(
    "thread not found|topic_closed|topic_deleted|topic_id_invalid|message to (be replied|reply) not found"
    "|replied message not found",
    re.IGNORECASE,
)
_CHAT_GONE = re.compile(
    "chat not found|bot was kicked|bot is not a member|chat was deactivated|chat was deleted|chat_write_forbidden"
    "|(not enough|have no) rights to (send|write)|chat_restricted|channel_private|user_banned_in_channel"
    "|chat_(send_plain|admin_required|guest_send)|need administrator rights",
    re.IGNORECASE,
)
_GONE = re.compile("message to delete not found|message_id_invalid", re.IGNORECASE)
_ENTITIES = re.compile("entit", re.IGNORECASE)
_PICTURE = re.compile("photo|image", re.IGNORECASE)
_TOO_LARGE = 413
_REFUSED_RETRY_S = 60.0
"""Wait after a refused token, seconds. Answers wait until an operator acts."""


class ChatMigratedError(DeliveryError):
    """The group became a supergroup. Its message IDs start over."""

    def __init__(self, new_chat: str) -> None:
        super().__init__(f"The group became a supergroup with id {new_chat}", target_gone=True)
        self.new_chat = new_chat


def delivery_error(error: Exception) -> DeliveryError:
    """Return the DeliveryError of a failed call.

    Args:
        error: An exception of the SDK, its transport, or a time limit.
    """
    match error:
        case RetryAfterError() | UnexpectedStatus():
            return _status_error(error)
        case BadRequest() | Forbidden() | ChatMigrated() | InvalidToken() | Conflict():
            return _refusal(error)
        case NetworkError():
            return _no_answer(error)
        case TimeoutError() | TelegramError():
            return _ambiguous("Telegram did not answer in time, or its answer cannot be read")
    # The request was sent. Repeating it would get the same response.
    name = type(error).__name__
    return DeliveryError(f"Telegram's answer could not be read ({name})", ambiguous=True)


def is_entity_error(error: BadRequest) -> bool:
    """Return whether the formatting was refused, so that plain text may succeed."""
    return bool(_ENTITIES.search(error.message))


def is_not_modified(error: BadRequest) -> bool:
    """Return whether an edit was refused because it changes nothing."""
    return "message is not modified" in error.message.lower()


def is_deleted(error: BadRequest) -> bool:
    """Return whether a deletion was refused because the message does not exist."""
    return bool(_GONE.search(error.message))


def is_unknown_method(error: TelegramError) -> bool:
    """Return whether a server does not know a method, which the SDK reports as an invalid token."""
    return isinstance(error, InvalidToken) and "not found" in error.message.lower()


def is_query_too_old(error: BadRequest) -> bool:
    """Return whether a callback query expired."""
    return "query is too old" in error.message.lower()


def is_photo_error(error: BadRequest) -> bool:
    """Return whether a file was refused as a photo (dimensions, format), so that it may succeed as a document."""
    return bool(_PICTURE.search(error.message))


def cause_name(error: Exception) -> str:
    """Return the class name of an error's cause. Leaves out details, because they may contain a secret."""
    return type(error.__cause__ or error).__name__


def _status_error(error: RetryAfterError | UnexpectedStatus) -> DeliveryError:
    if isinstance(error, RetryAfterError):
        text, wait_s = "Telegram asks to wait (429)", error.retry_after_s
        return DeliveryError(text, retryable=True, retry_after_s=wait_s)
    if error.status == _TOO_LARGE:
        return DeliveryError("Telegram refuses the request as too large (413)")
    if error.status < HTTPStatus.MULTIPLE_CHOICES:
        return _ambiguous("The response is not from the Bot API")
    return DeliveryError(f"Telegram answered HTTP {error.status}", retryable=True)


def _refusal(error: TelegramError) -> DeliveryError:
    """Return the error for a refusal. Only a refusal of the bot itself is retryable."""
    match error:
        case ChatMigrated():
            return ChatMigratedError(str(error.new_chat_id))
        case Conflict():
            return DeliveryError("Telegram answered HTTP 409", retryable=True)
        case InvalidToken():
            return DeliveryError(
                "Telegram refuses the bot token: check bot_token",
                retryable=True,
                retry_after_s=_REFUSED_RETRY_S,
                credentials_refused=True,
            )
    reason = redact_tokens(error.message)[:300]
    return DeliveryError(
        f"Telegram refused: {reason}",
        target_gone=bool(_TARGET_GONE.search(reason)),
        place_gone=_gone_place(reason),
    )


def _gone_place(reason: str) -> PlaceGone:
    if _THREAD_GONE.search(reason):
        return "thread"
    return "chat" if _CHAT_GONE.search(reason) else ""


def _no_answer(error: NetworkError) -> DeliveryError:
    cause, name = error.__cause__, cause_name(error)
    if isinstance(cause, _NOT_SENT):
        return DeliveryError(f"Telegram cannot be reached ({name})", retryable=True)
    if isinstance(cause, _NEVER_SENT):
        return DeliveryError(f"The request cannot be made ({name})")
    return _ambiguous(f"The connection to Telegram failed ({name})")


def _ambiguous(message: str) -> DeliveryError:
    return DeliveryError(message, retryable=True, ambiguous=True)
