"""What a look at a platform brought, each finding with what to do about it; and how far the clocks are apart."""

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Final
from urllib.parse import urlsplit

import httpx

from bus.platform import Clock, CommandInfo

CLOCK_TIMEOUT_S: Final = 5.0
"""How long a platform may take to tell the time."""

_NEAR_S: Final = 30.0
_FAR_S: Final = 240.0
"""Platforms and their SDKs refuse signatures that are 5 minutes away; beyond this it is a matter of luck."""


class Severity(StrEnum):
    """How good or bad something is."""

    OK = "ok"
    NOTE = "note"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One thing that was looked at.

    Attributes:
        subject: What, in one or two words.
        text: What was found; no secrets.
        grade: `problem` = something cannot work; `warning` = something will be missed; `note` = good to know.
        fix: What to do; "" where nothing has to be done.
    """

    subject: str
    text: str
    grade: Severity = Severity.OK
    fix: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiagnosisOptions:
    """How to look.

    Attributes:
        channel: Instance name of the channel.
        alone: What would disturb another process with this bot may be tried.
        served: A service of ours runs now.
        early: The bot is being set up: what comes with the app's publication may be missing still.
        commands: What the platform shall list.
    """

    alone: bool
    channel: str = ""
    served: bool = False
    early: bool = False
    commands: Sequence[CommandInfo] = ()


Diagnose = Callable[..., Awaitable[Sequence[CheckResult]]]
"""`bots/<platform>/diagnosis.py: diagnose(section, look)`. Never raises; every call has a deadline."""


def problem(subject: str, text: str, fix: str = "") -> CheckResult:
    """Return a finding that something cannot work."""
    return CheckResult(subject=subject, text=text, grade=Severity.PROBLEM, fix=fix)


async def check_clock(url: str, *, now: Clock = time.time) -> list[CheckResult]:
    """Compare this machine's clock with a server's; nothing where that cannot be done.

    Args:
        url: Any address of the server; only its root is asked for.
        now: The clock to judge.
    """
    try:
        parts = urlsplit(url)
        local = (parts.hostname or "") in {"localhost", "127.0.0.1", "::1"}
        async with httpx.AsyncClient(timeout=CLOCK_TIMEOUT_S, trust_env=not local) as client:
            before = now()
            answer = await client.get(f"{parts.scheme}://{parts.netloc}/")
            middle = (before + now()) / 2
        told = parsedate_to_datetime(answer.headers["date"]).timestamp()
    except (httpx.HTTPError, httpx.InvalidURL, LookupError, ValueError, OSError):
        return []
    return [check_clock_skew(middle - told, parts.hostname or "the platform")]


def check_clock_skew(ahead_s: float, whose: str) -> CheckResult:
    """Judge how far our clock is ahead of another.

    >>> check_clock_skew(-3700.2, "slack.com").text
    'this clock is 3700 s behind slack.com'
    """
    where = "ahead of" if ahead_s > 0 else "behind"
    far = abs(ahead_s)
    if far <= _NEAR_S:
        return CheckResult(subject="clock", text=f"agrees with {whose}")
    return CheckResult(
        subject="clock",
        text=f"this clock is {far:.0f} s {where} {whose}",
        grade=Severity.PROBLEM if far > _FAR_S else Severity.WARNING,
        fix="let the machine keep its time by NTP (`timedatectl set-ntp true`): signatures and tokens depend on it",
    )
