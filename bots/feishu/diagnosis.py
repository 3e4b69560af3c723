"""Checks of a Feishu app: credentials, state, bot, scopes, long connection."""

import logging
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bots.common.connection import ConnectionFailure
from bots.common.diagnosis import (
    CheckResult,
    DiagnosisOptions,
    Severity,
    check_clock,
    note,
    ok,
    problem,
)
from bots.config import FeishuConfig
from bots.feishu.card_entities import SCOPE
from bots.feishu.errors import FeishuError
from bots.feishu.long_connection import fetch_endpoint
from bots.feishu.rest import FeishuApp, FeishuRestClient
from bots.feishu.speech import SPEECH_SCOPE
from bots.feishu.timeouts import FeishuTimeouts

TIMEOUTS = FeishuTimeouts(call_s=15.0, connect_s=15.0)

_CONSOLE = "in the developer console"
_PUBLISH = "create a version and publish it"
_GRANTED = 1

_STATES: Mapping[int, str] = {
    0: "it is not installed in the tenant yet",
    1: "the tenant disabled it",
    3: "it is installed but not enabled yet",
    4: "an update is waiting to be enabled",
    5: "its license has expired",
    6: "the tenant's plan has expired or was downgraded",
}
"""`activate_status` of bot/v3/info; 2 = enabled."""


@dataclass(frozen=True, slots=True)
class _RequiredScope:
    """A permission that the app needs. Any of `scopes` grants it. The first one is the narrowest."""

    scopes: tuple[str, ...]
    without: str
    essential: bool = False


_REQUIRED_SCOPES = (
    _RequiredScope(
        ("im:message.p2p_msg:readonly", "im:message.p2p_msg"), "no direct messages", essential=True
    ),
    _RequiredScope(
        ("im:message.group_at_msg:readonly", "im:message.group_at_msg", "im:message.group_msg"),
        "no mentions in groups",
    ),
    _RequiredScope(
        ("im:message:send_as_bot", "im:message:send", "im:message"), "no answers", essential=True
    ),
    _RequiredScope(
        ("im:message:update", "im:message"),
        "cards neither grow nor get finished",
        essential=True,
    ),
    _RequiredScope(
        ("im:message.reactions:write_only", "im:message"), "no reactions that show progress"
    ),
    _RequiredScope(
        ("im:message:readonly", "im:message", "im:message.history:readonly"), "no files from people"
    ),
    _RequiredScope(("im:resource", "im:resource:upload"), "no files to people"),
)
_ALL_GROUP_MESSAGES = _RequiredScope(
    ("im:message.group_msg", "im:message.group_msg:readonly"),
    "with group_policy: open, the bot sees only mentions",
)


async def diagnose(
    section: FeishuConfig, options: DiagnosisOptions, *, timeouts: FeishuTimeouts = TIMEOUTS
) -> Sequence[CheckResult]:
    """Check the app that a section configures. Does not disturb a running service."""
    logging.getLogger("httpx").setLevel(logging.WARNING)  # Otherwise it logs every request.
    app = FeishuApp(
        app_id=section.app_id, app_secret=section.app_secret, domain=section.domain.rstrip("/")
    )
    rest = FeishuRestClient(app, timeouts)
    async with rest.shared_pool():
        results = await _run_checks(rest, section, app, timeouts=timeouts, channel=options.channel)
    if options.setting_up:
        results = [_as_warning(finding) for finding in results]
    return [*results, *await check_clock(section.domain)]


async def _run_checks(
    rest: FeishuRestClient,
    section: FeishuConfig,
    app: FeishuApp,
    *,
    timeouts: FeishuTimeouts,
    channel: str,
) -> list[CheckResult]:
    first = await _credentials(rest, channel)
    if first.severity is Severity.PROBLEM:
        return [first]
    results = [first, await _bot(rest, channel)]
    if results[-1].severity is not Severity.PROBLEM:
        results += await _permissions(rest, section)
        if section.mode == "websocket":
            results.append(await _connection(app, rest, timeouts))
        else:
            results.append(_webhook_secrets(section, channel))
        results.append(_events(section))
    return results


def _as_warning(finding: CheckResult) -> CheckResult:
    """Turn a problem that every unpublished app has into a warning."""
    is_later = finding.subject in {"app", "permissions", "connection"}
    return (
        replace(finding, severity=Severity.WARNING)
        if is_later and finding.severity is Severity.PROBLEM
        else finding
    )


async def _credentials(rest: FeishuRestClient, channel: str) -> CheckResult:
    try:
        await rest.authenticate()
    except FeishuError as error:
        return problem("app secret", error.user_message, _app_fix(error, channel))
    return ok("app secret", "matches the app ID")


