"""Classifies the exceptions of model classes: why a call failed, and whether to retry it. Pure.

Each provider's package has its own exceptions. They are recognized by an HTTP status or by the names of their classes
and base classes, so that no package must be imported.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import Literal

from langchain_core.exceptions import ContextOverflowError, ModelError
from langchain_core.messages import AIMessage, BaseMessage

from agent.locales import AgentMessages

FailureReason = Literal[
    "auth",
    "quota",
    "rate_limit",
    "server",
    "timeout",
    "connection",
    "context",
    "request",
    "circuit_open",
]

RETRYABLE_STATUSES = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})
"""HTTP statuses after which the same request may succeed; 529 is Anthropic's "overloaded"."""

FALLBACK_KEY = "error_fallback"
"""Key in `additional_kwargs` of a message that only reports a model failure."""

_TIMEOUTS = {
    *("APITimeoutError", "TimeoutException", "TimeoutError", "ServerTimeoutError", "Timeout"),
    "ModelTimeoutError",
}
_CONNECTIONS = {
    *("APIConnectionError", "TransportError", "ConnectionError", "ClientConnectionError"),
    "ModelConnectionError",
}
_PROVIDER_ERRORS = {"APIError", "ModelError"}
_EMPTY_STREAM = {"No generation chunks were returned", "No generations found in stream."}
"""LangChain's messages for an empty stream."""
_ANSWERS = {"AIMessage", "AIMessageChunk"}
"""Titles of LangChain's validation errors for malformed answers, such as calls whose arguments are not an object."""
_STATUSES = range(400, 600)
_TELLING = (HTTPStatus.BAD_REQUEST, HTTPStatus.FORBIDDEN, HTTPStatus.TOO_MANY_REQUESTS)
"""Statuses that servers also use for an exhausted quota."""

_BY_STATUS: Mapping[int, FailureReason] = {
    401: "auth",
    402: "quota",
    403: "auth",
    408: "timeout",
    429: "rate_limit",
}
_QUOTA = re.compile(
    r"insufficient[_ ](?:user[_ ])?(?:quota|balance|credits?|funds)|billing|payment[_ ]required|credit balance"
    r"|(?:quota|credits)[a-z_ ]{0,20}[_ ](?:exceeded|exhausted|depleted|used up|not enough|failed)|out of credits"
    r"|exceeded[a-z_ ]{0,20}[_ ]quota|(?:usage|spend|spending|credit|monthly|daily request)[_ ]limit|arrear|overdue"
    r"|余额|欠费|额度|充值",
    re.IGNORECASE,
)
_RATE_LIMIT = re.compile(
    r"rate[_ -]?limit|too[_ ]many[_ ]requests|resource[_ ]exhausted|throttl|requests per (?:minute|day)",
    re.IGNORECASE,
)
_BY_CODE: Mapping[FailureReason, re.Pattern[str]] = {
    "auth": re.compile(
        r"invalid_?(?:api_?key|token)|incorrect_api_key|authenticat|unauthori[sz]ed|unauthenticated|permission",
        re.IGNORECASE,
    ),
    "timeout": re.compile(r"time[d_ ]{0,2}out|deadline_exceeded", re.IGNORECASE),
    "request": re.compile(
        r"invalid_?(?:request|argument|parameter|prompt)|bad_?request|validation|unsupported|not_?found",
        re.IGNORECASE,
    ),
}
"""Failure reasons, by patterns for the codes and types of errors that come with status 200."""

