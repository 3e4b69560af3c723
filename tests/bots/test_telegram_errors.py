"""How each failure of Telegram affects a delivery. No error text contains the token."""

import logging
from dataclasses import dataclass

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey, RequestInfo
from multidict import CIMultiDict, CIMultiDictProxy
from telegram.error import (
    BadRequest,
    ChatMigrated,
    Conflict,
    Forbidden,
    InvalidToken,
    NetworkError,
    TelegramError,
    TimedOut,
)
from yarl import URL as YARL

from bots.telegram.api import RetryAfterError, TelegramBot, UnexpectedStatus, redact_sdk_logs
from bots.telegram.connection_failures import OTHER_POLLER, OTHER_WEBHOOK, connection_failure
from bots.telegram.errors import delivery_error, is_entity_error, is_photo_error

SECRET = "123456:AAsecret"
URL = f"https://api.telegram.org/bot{SECRET}/sendMessage"
UNREACHABLE = aiohttp.ClientConnectorError(
    ConnectionKey("x", 443, True, True, None, None, None), OSError()
)
PROXY_REFUSES = aiohttp.ClientHttpProxyError(
    RequestInfo(YARL("http://x"), "POST", CIMultiDictProxy(CIMultiDict())), (), status=407
)


def caused(error: Exception, cause: Exception) -> Exception:
    error.__cause__ = cause
    return error


@dataclass(frozen=True, kw_only=True)
class ExpectedError:
    retryable: bool = False
    ambiguous: bool = False
    target_gone: bool = False
    retry_after_s: float | None = None


REFUSED = ExpectedError()
LATER = ExpectedError(retryable=True)
UNCERTAIN = ExpectedError(retryable=True, ambiguous=True)
GONE = ExpectedError(target_gone=True)

CASES: list[tuple[Exception, ExpectedError]] = [
    (RetryAfterError(7), ExpectedError(retryable=True, retry_after_s=7.0)),
    (UnexpectedStatus(500), LATER),
    (UnexpectedStatus(502), LATER),
    (UnexpectedStatus(504), LATER),
    (UnexpectedStatus(302), LATER),
    (UnexpectedStatus(413), REFUSED),
    (UnexpectedStatus(200), UNCERTAIN),
    (TimeoutError(), UNCERTAIN),
    (TimedOut(), UNCERTAIN),
    (caused(TimedOut(), aiohttp.SocketTimeoutError()), UNCERTAIN),
    (caused(TimedOut(), aiohttp.ConnectionTimeoutError()), LATER),
    (caused(NetworkError("x"), UNREACHABLE), LATER),
    (caused(NetworkError("x"), PROXY_REFUSES), LATER),
    (caused(NetworkError("x"), aiohttp.ClientOSError()), UNCERTAIN),
    (caused(NetworkError("x"), aiohttp.ClientPayloadError()), UNCERTAIN),
    (caused(NetworkError("x"), aiohttp.ServerDisconnectedError()), UNCERTAIN),
    (caused(NetworkError("x"), aiohttp.NonHttpUrlClientError("ftp://x")), REFUSED),
    (caused(NetworkError("x"), aiohttp.InvalidURL("x")), REFUSED),
    (TelegramError("The answer is not JSON"), UNCERTAIN),
    (KeyError("result"), ExpectedError(ambiguous=True)),
    (InvalidToken("Unauthorized"), ExpectedError(retryable=True, retry_after_s=60.0)),
    (Conflict("Conflict"), LATER),
    (ChatMigrated(-100), GONE),
    (Forbidden("Forbidden: bot was blocked by the user"), REFUSED),
    (Forbidden("Forbidden: bot was kicked from the supergroup chat"), REFUSED),
    (Forbidden("Forbidden: user is deactivated"), REFUSED),
    (Forbidden("Forbidden: bot can't initiate conversation with a user"), REFUSED),
    (BadRequest("Bad Request: chat not found"), REFUSED),
    (BadRequest("Bad Request: message is too long"), REFUSED),
    (BadRequest("Bad Request: message text is empty"), REFUSED),
    (BadRequest("Bad Request: not enough rights to send text messages"), REFUSED),
    (BadRequest("Bad Request: message thread not found"), GONE),
    (BadRequest("Bad Request: TOPIC_CLOSED"), GONE),
    (BadRequest("Bad Request: message to be replied not found"), GONE),
    (BadRequest("Bad Request: message to edit not found"), GONE),
    (BadRequest("Bad Request: message can't be edited"), GONE),
]


