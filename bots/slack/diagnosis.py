"""Checks of a Slack app: tokens, scopes, Socket Mode, other connections."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
import anyio

from bots.common.diagnosis import (
    CheckResult,
    DiagnosisOptions,
    Severity,
    check_clock,
    note,
    ok,
    problem,
    warning,
)
from bots.common.proxy import proxy_url_for
from bots.config import SlackConfig
from bots.slack.api import SlackApi, parse_scopes
from bots.slack.capabilities import AGENT_SCOPES, BOT_SCOPES
from bots.slack.errors import SlackError, error_from_exception

CALL_S = 15.0
"""Time limit for one call, or for a connection's hello, seconds."""

_ESSENTIAL = frozenset({"app_mentions:read", "chat:write", "im:history"})
WITHOUT: Mapping[str, str] = {
    "app_mentions:read": "it does not hear mentions",
    "channels:history": "it does not hear follow-ups in public channels",
    "channels:read": "it cannot see the names of public channels",
    "chat:write": "it cannot answer",
    "commands": "the command /parley does not exist",
    "files:read": "it cannot read files sent to it",
    "files:write": "it cannot send files",
    "groups:history": "it does not hear follow-ups in private channels",
    "groups:read": "it cannot see the names of private channels",
    "im:history": "it does not hear direct messages",
    "mpim:history": "it does not hear follow-ups in group messages",
    "reactions:write": "it cannot show that it is working",
    "usergroups:read": "it cannot see the names of user groups",
    "users:read": "it cannot see names, or tell guests from members",
}
"""What people notice if a scope is missing."""

_REINSTALL = (
    "paste `parley slack manifest` into App Manifest of the app (api.slack.com/apps), save,"
    " then Install App, Reinstall to Workspace"
)
_BOT_FIX = (
    "Install App in the app's settings shows the Bot User OAuth Token (xoxb-...);"
    " set channels.{channel}.bot_token to it"
)
_APP_FIX = (
    "Basic Information, App-Level Tokens: generate one with connections:write (xapp-...)"
    " and set channels.{channel}.app_token to it"
)


async def diagnose(section: SlackConfig, options: DiagnosisOptions) -> Sequence[CheckResult]:
    """Check the app whose tokens a section contains."""
    api = SlackApi(section, timeout_s=CALL_S)
    if section.bot_token.startswith("xapp-") and section.app_token.startswith("xoxb-"):
        swapped = f"channels.{options.channel}.bot_token and app_token are swapped"
        return [
            problem("bot token", swapped, "swap them: xoxb-... is the bot's, xapp-... the app's")
        ]
    async with api.shared_session():
        results = await _bot_token(api, options.channel)
        if section.mode == "http":
            results += _signing_secret(section, options.channel)
        else:
            results += await _app_token(api, options)
    return [*results, _events(), *await check_clock(section.base_url)]


async def _bot_token(api: SlackApi, channel: str) -> list[CheckResult]:
    bot_fix = _BOT_FIX.format(channel=channel)
    try:
        answer = await api.call(lambda web: web.auth_test())
    except SlackError as error:
        fix = bot_fix if error.code else _network_fix(channel)
        return [problem("bot token", error.user_message, fix)]
    if not answer.get("bot_id"):
        text = f"it belongs to a person ({answer.get('user')}), not to a bot"
        return [problem("bot token", text, bot_fix)]
    who = f"@{answer.get('user')} in {answer.get('team')}"
    granted = parse_scopes(answer.headers)
    if granted is None:
        told = "Slack did not say which ones it granted"
        unknown = note("permissions", told)
        return [ok("bot token", who), unknown]
    return [ok("bot token", who), _permissions(granted), _agent(granted)]


def _agent(granted: frozenset[str]) -> CheckResult:
    if set(AGENT_SCOPES) <= granted:
        text = "the app is declared an agent: Slack shows its status and a stop button"
    else:
        text = "the app is not declared an agent: a reaction and a message with a stop button show that it is working"
    return ok("agent", text)


def _permissions(granted: frozenset[str]) -> CheckResult:
    lacking = [scope for scope in BOT_SCOPES if scope not in granted]
    if not lacking:
        return ok("permissions", f"all {len(BOT_SCOPES)} required scopes are granted")
    effects = [f"{scope} ({WITHOUT[scope]})" if scope in WITHOUT else scope for scope in lacking]
    return CheckResult(
        subject="permissions",
        text=f"missing: {', '.join(effects)}",
        severity=Severity.PROBLEM if _ESSENTIAL & set(lacking) else Severity.WARNING,
        fix=_REINSTALL,
    )


def _signing_secret(section: SlackConfig, channel: str) -> list[CheckResult]:
    if (section.signing_secret or "").strip():
        return [ok("signing secret", "is set (Slack does not say whether it is right)")]
    fix = (
        "Basic Information, App Credentials shows the Signing Secret;"
        f" set channels.{channel}.signing_secret to it"
    )
    return [problem("signing secret", "is not set, but mode http needs it", fix)]


async def _app_token(api: SlackApi, options: DiagnosisOptions) -> list[CheckResult]:
    try:
        url = await api.open_connection_url()
    except SlackError as error:
        fix = (
            _APP_FIX.format(channel=options.channel)
            if error.code
            else _network_fix(options.channel)
        )
        return [problem("app token", error.user_message, fix)]
    results = [ok("app token", "Slack accepts it for connections")]
    if options.exclusive:
        results.append(await _connection(api, url, options.channel))
    return results


async def _connection(api: SlackApi, url: str, channel: str) -> CheckResult:
    """Connect, wait for the hello, and disconnect.

    Events that arrive meanwhile are not acknowledged, so Slack resends them.
    """
    try:
        hello = await _greeting(api, url)
    except (SlackError, aiohttp.ClientError, OSError, ValueError) as error:
        failure = error if isinstance(error, SlackError) else error_from_exception(error)
        return problem("connection", failure.user_message, _network_fix(channel))
    if hello.get("type") == "disconnect":
        reason = str(hello.get("reason"))
        if reason == "link_disabled":
            fix = "turn it on under Socket Mode in the app's settings"
            return problem("connection", "Socket Mode is off", fix)
        return problem("connection", f"Slack closed it at once ({reason})", "try again in a minute")
    others = int(hello.get("num_connections") or 1) - 1
    if others > 0:
        return warning(
            "connection",
            f"{others} other connection(s) of this app: Slack sends each event to only one of them",
            "stop the other process, or give it its own Slack app",
        )
    return ok("connection", "Slack said hello, and no other process is connected")


async def _greeting(api: SlackApi, url: str) -> dict[str, Any]:
    with anyio.fail_after(CALL_S):
        async with (
            api.session() as session,
            session.ws_connect(url, proxy=proxy_url_for(url), heartbeat=CALL_S) as socket,
        ):
            message = await socket.receive_str()
    frame = json.loads(message)
    return frame if isinstance(frame, dict) else {}


def _events() -> CheckResult:
    return note(
        "events",
        "Slack does not show which events the app subscribes to",
        "if messages do not arrive, compare Event Subscriptions with `parley slack manifest`",
    )


def _network_fix(channel: str) -> str:
    return f"check the network, the proxy (HTTPS_PROXY) and channels.{channel}.base_url"
