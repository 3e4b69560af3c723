"""Converts Feishu's responses and transport errors to `FeishuError`, with delivery decisions. Pure.

The codes come from the open platform's documentation of messages, cards and authentication.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import httpx

from bus.errors import DeliveryError, PlaceGone

TOKEN_CODES = frozenset({99991661, 99991663, 99991664, 99991668, 99991677})
"""The tenant token is missing, invalid or expired. Fetch a new one, once."""

CREDENTIAL_CODES = frozenset({10003, 10012, 10014, 10015, 99991543})
"""The token endpoint rejects this app ID and secret."""

APP_LIMIT_CODE = 99991400
SCOPE_CODE = 99991672
"""The app lacks a scope for the call."""

CLOSED_CODES = frozenset({300309, 200850})
"""The card no longer streams, because ten minutes have passed or no update arrived for too long."""

SEQUENCE_CODE = 300317
"""The sequence number of an operation on a card is not higher than the last one."""

CHAT_ERROR_CODES = frozenset({230002, 230006, 230013, 230018, 230025, 230028, 232009})
"""Refusals because of the text, the chat or the person. A new message would be refused too."""

_RATE_CODES = frozenset({230020, APP_LIMIT_CODE, 11232})
_GONE_CODES = frozenset({230011, 231003, 230031, 230017, 230110})
_THREAD_GONE_CODES = frozenset({230011, 230019, 230071, 230110, 231003})
_CHAT_GONE_CODES = frozenset({230002, 230018, 230035, 232006, 232009, 232011})
_CARD_CODES = frozenset({230099, 200570, 200621, 11310})
_LATER_CODES = frozenset({1, 2200, 55001, 230049, 1000040343})
"""The platform is busy or has an internal error, whatever the HTTP status. The message was not delivered, so retry."""

_MESSAGES: Mapping[int, str] = {
    230001: "Feishu refused a parameter of the message",
    230002: "the bot is not in this chat: add it to the group again",
    230006: "the app's bot capability is off: turn it on in the developer console and publish a version",
    230011: "the message to answer or change was withdrawn",
    230013: "the app is not available to this user: widen its availability in the developer console",
    230017: "the bot does not own this message and cannot change it",
    230018: "the bot may not write in this chat",
    230020: "Feishu's rate limit for this message or chat was exceeded",
    230025: "the message is too long for Feishu (30 KB for a card)",
    230027: "the app lacks a permission (scope) for this: check im:message in the developer console",
    230028: "the tenant's data loss prevention blocked the text",
    230031: "the card is older than 14 days and can no longer be changed",
    230099: "Feishu could not create a card from the text",
    230110: "the message was deleted",
    231003: "the message to answer or change was deleted",
    232009: "the chat was disbanded",
    234006: "the file is larger than Feishu accepts",
    234010: "Feishu does not accept empty files",
    99991400: "Feishu's rate limit for this app was exceeded",
    SEQUENCE_CODE: "Feishu already has a later version of the card",
    300309: "the card does not stream anymore",
    200850: "the card does not stream anymore",
    SCOPE_CODE: "the app lacks a scope: add it in the developer console and publish a version",
}

_RETRY_S = 1.0
"""Wait after a rate limit without a stated time, seconds. Feishu's windows are one second long."""

_REFUSED_RETRY_S = 60.0
_MSG_CHARS = 200

_NEVER_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)


class FeishuError(DeliveryError):
    """A refusal or failure of the Feishu API.

    Attributes:
        code: The platform's code; 0 = it did not respond.
        refused: Whether the platform refuses the whole app (wrong ID or secret, invalid token).
        bad_card: Whether the card's content was refused, so that simpler content may succeed.
        is_app_limit: Whether the rate limit applies to the whole app, not to one chat or message.
    """

    code = 0
    refused = False
    bad_card = False
    is_app_limit = False

    @property
    def is_about_chat(self) -> bool:
        """Whether sending a new message instead would also fail or have to wait."""
        return self.retryable or self.target_gone or self.code in CHAT_ERROR_CODES


