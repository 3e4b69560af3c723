"""Checks of a Telegram bot: token, privacy mode, webhook, waiting messages, other pollers, commands."""

from collections.abc import Sequence
from contextlib import AsyncExitStack
from urllib.parse import urlsplit

import anyio
from telegram import User, WebhookInfo
from telegram.error import Conflict, TelegramError

from bots.common.connection import ConnectionFailure
from bots.common.diagnosis import (
    CheckResult,
    DiagnosisOptions,
    check_clock,
    note,
    ok,
    problem,
    warning,
)
from bots.config import TelegramConfig
from bots.telegram.api import (
    MALFORMED,
    TelegramBot,
    TelegramConnections,
    TelegramTimeouts,
    redact_sdk_logs,
    redact_tokens,
)
from bots.telegram.connection_failures import POLLED_BY_ANOTHER, connection_failure

DIAGNOSIS_TIMEOUTS = TelegramTimeouts(connect_s=5.0, answer_s=10.0, poll_s=5)
"""Another poller that our poll interrupts polls again within two seconds, so a poll of `poll_s` detects it."""


async def diagnose(
    section: TelegramConfig,
    options: DiagnosisOptions,
    *,
    timeouts: TelegramTimeouts = DIAGNOSIS_TIMEOUTS,
) -> Sequence[CheckResult]:
    """Check the bot of a section."""
    redact_sdk_logs()
    connections = TelegramConnections(section, timeouts)
    async with AsyncExitStack() as stack:
        try:
            bot = await stack.enter_async_context(connections.open())
            results = await _run_checks(bot, section, options, timeouts)
        except (TelegramError, TimeoutError, *MALFORMED) as error:
            failure = connection_failure(error, channel=options.channel, base_url=section.base_url)
            results = [problem("bot", failure.problem, _fix(failure, options.channel))]
    return [*results, *await check_clock(section.base_url)]


async def _run_checks(
    bot: TelegramBot, section: TelegramConfig, options: DiagnosisOptions, timeouts: TelegramTimeouts
) -> list[CheckResult]:
    with anyio.fail_after(4 * timeouts.total_s()):
        user = await bot.get_me()
        webhook = await bot.get_webhook_info()
        listed = {command.command for command in await bot.get_my_commands()}
    results = [ok("bot token", f"@{user.username}"), _groups(user, section)]
    results += _webhook(webhook, section, options.channel)
    waiting = webhook.pending_update_count
    if section.mode == "polling" and not webhook.url:
        results.append(await _poller(bot, waiting, options, timeouts))
    if options.commands:
        results.append(_commands(listed, options))
    return results


def _groups(user: User, section: TelegramConfig) -> CheckResult:
    if user.can_join_groups is False:
        return note(
            "groups",
            "the bot cannot be added to groups",
            "send /setjoingroups to @BotFather if it should be",
        )
    if user.can_read_all_group_messages:
        return ok("groups", "privacy mode is off: it sees all group messages")
    text = "privacy mode is on: it sees commands, mentions and replies to it"
    if section.group_policy != "open":
        return ok("groups", text)
    return warning(
        "groups",
        f"{text}; group_policy: open needs to see all messages",
        "send /setprivacy to @BotFather, choose the bot, press Disable, then add it to its groups again",
    )


def _webhook(webhook: WebhookInfo, section: TelegramConfig, channel: str) -> list[CheckResult]:
    if section.mode == "webhook":
        return [_own_webhook(webhook, section, channel)]
    if not webhook.url:
        return []
    return [
        warning(
            "webhook",
            f"one is set to {_host(webhook.url)}, so polling does not work",
            "`parley serve` removes it; if another service uses this bot, create a separate bot for Parley",
        )
    ]


def _own_webhook(webhook: WebhookInfo, section: TelegramConfig, channel: str) -> CheckResult:
    missing = [name for name in ("webhook_url", "webhook_secret") if not getattr(section, name)]
    if missing:
        keys = " and ".join(f"channels.{channel}.{name}" for name in missing)
        return problem("webhook", f"mode webhook needs {keys}", f"set {keys}")
    if webhook.url != section.webhook_url:
        where = f"it points to {_host(webhook.url)}" if webhook.url else "none is set"
        text = f"{where}, not to channels.{channel}.webhook_url"
        return note("webhook", text, "`parley serve` sets it when it starts")
    if webhook.last_error_message:
        reason = redact_tokens(webhook.last_error_message)[:200]
        return warning(
            "webhook",
            f"Telegram could not deliver to {_host(webhook.url)}: {reason}",
            "the URL must lead to the gateway over HTTPS, on port 443, 80, 88 or 8443",
        )
    return ok("webhook", f"Telegram delivers to {_host(webhook.url)}")


async def _poller(
    bot: TelegramBot, waiting: int, options: DiagnosisOptions, timeouts: TelegramTimeouts
) -> CheckResult:
    """Check for other pollers: another process's poll ends our long poll."""
    if waiting and options.service_running:
        return warning(
            "polling",
            f"{waiting} message(s) wait at Telegram although the service is running",
            "see `detail` of the channel in GET /api/channels, and the log",
        )
    if waiting:
        text = f"{waiting} message(s) wait at Telegram; the service is not running"
        return ok("polling", text)
    if not options.exclusive:
        return ok("polling", "no messages are waiting")
    try:
        with anyio.fail_after(timeouts.total_s(waiting_s=timeouts.poll_s)):
            await bot.poll(None, timeouts.poll_s, grace_s=timeouts.answer_s)
    except Conflict:
        return problem("polling", POLLED_BY_ANOTHER, _CONTESTED_FIX)
    return ok("polling", "no other process polls with this token")


def _commands(listed: set[str], options: DiagnosisOptions) -> CheckResult:
    missing = [command.name for command in options.commands if command.name not in listed]
    if not missing:
        return ok("commands", "Telegram lists them")
    return note(
        "commands",
        f"Telegram does not list these yet: {', '.join(missing)}",
        "`parley serve` registers them when it starts",
    )


_CONTESTED_FIX = "stop the other process, or give it a bot of its own"


def _fix(failure: ConnectionFailure, channel: str) -> str:
    if not failure.retryable:
        return "send /token to @BotFather and copy it again"
    return f"check the network, the proxy (HTTPS_PROXY) and channels.{channel}.base_url"


def _host(url: str) -> str:
    """Return the host of a URL. The rest of a webhook's URL may be secret."""
    try:
        return urlsplit(url).hostname or "a URL without a host"
    except ValueError:
        return "a URL that cannot be parsed"