_PICTURE_LIMIT = re.compile(
    r"(?:at most|up to|max(?:imum)?(?: number)?(?: of)?|limit(?: of| is)?|only|more than|exceeds?|allow(?:s|ed)?|>)"
    r"[^.\n\d]{0,40}?\b(\d{1,3}|one|single|a single)\b(?! ?(?:mb|kb|px|pixel|byte|token))"
    r"|(?:最多|超过|上限|[只仅]支持)[^。\n\d]{0,20}?(\d{1,3}|[一单])(?=[张幅个])|multiple images|多张",
    re.IGNORECASE,
)
_PICTURES = re.compile(
    r"\bimages?\b|\bpictures?\b|image\(s\)|multimodal|mm-per-prompt|图片|图像|张图",
    re.IGNORECASE,
)
_CONTEXT_OVERFLOW = re.compile(
    r"context_length_exceeded|exceed_context_size|request_too_large"
    r"|context[ _](?:window|size|limit)|(?:maximum|max|exceeds?|exceeded) (?:model )?context|context length of"
    r"|(?:prompt|input|inputs|request|messages?) (?:is|are) too long|prompt too long|too large for model"
    r"|(?:input|prompt) token count|(?:maximum|max) (?:prompt|model) length|maximum number of tokens allowed"
    r"|model token limit|max message tokens|too many tokens:|range of input length"
    r"|tokens.{0,40}must (?:be <=|have less than)|must have less than \d+ tokens|reduce the length of"
    r"|prompt tokens too long|tokens? to keep from the initial prompt|longer than the model's context"
    r"|上下文.{0,8}(?:超|过长)|(?:prompt|输入).{0,6}(?:超长|过长)",
    re.IGNORECASE,
)
"""Error messages for requests that are too long, from documentation and public reports: OpenAI, xAI, Anthropic, Gemini,
Bedrock, Mistral, Cohere, DashScope, Moonshot, Zhipu, Volcengine, ERNIE, MiniMax, Groq, Together, OpenRouter, vLLM,
SGLang, llama.cpp, LM Studio, Ollama, TGI. tests/agent/test_overflow_errors.py has the texts."""

