"""The times of a schedule: once, at regular intervals, or by a cron expression, in a time zone. Pure.

When clocks change, a cron expression with a fixed hour runs once a day. If its time is skipped, it runs at the next
time that exists on that day, or at the last time that exists if none follows. If its time occurs twice, it runs the
first time (as in Debian's cron). A day that a time zone skips has no times. An expression without a fixed hour, such as
`*/10 * * * *`, runs each time the clock shows a matching time.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from itertools import islice
from typing import Literal
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

ScheduleKind = Literal["once", "every", "cron"]

MIN_PERIOD_S = 60.0
"""The shortest period of `every`, seconds, and the resolution of cron expressions."""

END = datetime(9999, 1, 1, tzinfo=UTC).timestamp()
"""Schedules have times from 1970 up to, but excluding, this one, Unix seconds. Each has a date in every time zone."""

MAX_COUNTED = 10_000
"""Maximum number of missed times to count."""

MAX_TRIES = 10_000
"""Maximum number of times to try until one is in the active hours."""

_MINUTE = timedelta(minutes=1)
_UNITS_S = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_PERIOD = re.compile(r"(?:\d{1,6}[smhdw]){1,5}")
_PERIOD_PART = re.compile(r"(\d+)([smhdw])")
_HOURS = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)")
_ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_CRON_FIELDS = 5


class InvalidTimes(ValueError):
    """An expression, time zone or range of hours that cannot be used. The message says why, in English."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence:
    """When a schedule is due.

    Attributes:
        kind: `once`, `every` or `cron`.
        expression: A date and time (ISO 8601), a period such as `30m` or `1h30m`, or five cron fields.
        timezone: The IANA name of the zone of dates, cron fields and active hours.
        since: When the schedule begins, Unix seconds; periods count from here.
        end_at: It is no longer due after this time, Unix seconds; None = it never ends.
        active_hours: The local hours in which it may be due, `09:00-18:00`; past midnight if the end is earlier than
            the beginning; "" = always. Not for `once`.
    """

    kind: ScheduleKind
    expression: str
    timezone: str
    since: float
    end_at: float | None = None
    active_hours: str = ""

    def check(self) -> None:
        """Raise InvalidTimes if it cannot be used.

        >>> Recurrence(kind="every", expression="10s", timezone="UTC", since=0).check()
        Traceback (most recent call last):
        ...
        bus.recurrence.InvalidTimes: The period must be at least 60 seconds, such as 30m or 1h30m.
        """
        find_zone(self.timezone)
        if self.end_at is not None:
            _check_years(self.end_at)
        if self.active_hours:
            _parse_hours(self.active_hours)
            if self.kind == "once":
                raise InvalidTimes("A schedule that is due once has no active hours.")
        match self.kind:
            case "once":
                _parse_moment(self.expression, self.timezone)
            case "every":
                _parse_period(self.expression)
            case "cron":
                _parse_cron(self.expression)

    def next_after(self, after: float) -> float | None:
        """Return the first time after `after` (Unix seconds) at which it is due; None = never again.

        >>> daily = Recurrence(kind="cron", expression="0 9 * * *", timezone="UTC", since=0)
        >>> daily.next_after(0.0), daily.next_after(9 * 3600.0)
        (32400.0, 118800.0)
        """
        return next(self.times_after(after), None)

    def times_after(self, after: float) -> Iterator[float]:
        """Yield the times after `after` and before `END` at which it is due, in order."""
        zone = find_zone(self.timezone)
        failures = 0
        if after >= END:
            return
        for at in self._all_after(after, zone):
            if at >= END or (self.end_at is not None and at > self.end_at):
                return
            if self.active_hours and not _is_active(at, self.active_hours, zone):
                failures += 1
                if failures > MAX_TRIES:
                    return
            else:
                failures = 0
                yield at

    def count_between(self, after: float, until: float) -> int:
        """Return how many times it is due after `after` and up to `until`, at most `MAX_COUNTED`."""
        count = 0
        for at in islice(self.times_after(after), MAX_COUNTED):
            if at > until:
                break
            count += 1
        return count

    def _all_after(self, after: float, zone: tzinfo) -> Iterator[float]:
        match self.kind:
            case "once":
                at = _parse_moment(self.expression, self.timezone)
                return iter((at,) if at > after else ())
            case "every":
                return _multiples(self.since, _parse_period(self.expression), after)
            case "cron":
                return _cron_times(_parse_cron(self.expression), after, zone)


@lru_cache(maxsize=1024)
def find_zone(name: str) -> tzinfo:
    """Return a time zone by its IANA name. Raises InvalidTimes.

    >>> find_zone("Europe/Berlin").key
    'Europe/Berlin'
    >>> find_zone("Berlin")
    Traceback (most recent call last):
    ...
    bus.recurrence.InvalidTimes: There is no time zone 'Berlin'. Use a name such as Europe/Berlin.
    """
    try:
        return ZoneInfo(name)
    except (OSError, ValueError, LookupError):
        shown = name[:64]
        raise InvalidTimes(
            f"There is no time zone {shown!r}. Use a name such as Europe/Berlin."
        ) from None


