"""Checks the schedules of chats that a running service has: paused ones, and time zones that do not exist."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import httpx
from anyio import to_thread

from bots.common.diagnosis import CheckResult, Severity, problem
from bus.recurrence import InvalidTimes, find_zone
from gateway.command_errors import CommandFailed
from gateway.service_client import request_json
from store.schedules import CHAT, FAILURES, OWNER

PAGE = 1000
"""Number of schedules per request, the API's maximum."""

_PAUSED = {
    FAILURES: (
        "it failed several times in a row",
        "see its occurrences, then resume it with /schedule",
    ),
    OWNER: (
        "its owner left the chat or may no longer use the bot",
        "delete it, or create it again in another person's name",
    ),
    CHAT: ("the bot is no longer in its chat", "add the bot again, or delete it"),
}


async def check_schedules(client: httpx.AsyncClient) -> list[CheckResult]:
    """Check the schedules of the running service. Empty = it has none. Never raises."""
    found: list[CheckResult] = []
    count = 0
    while True:
        try:
            answer = await request_json(client, "GET", "schedules", limit=PAGE, offset=count)
        except CommandFailed as error:
            return [problem("all", str(error))]
        page = answer["schedules"]
        found += await to_thread.run_sync(_problems, page)
        count += len(page)
        if len(page) < PAGE:
            break
    if count and not found:
        found.append(CheckResult(subject="all", text=f"{count} without a problem"))
    return found


def _problems(rows: Sequence[Mapping[str, Any]]) -> list[CheckResult]:
    return [*describe_schedules(rows)]


def describe_schedules(rows: Sequence[Mapping[str, Any]]) -> Iterator[CheckResult]:
    """Yield the problems of schedules as the API shows them. Reads the files of time zones.

    >>> row = {"name": "news", "channel": "slack", "chat": "C1", "timezone": "Mars/Base", "paused_because": "chat"}
    >>> [one.severity.value for one in describe_schedules([row])]
    ['warning', 'problem']
    """
    for row in rows:
        subject = f"{row['name']} (in {row['channel']} {row['chat']})"
        if row["paused_because"] in _PAUSED:
            text, fix = _PAUSED[row["paused_because"]]
            yield CheckResult(
                subject=subject, text=f"paused: {text}", severity=Severity.WARNING, fix=fix
            )
        try:
            find_zone(row["timezone"])
        except InvalidTimes as error:
            yield problem(subject, str(error), fix="update the host's time zones, or change it")