@pytest.mark.parametrize(("error", "meaning"), CASES, ids=lambda case: repr(case)[:60])
def test_every_failure_carries_its_decision(error: Exception, meaning: ExpectedError) -> None:
    result = delivery_error(error)
    assert meaning == ExpectedError(
        retryable=result.retryable,
        ambiguous=result.ambiguous,
        target_gone=result.target_gone,
        retry_after_s=result.retry_after_s,
    )
    assert result.user_message


@pytest.mark.parametrize(
    "error",
    [
        caused(NetworkError(URL), aiohttp.InvalidURL(URL)),
        caused(TimedOut(URL), aiohttp.SocketTimeoutError(URL)),
        BadRequest(f"Bad Request: {URL}"),
        Forbidden(f"Forbidden: {URL}"),
        InvalidToken(f"The token `{SECRET}` was rejected by the server."),
        TelegramError(URL),
        KeyError(URL),
    ],
)
def test_no_text_contains_the_token(error: Exception) -> None:
    detail = connection_failure(error, channel="telegram", base_url=URL).detail
    assert SECRET not in delivery_error(error).user_message
    assert SECRET not in detail


@pytest.mark.parametrize(
    ("error", "words", "wait_s"),
    [
        (Conflict("terminated by other getUpdates request"), OTHER_POLLER, None),
        (Conflict("can't use getUpdates while webhook is active"), OTHER_WEBHOOK, None),
        (RetryAfterError(3), "429", 3.0),
        (UnexpectedStatus(502), "HTTP 502", None),
        (UnexpectedStatus(404), "not the Bot API", None),
        (TimeoutError(), "cannot be reached at api.telegram.org", None),
    ],
)
def test_a_connection_failure_says_what_to_do(
    error: Exception, words: str, wait_s: float | None
) -> None:
    failure = connection_failure(error, channel="telegram", base_url="https://api.telegram.org/bot")
    assert (failure.retryable, failure.retry_after_s) == (True, wait_s)
    assert words in failure.detail


def test_a_refused_token_needs_the_operator() -> None:
    failure = connection_failure(InvalidToken(), channel="support", base_url="")
    assert not failure.retryable
    assert "channels.support.bot_token" in failure.detail


def test_repairable_errors_are_recognized() -> None:
    assert is_entity_error(BadRequest("Bad Request: can't parse entities: x"))
    assert is_entity_error(BadRequest("Bad Request: ENTITY_BOUNDS_INVALID"))
    assert not is_entity_error(BadRequest("Bad Request: chat not found"))
    assert is_photo_error(BadRequest("Bad Request: PHOTO_INVALID_DIMENSIONS"))
    assert is_photo_error(BadRequest("Bad Request: IMAGE_PROCESS_FAILED"))
    assert not is_photo_error(BadRequest("Bad Request: chat not found"))


def test_a_bot_in_a_message_or_traceback_shows_no_token() -> None:
    bot = TelegramBot(token=SECRET)
    assert SECRET not in f"{bot!r} {bot}"


def test_logged_urls_lose_the_token(caplog: pytest.LogCaptureFixture) -> None:
    redact_sdk_logs()
    caplog.set_level(logging.DEBUG, logger="httpx")
    logging.getLogger("httpx").info('HTTP Request: %s %s "%d"', "POST", URL, 200)
    assert "POST https://api.telegram.org/bot<token>/sendMessage" in caplog.text
    assert SECRET not in caplog.text


def test_a_refused_token_keeps_answers_until_it_works() -> None:
    assert delivery_error(InvalidToken()).credentials_refused
    assert not delivery_error(Conflict("another poll")).credentials_refused


@pytest.mark.parametrize(
    ("error", "gone"),
    [
        (BadRequest("Message thread not found"), "thread"),
        (BadRequest("TOPIC_CLOSED"), "thread"),
        (BadRequest("TOPIC_DELETED"), "thread"),
        (BadRequest("Message to be replied not found"), "thread"),
        (BadRequest("Chat not found"), "chat"),
        (Forbidden("Forbidden: bot was kicked from the supergroup chat"), "chat"),
        (Forbidden("Forbidden: bot is not a member of the channel chat"), "chat"),
        (BadRequest("Not enough rights to send text messages to the chat"), "chat"),
        (Forbidden("Forbidden: bot was blocked by the user"), ""),
        (BadRequest("Message to edit not found"), ""),
        (BadRequest("Message is too long"), ""),
    ],
)
def test_a_missing_chat_is_distinguished_from_a_refused_text(
    error: TelegramError, gone: str
) -> None:
    assert delivery_error(error).place_gone == gone