def format_moment(at: float, timezone: str) -> str:
    """Return a time in a zone for people: minutes, and the zone's abbreviation.

    >>> format_moment(0.0, "Asia/Shanghai")
    '1970-01-01 08:00 CST'
    """
    return datetime.fromtimestamp(at, find_zone(timezone)).strftime("%Y-%m-%d %H:%M %Z")


def _multiples(since: float, period_s: float, after: float) -> Iterator[float]:
    number = max(1, int((after - since) // period_s) + 1)
    while True:
        at = since + number * period_s
        if at > after:
            yield at
        number += 1


def _cron_times(fields: str, after: float, zone: tzinfo) -> Iterator[float]:
    begin = datetime.fromtimestamp(after, zone)
    with suppress(OverflowError):  # The calendar ends.
        if any(field.startswith("*") for field in fields.split()[:2]):
            for local in CronSim(fields, begin):
                at = local.timestamp()
                # If an hour exists twice, cronsim may return a time before `after`. For a skipped day, it returns
                # midnight.
                if at > after and datetime.fromtimestamp(at, zone).date() == local.date():
                    yield at
            return
        latest = after
        for local in CronSim(fields, begin.replace(tzinfo=None)):
            moment = _existing_on_day(local.replace(tzinfo=zone))
            if moment is not None and moment.timestamp() > latest:
                latest = moment.timestamp()
                yield latest


@lru_cache(maxsize=1024)
def _parse_cron(expression: str) -> str:
    fields = _ALIASES.get(expression.strip().lower(), expression)
    if len(fields.split()) != _CRON_FIELDS:
        raise InvalidTimes(
            "A cron expression has five fields: minute, hour, day of the month, month, day of the week."
        )
    try:
        CronSim(fields, datetime.fromtimestamp(0, UTC))
    except CronSimError as error:
        raise InvalidTimes(f"{error} in the cron expression.") from None
    return fields


def _parse_period(expression: str) -> float:
    text = expression.replace(" ", "").lower()
    if _PERIOD.fullmatch(text) is None:
        raise InvalidTimes("A period is a number and a unit: 30m, 2h, 1d, 1h30m.")
    period_s = float(sum(int(n) * _UNITS_S[unit] for n, unit in _PERIOD_PART.findall(text)))
    if period_s < MIN_PERIOD_S:
        raise InvalidTimes("The period must be at least 60 seconds, such as 30m or 1h30m.")
    return period_s


def _parse_moment(expression: str, timezone: str) -> float:
    """Return a date and time as Unix seconds. If clocks skip it, return the next time that exists.

    >>> _parse_moment("2026-03-29T02:30", "Europe/Berlin") == _parse_moment("2026-03-29T03:00", "Europe/Berlin")
    True
    """
    try:
        local = datetime.fromisoformat(expression.strip())
    except ValueError:
        raise InvalidTimes("A time is a date and an hour in ISO 8601: 2026-12-24T18:00.") from None
    moment = local if local.tzinfo is not None else local.replace(tzinfo=find_zone(timezone))
    _check_years(moment.timestamp())
    return _existing(moment, _MINUTE).timestamp()


def _check_years(at: float) -> None:
    if not 0 <= at < END:
        raise InvalidTimes("The times of a schedule are in the years 1970 to 9998.")


def _existing_on_day(moment: datetime) -> datetime | None:
    """Return the time of that day to use instead of one that clocks skip; None = they skip the whole day."""
    found = (_existing(moment, step) for step in (_MINUTE, -_MINUTE))
    return next((one for one in found if one.date() == moment.date()), None)


def _existing(moment: datetime, step: timedelta) -> datetime:
    """Return a time, or if clocks skip it, the nearest time that exists in the direction of `step`."""
    while _is_skipped(moment):
        moment = moment.replace(second=0, microsecond=0) + step
    return moment


def _is_skipped(moment: datetime) -> bool:
    return moment.astimezone(UTC).astimezone(moment.tzinfo).replace(tzinfo=None) != moment.replace(
        tzinfo=None
    )


def _parse_hours(text: str) -> tuple[int, int]:
    match = _HOURS.fullmatch(text)
    if match is None:
        raise InvalidTimes("Active hours are two times of day: 09:00-18:00.")
    first, last = (60 * int(match[n]) + int(match[n + 1]) for n in (1, 3))
    if first == last:
        raise InvalidTimes("Active hours need a beginning and a different end: 09:00-18:00.")
    return first, last


def _is_active(at: float, hours: str, zone: tzinfo) -> bool:
    """Return whether a time is in the active hours.

    >>> [_is_active(hour * 3600.0, "22:00-06:00", UTC) for hour in (5, 6, 21, 22)]
    [True, False, False, True]
    """
    first, last = _parse_hours(hours)
    local = datetime.fromtimestamp(at, zone)
    minute = 60 * local.hour + local.minute
    return first <= minute < last if first < last else minute >= first or minute < last
