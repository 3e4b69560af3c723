"""How each error of Slack and of the connection affects a delivery."""

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from bots.slack.errors import SlackError, error_from_exception, error_from_status

SECRET = "xoxb-secret"


def refused(
    code: str, *, status: int = 200, headers: dict[str, str] | None = None, **more: object
) -> SlackError:
    answer = AsyncSlackResponse(
        client=None,
        http_verb="POST",
        api_url="https://slack.com/api/chat.postMessage",
        req_args={"headers": {"Authorization": f"Bearer {SECRET}"}},
        data={"ok": False, "error": code, **more},
        headers=headers or {},
        status_code=status,
    )
    return error_from_exception(SlackApiError("no", answer))  # type: ignore[no-untyped-call]


def decision(error: SlackError) -> tuple[bool, bool, bool]:
    return error.retryable, error.ambiguous, error.target_gone


NO, LATER, MAYBE, GONE = (
    (False, False, False),
    (True, False, False),
    (True, True, False),
    (False, False, True),
)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("invalid_auth", LATER),
        ("token_revoked", LATER),
        ("account_inactive", LATER),
        ("missing_scope", NO),
        ("channel_not_found", NO),
        ("not_in_channel", NO),
        ("is_archived", NO),
        ("restricted_action", NO),
        ("invalid_blocks", NO),
        ("msg_too_long", NO),
        ("something_new", NO),
        ("service_unavailable", LATER),
        ("request_timeout", LATER),
        ("team_added_to_org", LATER),
        ("internal_error", MAYBE),
        ("fatal_error", MAYBE),
        ("message_not_found", GONE),
        ("cant_update_message", GONE),
        ("edit_window_closed", GONE),
        ("thread_not_found", GONE),
        ("cannot_reply_to_message", GONE),
        ("restricted_action_thread_locked", GONE),
        ("ratelimited", LATER),
        ("rate_limited", LATER),
    ],
)
def test_error_codes_are_mapped_to_decisions(code: str, expected: tuple[bool, bool, bool]) -> None:
    error = refused(code)
    assert decision(error) == expected
    assert error.code in {code, "ratelimited"}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (500, LATER),
        (502, LATER),
        (503, LATER),
        (429, LATER),
        (408, LATER),
        (403, NO),
        (404, NO),
        (200, MAYBE),
    ],
)
def test_http_errors_without_a_code_are_mapped_to_decisions(
    status: int, expected: tuple[bool, bool, bool]
) -> None:
    assert decision(error_from_status(status, {})) == expected


def test_a_5xx_was_not_delivered_whatever_its_body_says() -> None:
    assert decision(refused("internal_error", status=500)) == LATER


@pytest.mark.parametrize(
    ("headers", "pause_s"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"retry-after": "0"}, 0.0),
        ({}, 30.0),
        ({"Retry-After": "soon"}, 30.0),
    ],
)
def test_a_rate_limit_names_the_pause(headers: dict[str, str], pause_s: float) -> None:
    assert refused("ratelimited", status=429, headers=headers).retry_after_s == pause_s
    assert error_from_status(429, headers).retry_after_s == pause_s


def test_a_refused_token_waits_for_the_operator() -> None:
    error = refused("token_revoked")
    assert error.token_refused
    assert error.credentials_refused
    assert error.retry_after_s == 60.0


def connector_error() -> aiohttp.ClientConnectorError:
    key = ConnectionKey("slack.test", 443, True, True, None, None, None)
    return aiohttp.ClientConnectorError(key, OSError(111, "refused"))


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (connector_error(), LATER),
        (aiohttp.ConnectionTimeoutError("connect"), LATER),
        (TimeoutError(), MAYBE),
        (aiohttp.ServerTimeoutError(), MAYBE),
        (aiohttp.ServerDisconnectedError(), MAYBE),
        (aiohttp.ClientOSError(104, "reset"), MAYBE),
        (aiohttp.ClientPayloadError(), MAYBE),
        (ConnectionResetError(), MAYBE),
        (aiohttp.InvalidURL("::"), NO),
    ],
    ids=lambda value: type(value).__name__,
)
def test_slack_connection_settings(error: Exception, expected: tuple[bool, bool, bool]) -> None:
    assert decision(error_from_exception(error)) == expected


def test_a_missing_permission_is_named() -> None:
    assert "reactions:write" in refused("missing_scope", needed="reactions:write").user_message


@pytest.mark.parametrize(
    ("response", "code"),
    [
        ({"ok": False, "error": "is_archived"}, "is_archived"),
        ({}, ""),
        ({"error": 7}, ""),
        (None, ""),
        ("", ""),
    ],
    ids=str,
)
def test_any_shape_of_answer_is_read(response: object, code: str) -> None:
    error = SlackApiError("no", response)  # type: ignore[no-untyped-call]
    assert error_from_exception(error).code == code


def test_texts_hold_no_secret_and_no_foreign_mark_up() -> None:
    assert SECRET not in refused("invalid_auth").user_message
    assert "<" not in refused("<script>\x00").user_message
    addressed = aiohttp.ClientConnectorError(
        ConnectionKey(SECRET, 443, True, True, None, None, None),
        OSError(1, SECRET),
    )
    assert SECRET not in error_from_exception(addressed).user_message


@pytest.mark.parametrize(
    ("code", "gone"),
    [
        ("thread_not_found", "thread"),
        ("message_not_found", "thread"),
        ("restricted_action_thread_locked", "thread"),
        ("is_archived", "chat"),
        ("channel_not_found", "chat"),
        ("not_in_channel", "chat"),
        ("restricted_action_read_only_channel", "chat"),
        ("msg_too_long", ""),
        ("ratelimited", ""),
    ],
)
def test_a_missing_chat_is_distinguished_from_a_refused_text(code: str, gone: str) -> None:
    assert refused(code).place_gone == gone
