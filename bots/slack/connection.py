"""Common parts of Socket Mode and HTTP: timeouts, and the check of the bot token."""

from dataclasses import dataclass, field

from bots.common.connection import RECONNECT
from bots.common.health import HealthTracker
from bots.slack.api import SlackApi
from bots.slack.capabilities import BOT_SCOPES
from bots.slack.errors import SlackError
from bots.slack.payload import SlackIdentity
from bots.slack.streaming import StreamingLimits
from bus.retry import Backoff


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackTimeouts:
    """Timeouts, seconds.

    Attributes:
        call_s: One Web API call.
        hello_s: From opening the connection to Slack's hello.
        ping_s: Interval of pings. If a pong is late by half of this, the connection is closed.
        drain_s: For finishing envelopes that are being handled when a connection ends.
        overlap_s: How long to keep the old connection next to its successor. Slack closes the old one 10 s after a
            `warning`.
        lookups_s: Looking up data that a message's event does not contain: author, thread, files, names. Slack waits 3
            s for the acknowledgement. Looking up the author alone may take 1.5 s (users.py).
        thread_s: Reading the thread, as part of `lookups_s`.
        names_s: Looking up names, as part of `lookups_s`. Unknown names are shown as IDs.
        ack_s: Responding to an HTTP request. Slack waits 3 s.
        check_s: In mode http, how often to check the bot token.
        backoff: Delays after failed attempts to connect.
        failed_retry_s: Delay while Slack refuses a token.
        stable_s: After a connection that lasted this long, the next one is opened at once.
        streaming: Rate limits of growing answers.
    """

    call_s: float = 30.0
    hello_s: float = 15.0
    ping_s: float = 20.0
    drain_s: float = 2.0
    overlap_s: float = 30.0
    lookups_s: float = 2.0
    thread_s: float = 1.0
    names_s: float = 0.7
    ack_s: float = 2.5
    check_s: float = 60.0
    backoff: Backoff = RECONNECT
    failed_retry_s: float = 60.0
    stable_s: float = 10.0
    streaming: StreamingLimits = field(default_factory=StreamingLimits)


async def check_bot_token(api: SlackApi, health: HealthTracker, *, channel: str) -> None:
    """Sign in, and warn about missing scopes. Raises SlackError, which is not retryable if an operator must act."""
    if api.bot_token:
        try:
            await api.authenticate()
        except SlackError as error:
            expected = "the Bot User OAuth Token (xoxb-...)"
            raise explain_token_error(error, f"channels.{channel}.bot_token", expected) from error
    refused = [
        workspace for workspace in api.installations if not await _is_accepted(api, workspace)
    ]
    if not api.bots:
        raise SlackError(
            f"No workspace has installed the app: open https://<this gateway>/slack/{channel}/install"
        )
    warnings = [missing_scopes_warning(identity) for identity in api.bots]
    if refused:
        warnings.append(
            f"Slack refuses the tokens of {', '.join(refused)}: install the app there again."
        )
    health.set_warning(next(filter(None, warnings), ""))


async def _is_accepted(api: SlackApi, workspace: str) -> bool:
    """Sign in to a workspace that installed the app; False if Slack refuses its token. Raises SlackError."""
    with api.in_workspace(workspace):
        try:
            await api.authenticate()
        except SlackError as error:
            if not error.token_refused:
                raise
            return False
    return True


def missing_scopes_warning(identity: SlackIdentity) -> str:
    """Return a text with the app's missing scopes and what to do; "" = none is missing, or Slack did not say."""
    missing = sorted(set(BOT_SCOPES) - identity.scopes) if identity.scopes is not None else []
    if not missing:
        return ""
    return (
        f"The Slack app lacks permissions ({', '.join(missing)}): paste the output of `parley slack manifest`"
        " into its App Manifest and reinstall it."
    )


def explain_token_error(error: SlackError, key: str, expected: str) -> SlackError:
    """Add to a token error which setting is wrong and which token it needs. Return other errors unchanged."""
    if not (error.token_refused or error.code == "missing_scope"):
        return error
    revoked = error.code in {"account_inactive", "token_revoked"} and key.endswith("bot_token")
    again = " after reinstalling it (Install App in its settings)" if revoked else ""
    explained = SlackError(
        f"Slack refused {key} ({error.code}): set it to {expected} of the Slack app{again}."
    )
    explained.code = error.code
    return explained
