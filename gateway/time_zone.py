"""The time zone in which the agent is told the date: `TZ`, as the C library reads it (tzset(3))."""

import re
import zoneinfo
from pathlib import Path

_RULE = re.compile(r"(?:[A-Za-z]{3,}|<[A-Za-z0-9+-]{3,}>)[+-]?\d.*")
"""A time zone that says its offset itself: `UTC0`, `CET-1CEST,M3.5.0,M10.5.0/3`."""


def find_time_zone_problem(name: str) -> str | None:
    """Return that the value of `TZ` names no time zone, in which case times are in UTC, without a word; else None.

    >>> [find_time_zone_problem(name) for name in ("", "UTC0", "<+03>-3", "CET-1CEST,M3.5.0,M10.5.0/3")]
    [None, None, None, None]
    """
    plain = name.removeprefix(":")
    if not plain or _RULE.fullmatch(plain) or _is_known(plain):
        return None
    return (
        f"TZ: there is no time zone {plain} on this machine, so times are in UTC: set a name like Europe/Berlin, or"
        " install tzdata"
    )


def _is_known(name: str) -> bool:
    if name in ("UTC", "GMT", "Etc/UTC"):  # also on a machine that knows no time zones
        return True
    folders = [Path("/")] if name.startswith("/") else map(Path, zoneinfo.TZPATH)
    return ".." not in name and any((folder / name).is_file() for folder in folders)