_CODE = re.compile(r"[a-z_]{1,40}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFailure:
    """Why a model call failed.

    Attributes:
        kind: The class name of the error.
        status: The HTTP status, if any.
        code: The provider's error code, if any.
        retry_after_s: The delay that the server requests, seconds.
        picture_limit: The server's limit of pictures, if the request exceeded it.
    """

    reason: FailureReason
    kind: str
    status: int | None = None
    code: str = ""
    retry_after_s: float | None = None
    picture_limit: int | None = None

    @property
    def retryable(self) -> bool:
        """Whether a retry may succeed."""
        if self.reason in ("auth", "quota", "context", "circuit_open"):
            return False
        if self.status is None:
            return self.reason != "request"
        return self.status in RETRYABLE_STATUSES

    @property
    def detail(self) -> str:
        """A public description, without the provider's text, which may quote keys and prompts."""
        parts = (f"HTTP {self.status}" if self.status else "", self.code)
        return ", ".join(part for part in parts if part) or self.kind


def classify_error(error: Exception) -> ModelFailure | None:
    """Classify an exception; None = it does not come from a model's server.

    >>> class RateLimitError(Exception):
    ...     status_code = 429
    >>> classify_error(RateLimitError("slow down")).reason
    'rate_limit'
    >>> classify_error(TypeError("a mistake in a program")) is None
    True
    """
    status = _status(error)
    names = {kind.__name__ for one in _chain(error) for kind in type(one).__mro__}
    reason = _reason(error, status, names)
    if reason is None:
        return None
    return ModelFailure(
        reason=reason,
        kind=type(error).__name__,
        status=status,
        code=_code(error),
        retry_after_s=_retry_after_s(error),
        picture_limit=_picture_limit(str(error)) if reason == "request" else None,
    )


def fallback_message(
    failure: ModelFailure,
    words: AgentMessages,
    *,
    streamed: str = "",
    message_id: str | None = None,
) -> AIMessage:
    """Return the message that ends a turn whose model failed.

    Args:
        failure: The failure.
        words: The messages for people.
        streamed: The text streamed before the failure. It stays, because users have seen it.
        message_id: The id of the streamed message.
    """
    return AIMessage(
        content=f"{streamed.rstrip()}\n\n{words.model(failure.reason)}".strip(),
        id=message_id,
        additional_kwargs={
            FALLBACK_KEY: True,
            "error_type": failure.kind,
            "error_reason": failure.reason,
            "error_detail": failure.detail,
        },
    )


def is_fallback(message: BaseMessage) -> bool:
    """Return whether a message only reports a model failure."""
    return isinstance(message, AIMessage) and bool(message.additional_kwargs.get(FALLBACK_KEY))


def is_context_overflow(messages: Sequence[BaseMessage]) -> bool:
    """Return whether a response only reports that the request was too long for the model."""
    return any(
        is_fallback(message) and message.additional_kwargs.get("error_reason") == "context"
        for message in messages
    )


def _reason(error: Exception, status: int | None, names: set[str]) -> FailureReason | None:
    codes = f"{getattr(error, 'code', '')} {getattr(error, 'type', '')}"
    text = f"{codes} {error}"
    of_a_provider = bool(names & _PROVIDER_ERRORS) or str(error) in _EMPTY_STREAM
    if isinstance(error, ContextOverflowError) or (
        of_a_provider and status != HTTPStatus.TOO_MANY_REQUESTS and _CONTEXT_OVERFLOW.search(text)
    ):
        return "context"
    if status is not None:
        return _reason_of_status(status, text)
    if names & _TIMEOUTS:
        return "timeout"
    if names & _CONNECTIONS:
        return "connection"
    of_a_provider = of_a_provider or getattr(error, "title", None) in _ANSWERS
    return _reason_without_status(error, codes, text) if of_a_provider else None


def _reason_without_status(error: Exception, codes: str, text: str) -> FailureReason:
    """Return the reason of an error that came with status 200, judged by its text."""
    if _QUOTA.search(text):
        return "quota"
    if _RATE_LIMIT.search(text):
        return "rate_limit"
    refused = isinstance(error, ModelError) and not error.is_retryable
    by_code = (reason for reason, pattern in _BY_CODE.items() if pattern.search(codes))
    return next(by_code, "request" if refused else "server")


def _picture_limit(text: str) -> int | None:
    """Return the limit of pictures that a server's error message states; None if it states none.

    >>> _picture_limit("At most 1 image(s) may be provided in one prompt.")
    1
    >>> _picture_limit("The image is larger than 5 MB") is None
    True
    """
    if not _PICTURES.search(text):
        return None
    found = _PICTURE_LIMIT.search(text)
    if found is None:
        return None
    number = found[1] or found[2] or ""
    return int(number) if number.isdecimal() else 1


def _reason_of_status(status: int, text: str) -> FailureReason:
    if status in _TELLING and _QUOTA.search(text):
        return "quota"
    is_retryable = status >= HTTPStatus.INTERNAL_SERVER_ERROR or status in RETRYABLE_STATUSES
    return _BY_STATUS.get(status, "server" if is_retryable else "request")


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes, at most four."""
    found: BaseException | None = error
    for _ in range(4):
        if found is None:
            return
        yield found
        found = found.__cause__


def _status(error: Exception) -> int | None:
    for one in _chain(error):
        response = getattr(one, "response", None)
        for value in (
            getattr(one, "status_code", None),
            getattr(response, "status_code", None),
            getattr(one, "code", None),
        ):
            number = int(value) if isinstance(value, str) and value.isdecimal() else value
            if isinstance(number, int) and number in _STATUSES:
                return number
    return None


def _code(error: Exception) -> str:
    code = getattr(error, "code", None) or getattr(error, "type", None)
    return code if isinstance(code, str) and _CODE.fullmatch(code) else ""


def _retry_after_s(error: Exception) -> float | None:
    """Return the delay from the response headers: seconds, milliseconds or a date."""
    for one in _chain(error):
        headers = getattr(getattr(one, "response", None), "headers", None)
        if isinstance(headers, Mapping):
            return _seconds(headers.get("retry-after-ms"), 0.001) or _seconds(
                headers.get("retry-after"), 1.0
            )
    return None


def _seconds(value: object, unit_s: float) -> float | None:
    if not isinstance(value, str):
        return None
    try:
        seconds = float(value) * unit_s
    except ValueError:
        return _seconds_until(value)
    return seconds if 0 < seconds < float("inf") else None


def _seconds_until(date: str) -> float | None:
    try:
        moment = parsedate_to_datetime(date)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max((moment - datetime.now(UTC)).total_seconds(), 0.0)