@dataclass(frozen=True, slots=True, kw_only=True)
class FeishuResponse:
    """An HTTP response of the API.

    Attributes:
        status: HTTP status.
        code: `code` of the body; None = the body is not the API's JSON.
        msg: `msg` of the body, for people.
        headers: Header names in lower case.
        data: `data` of the body, or the whole body if the API returns no `data`.
    """

    status: int
    code: int | None
    msg: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    data: Mapping[str, object] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether the call succeeded."""
        return self.code == 0 and self.status < httpx.codes.BAD_REQUEST


def error_from(cause: FeishuResponse | httpx.HTTPError | TimeoutError) -> FeishuError:
    """Return the error of a failed call. It never contains a token, a secret or the message's text.

    >>> error = error_from(FeishuResponse(status=400, code=230020))
    >>> error.retryable, error.retry_after_s, error.ambiguous
    (True, 1.0, False)
    """
    if isinstance(cause, FeishuResponse):
        return _refusal(cause)
    if isinstance(cause, _NEVER_SENT):
        return FeishuError(f"Feishu cannot be reached ({type(cause).__name__})", retryable=True)
    if isinstance(cause, httpx.UnsupportedProtocol):
        return invalid_domain_error()
    if isinstance(cause, httpx.TransportError | TimeoutError):
        name = type(cause).__name__
        return FeishuError(f"Feishu did not answer ({name})", retryable=True, ambiguous=True)
    return FeishuError(f"Feishu's response cannot be read ({type(cause).__name__})")


def invalid_domain_error() -> FeishuError:
    """Return the error for a platform address that is not a URL."""
    error = FeishuError("the domain is not a URL such as https://open.feishu.cn")
    error.refused = True
    return error


def _refusal(answer: FeishuResponse) -> FeishuError:
    error = _by_status(answer) or _by_code(answer)
    error.code = answer.code or 0
    return error


def _by_status(answer: FeishuResponse) -> FeishuError | None:
    """Return the error if the HTTP status is enough to decide."""
    if answer.status == httpx.codes.TOO_MANY_REQUESTS or answer.code in _RATE_CODES:
        limit = FeishuError(_text(answer), retryable=True, retry_after_s=_retry_after_s(answer))
        limit.is_app_limit = answer.code == APP_LIMIT_CODE
        return limit
    if answer.status >= httpx.codes.INTERNAL_SERVER_ERROR:
        return FeishuError(f"Feishu answered HTTP {answer.status}", retryable=True)
    if answer.code is None:
        # This is a proxy's page, not the API's JSON. If its status is a success, the outcome is unknown.
        unknown = answer.status < httpx.codes.BAD_REQUEST
        text = f"a proxy on the way to Feishu answered HTTP {answer.status} without JSON"
        return FeishuError(text, retryable=unknown, ambiguous=unknown)
    return None


def _by_code(answer: FeishuResponse) -> FeishuError:
    code, text = answer.code, _text(answer)
    if code in TOKEN_CODES or code in CREDENTIAL_CODES:
        return _refused(text)
    if code in _LATER_CODES:
        return FeishuError(text, retryable=True)
    error = FeishuError(text, target_gone=code in _GONE_CODES, place_gone=_gone_place(code))
    error.bad_card = code in _CARD_CODES
    return error


def _gone_place(code: int | None) -> PlaceGone:
    if code in _THREAD_GONE_CODES:
        return "thread"
    return "chat" if code in _CHAT_GONE_CODES else ""


def _refused(text: str) -> FeishuError:
    error = FeishuError(
        text, retryable=True, retry_after_s=_REFUSED_RETRY_S, credentials_refused=True
    )
    error.refused = True
    return error


def _text(answer: FeishuResponse) -> str:
    message = _MESSAGES.get(answer.code or 0)
    if message is None:
        message = (
            f"Feishu refused: {' '.join(answer.msg.split())[:_MSG_CHARS] or 'no reason given'}"
        )
    return f"{message} (code {answer.code}, HTTP {answer.status})"


def _retry_after_s(answer: FeishuResponse) -> float:
    """Return the wait from the header `x-ogw-ratelimit-reset`, seconds."""
    for name in ("x-ogw-ratelimit-reset", "retry-after"):
        try:
            seconds = float(answer.headers.get(name, ""))
        except ValueError:
            continue
        if 0 <= seconds < float("inf"):
            return max(seconds, _RETRY_S)
    return _RETRY_S
