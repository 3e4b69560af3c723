"""The time zone of the agent's date: `TZ`, as the C library interprets it (tzset(3))."""

import re
import zoneinfo
from pathlib import Path

_RULE = re.compile(r"(?:[A-Za-z]{3,}|<[A-Za-z0-9+-]{3,}>)[+-]?\d.*")
"""A time zone that states its own offset: `UTC0`, `CET-1CEST,M3.5.0,M10.5.0/3`."""


def find_time_zone_problem(name: str) -> str | None:
    """Return a message if `TZ` does not name a time zone, else None. The C library would silently use UTC.

    >>> [find_time_zone_problem(name) for name in ("", "UTC0", "<+03>-3", "CET-1CEST,M3.5.0,M10.5.0/3")]
    [None, None, None, None]
    """
    plain = name.removeprefix(":")
    if not plain or _RULE.fullmatch(plain) or _is_known(plain):
        return None
    return (
        f"TZ: there is no time zone {plain} on this machine, so times are in UTC: set a name such as Europe/Berlin, or"
        " install tzdata"
    )


def _is_known(name: str) -> bool:
    if name in ("UTC", "GMT", "Etc/UTC"):  # also on a machine without time zone data
        return True
    folders = [Path("/")] if name.startswith("/") else map(Path, zoneinfo.TZPATH)
    return ".." not in name and any((folder / name).is_file() for folder in folders)
