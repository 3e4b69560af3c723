"""Compares this machine's clock with a platform's."""

import time

import pytest

from bots.common.diagnosis import Severity, check_clock, check_clock_skew
from gateway.playground.telegram.server import TelegramServer


@pytest.mark.parametrize(
    ("ahead_s", "grade"),
    [
        (0.4, Severity.OK), (-29.0, Severity.OK), (45.0, Severity.WARNING), (-200.0, Severity.WARNING),
        (301.0, Severity.PROBLEM), (-86400.0, Severity.PROBLEM),
    ],
)  # fmt: skip
def test_a_clock_is_judged_by_what_signatures_bear(ahead_s: float, grade: Severity) -> None:
    finding = check_clock_skew(ahead_s, "slack.com")
    assert finding.severity is grade
    assert bool(finding.fix) is (grade is not Severity.OK)


async def test_a_clock_that_is_wrong_is_seen() -> None:
    async with TelegramServer() as telegram:
        (right,) = await check_clock(telegram.base_url)
        assert right.severity is Severity.OK
        (wrong,) = await check_clock(telegram.base_url, now=lambda: time.time() + 3600)
        assert wrong.severity is Severity.PROBLEM
        assert "ahead of 127.0.0.1" in wrong.text


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/", "nonsense", "http://[", ""])
async def test_a_response_without_a_date_is_no_finding(url: str) -> None:
    assert await check_clock(url) == []
