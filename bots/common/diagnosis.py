"""Results of the checks of `parley doctor`, each with a fix, and the check of the clock."""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import StrEnum
from urllib.parse import urlsplit

import httpx

from bus.platform import Clock, CommandInfo

CLOCK_TIMEOUT_S = 5.0
"""Time limit of the request that compares the clocks, seconds."""

_OK_SKEW_S = 30.0
_MAX_SKEW_S = 240.0
"""Maximum difference between the clocks, seconds. Platforms refuse signatures that are 5 minutes off."""


class Severity(StrEnum):
    """The severity of a result."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """The result of one check.

    Attributes:
        subject: The checked object, in one or two words.
        text: The finding, without secrets.
        severity: `problem` = something cannot work. `warning` = something will be missing. `note` = information.
        fix: What to do; "" = nothing.
    """

    subject: str
    text: str
    severity: Severity = Severity.OK
    fix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosisOptions:
    """Options of a diagnosis.

    Attributes:
        channel: Instance name of the channel.
        exclusive: Whether nothing else uses this bot now, so that checks may disturb other processes.
        service_running: Whether the service is running now.
        setting_up: Whether the bot is being set up, so that its app may not be published yet.
        commands: Commands that the platform should list.
    """

    exclusive: bool
    channel: str = ""
    service_running: bool = False
    setting_up: bool = False
    commands: Sequence[CommandInfo] = ()


Diagnose = Callable[..., Awaitable[Sequence[CheckResult]]]
"""`diagnose(section, options)` in `bots/<platform>/diagnosis.py`. Never raises. Limits the time of every call."""


def ok(subject: str, text: str) -> CheckResult:
    """Return a result of severity `ok`."""
    return CheckResult(subject=subject, text=text)


def note(subject: str, text: str, fix: str = "") -> CheckResult:
    """Return a result of severity `note`."""
    return CheckResult(subject=subject, text=text, severity=Severity.NOTE, fix=fix)


def warning(subject: str, text: str, fix: str = "") -> CheckResult:
    """Return a result of severity `warning`."""
    return CheckResult(subject=subject, text=text, severity=Severity.WARNING, fix=fix)


def problem(subject: str, text: str, fix: str = "") -> CheckResult:
    """Return a result of severity `problem`."""
    return CheckResult(subject=subject, text=text, severity=Severity.PROBLEM, fix=fix)


async def check_clock(url: str, *, now: Clock = time.time) -> list[CheckResult]:
    """Compare this machine's clock with a server's. Return nothing if that is not possible.

    Args:
        url: Any URL of the server. Only its root is requested.
        now: The clock to check.
    """
    try:
        parts = urlsplit(url)
        local = (parts.hostname or "") in {"localhost", "127.0.0.1", "::1"}
        async with httpx.AsyncClient(timeout=CLOCK_TIMEOUT_S, trust_env=not local) as client:
            before = now()
            answer = await client.get(f"{parts.scheme}://{parts.netloc}/")
            middle = (before + now()) / 2
        server_time = parsedate_to_datetime(answer.headers["date"]).timestamp()
    except (httpx.HTTPError, httpx.InvalidURL, LookupError, ValueError, OSError):
        return []
    return [check_clock_skew(middle - server_time, parts.hostname or "the platform")]


def check_clock_skew(ahead_s: float, server: str) -> CheckResult:
    """Return the result for a clock that is `ahead_s` seconds ahead of a server's clock; negative = behind.

    >>> check_clock_skew(-3700.2, "slack.com").text
    'this clock is 3700 s behind slack.com'
    """
    where = "ahead of" if ahead_s > 0 else "behind"
    far = abs(ahead_s)
    if far <= _OK_SKEW_S:
        return CheckResult(subject="clock", text=f"agrees with {server}")
    return CheckResult(
        subject="clock",
        text=f"this clock is {far:.0f} s {where} {server}",
        severity=Severity.PROBLEM if far > _MAX_SKEW_S else Severity.WARNING,
        fix="synchronize the clock with NTP (`timedatectl set-ntp true`): signatures and tokens depend on it",
    )