async def _bot(rest: FeishuRestClient, channel: str) -> CheckResult:
    try:
        data = await rest.call("GET", "/open-apis/bot/v3/info")
    except FeishuError as error:
        return problem("app", error.user_message, _app_fix(error, channel))
    data_bot = data.get("bot")
    bot: Mapping[str, Any] = data_bot if isinstance(data_bot, dict) else {}
    state = bot.get("activate_status")
    if isinstance(state, int) and state in _STATES:
        fix = f"{_PUBLISH} {_CONSOLE}; an admin of the tenant may have to approve it"
        return problem("app", f"it cannot be used: {_STATES[state]}", fix)
    if not bot.get("open_id"):
        fix = f"Add Features, Bot {_CONSOLE}, then {_PUBLISH}"
        return problem("app", "its bot capability is off", fix)
    return ok("app", f"{bot.get('app_name') or 'the bot'} is enabled")


def _app_fix(error: FeishuError, channel: str) -> str:
    if error.refused:
        return (
            f"Credentials & Basic Info {_CONSOLE} shows App ID and App Secret; Lark's domain is"
            " https://open.larksuite.com"
        )
    return f"check the network, the proxy (HTTPS_PROXY) and channels.{channel}.domain"


async def _permissions(rest: FeishuRestClient, section: FeishuConfig) -> list[CheckResult]:
    try:
        data = await rest.call("GET", "/open-apis/application/v6/scopes")
    except FeishuError as error:
        text = f"could not be read: {error.user_message}"
        return [note("permissions", text)]
    granted = set(_granted(data.get("scopes")))
    streaming = [_streaming(granted, section)] if section.streaming is not False else []
    return [_check_scopes(granted, section), *streaming, *_speech(granted)]


def _check_scopes(granted: set[str], section: FeishuConfig) -> CheckResult:
    needs = [*_REQUIRED_SCOPES, *([_ALL_GROUP_MESSAGES] if section.group_policy == "open" else [])]
    lacking = [need for need in needs if granted.isdisjoint(need.scopes)]
    if not lacking:
        return ok("permissions", "all required ones are granted")
    return CheckResult(
        subject="permissions",
        text="missing: " + ", ".join(f"{need.scopes[0]} ({need.without})" for need in lacking),
        severity=Severity.PROBLEM if any(need.essential for need in lacking) else Severity.WARNING,
        fix=f"add them under Permissions & Scopes {_CONSOLE}, then {_PUBLISH}",
    )


def _streaming(granted: set[str], section: FeishuConfig) -> CheckResult:
    """Report how answers grow: either their cards stream, or they are replaced twice a second."""
    if SCOPE in granted:
        return ok("streaming", "answers stream while they are written (CardKit)")
    return CheckResult(
        subject="streaming",
        text=f"answers grow in steps: the app may not stream cards ({SCOPE})",
        # `auto` means the best way that the app's permissions allow.
        severity=Severity.NOTE if section.streaming == "auto" else Severity.WARNING,
        fix=f"add {SCOPE} under Permissions & Scopes {_CONSOLE}, then {_PUBLISH}",
    )


def _speech(granted: set[str]) -> list[CheckResult]:
    """Report whether Feishu recognizes voice messages, if the app has the permission."""
    if SPEECH_SCOPE not in granted:
        return []
    if shutil.which("ffmpeg") is None:
        fix = "install ffmpeg, which converts voice messages for Feishu (docs/howto/voice.md)"
        return [note("speech", "Feishu cannot recognize voice messages: ffmpeg is missing", fix)]
    return [ok("speech", "Feishu recognizes voice messages up to one minute long")]


def _granted(scopes: object) -> Iterable[str]:
    for scope in scopes if isinstance(scopes, list) else ():
        if isinstance(scope, dict) and scope.get("grant_status") == _GRANTED:
            yield str(scope.get("scope_name"))


async def _connection(
    app: FeishuApp, rest: FeishuRestClient, timeouts: FeishuTimeouts
) -> CheckResult:
    try:
        await fetch_endpoint(app, rest, timeouts)
    except ConnectionFailure as error:
        fix = (
            f"Events & Callbacks {_CONSOLE}: receive events through persistent connection"
            if not error.retryable
            else "try again in a minute; check the network"
        )
        return problem("connection", error.detail, fix)
    return ok("connection", "Feishu accepts long connections of the app")


def _webhook_secrets(section: FeishuConfig, channel: str) -> CheckResult:
    names = ("encrypt_key", "verification_token")
    lacking = [f"channels.{channel}.{name}" for name in names if not getattr(section, name)]
    if not lacking:
        text = "its secrets are set (Feishu does not say whether they are right)"
        return ok("webhook", text)
    fix = f"Events & Callbacks, Encryption Strategy {_CONSOLE} shows both; set {' and '.join(lacking)}"
    return problem("webhook", f"mode webhook needs {' and '.join(lacking)}", fix)


def _events(section: FeishuConfig) -> CheckResult:
    how = "persistent connection" if section.mode == "websocket" else "the webhook URL"
    return note(
        "events",
        "Feishu does not show which events the app subscribes to",
        f"if messages do not arrive, add im.message.receive_v1 under Events & Callbacks {_CONSOLE} and use {how};"
        " if buttons do nothing, add card.action.trigger under Callback Configuration; then publish a version",
    )
