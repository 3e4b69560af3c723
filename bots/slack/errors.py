"""Converts Slack's errors to delivery decisions: retryable, ambiguous, target gone. Pure.

The codes come from the error tables in docs.slack.dev/reference/methods.
"""

import re
from collections.abc import Mapping
from typing import Any

import aiohttp
from slack_sdk.errors import SlackApiError

from bus.errors import DeliveryError, PlaceGone

TOKEN_CODES = frozenset({
    "account_inactive", "invalid_auth", "not_allowed_token_type", "not_authed", "org_login_required",
    "team_access_not_granted", "token_expired", "token_revoked", "two_factor_setup_required",
})  # fmt: skip
"""The token is wrong, revoked or of the wrong kind."""

BLOCK_CODES = frozenset({
    "invalid_attachments", "invalid_blocks", "invalid_blocks_format", "msg_blocks_too_long", "msg_blocks_too_many",
    "msg_too_long",
})  # fmt: skip
"""Slack refused the formatted message. Its plain form may succeed."""

TOKEN_RETRY_S = 60.0
"""Wait after a refused token, seconds. An operator must set another token or reinstall the app."""

_RATE_CODES = frozenset({"rate_limited", "ratelimited"})
_LATER_CODES = frozenset({
    "external_channel_migrating", "message_limit_exceeded", "request_timeout", "service_unavailable",
    "team_added_to_org",
})  # fmt: skip
# "It's possible some aspect of the operation succeeded before the error was raised."
_MAYBE_CODES = frozenset({"fatal_error", "internal_error"})
_GONE_CODES = frozenset({
    "cannot_reply_to_message", "cant_update_message", "edit_window_closed", "invalid_thread_ts",
    "message_not_found", "restricted_action_thread_locked", "thread_locked", "thread_not_found",
})  # fmt: skip
_THREAD_GONE_CODES = frozenset({
    "cannot_reply_to_message", "invalid_thread_ts", "message_not_found", "restricted_action_non_threadable_channel",
    "restricted_action_thread_locked", "thread_locked", "thread_not_found",
})  # fmt: skip
_CHAT_GONE_CODES = frozenset({
    "channel_not_found", "is_archived", "not_in_channel", "posting_to_channel_denied", "restricted_action",
    "restricted_action_read_only_channel", "restricted_action_thread_only_channel",
})  # fmt: skip
_ADVICE = {
    "channel_not_found": "Slack does not know this channel, or the bot is not in it: invite the bot.",
    "is_archived": "The Slack channel is archived.",
    "messages_tab_disabled": "The app's Messages tab is off: turn it on under App Home in the app's settings.",
    "not_in_channel": "The bot is not in this Slack channel: invite it.",
    "access_denied": "Slack does not let the app share files here.",
    "file_type_not_allowed": "This Slack workspace does not allow files of this type.",
    "file_upload_size_restricted": "This Slack workspace does not allow files of this size.",
    "file_uploads_disabled": "Uploads are turned off in this Slack workspace.",
    "file_uploads_except_images_disabled": "This Slack workspace allows only image uploads.",
    "posting_to_channel_denied": "The app may not post in this Slack channel.",
    "storage_limit_reached": "The storage of this Slack workspace is full.",
}
_RATE_PAUSE_S = 30.0
"""Wait after a rate limit without a stated wait, seconds (the default of slack_sdk)."""


class SlackError(DeliveryError):
    """A call to Slack failed. `code` is Slack's error code; "" = none."""

    code: str = ""

    @property
    def token_refused(self) -> bool:
        """Whether the token is the cause."""
        return self.code in TOKEN_CODES


def error_from_exception(error: Exception) -> SlackError:
    """Return the decision for an exception of slack_sdk or aiohttp."""
    match error:
        case SlackApiError():
            return _answered(error)
        case aiohttp.InvalidURL():
            return SlackError("The base_url of the Slack channel is not a URL.")
        case aiohttp.ClientConnectorError() | aiohttp.ConnectionTimeoutError():
            return SlackError(f"Slack cannot be reached ({_kind(error)}).", retryable=True)
        case TimeoutError():
            return SlackError("Slack did not answer in time.", retryable=True, ambiguous=True)
        case _:
            return SlackError(
                f"The connection to Slack was lost ({_kind(error)}).",
                retryable=True,
                ambiguous=True,
            )


def error_from_status(status: int, headers: Mapping[str, str]) -> SlackError:
    """Return the decision for an HTTP response without a code of Slack."""
    if status == 429:  # noqa: PLR2004
        return _limited(headers)
    if status >= 500 or status == 408:  # noqa: PLR2004
        return SlackError(f"Slack has an internal problem (HTTP {status}).", retryable=True)
    if status == 200:  # noqa: PLR2004
        return SlackError("Slack's response cannot be parsed.", retryable=True, ambiguous=True)
    return SlackError(f"Slack refused the request (HTTP {status}).")


def _answered(error: SlackApiError) -> SlackError:
    response: Any = error.response
    status = getattr(response, "status_code", None) or getattr(response, "status", None) or 200
    headers = getattr(response, "headers", None) or {}
    body = response if isinstance(response, dict) else getattr(response, "data", None)
    data: Mapping[str, Any] = body if isinstance(body, dict) else {}
    code = data.get("error")
    if not isinstance(code, str) or not code or status == 429 or status >= 500:  # noqa: PLR2004
        return error_from_status(status, headers)
    return _refused(re.sub(r"[^\w.:-]", "", code)[:80], data, headers)


def _refused(code: str, data: Mapping[str, Any], headers: Mapping[str, str]) -> SlackError:
    if code in _RATE_CODES:
        error = _limited(headers)
    elif code in TOKEN_CODES:
        # Nothing is wrong with the message, so it waits for the operator.
        error = SlackError(
            f"Slack refused the token ({code}).",
            retryable=True,
            retry_after_s=TOKEN_RETRY_S,
            credentials_refused=True,
        )
    elif code == "missing_scope":
        needed = re.sub(r"[^\w:., -]", "", str(data.get("needed") or "a scope"))[:200]
        error = SlackError(
            f"The Slack app lacks the permission {needed}: add it under OAuth & Permissions and reinstall the app."
        )
    else:
        error = SlackError(
            _ADVICE.get(code, f"Slack refused the call ({code})."),
            retryable=code in _LATER_CODES | _MAYBE_CODES,
            ambiguous=code in _MAYBE_CODES,
            target_gone=code in _GONE_CODES,
            place_gone=_gone_place(code),
        )
    error.code = code
    return error


def _gone_place(code: str) -> PlaceGone:
    if code in _THREAD_GONE_CODES:
        return "thread"
    return "chat" if code in _CHAT_GONE_CODES else ""


def _limited(headers: Mapping[str, str]) -> SlackError:
    given = next((value for name, value in headers.items() if name.lower() == "retry-after"), "")
    pause_s = float(given) if re.fullmatch(r"\d{1,6}(\.\d+)?", given) else _RATE_PAUSE_S
    error = SlackError("Slack's rate limit was reached.", retryable=True, retry_after_s=pause_s)
    error.code = "ratelimited"
    return error


def _kind(error: Exception) -> str:
    """Return an error's class name without its text, because texts of HTTP errors contain URLs with secrets."""
    return type(error).__name__
