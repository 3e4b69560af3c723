"""The clock of this machine against that of a platform."""

import time

import pytest

from bots.diagnosis import Grade, clock, skew
from tests.fakes.telegram import TelegramServer


@pytest.mark.parametrize(
    ("ahead_s", "grade"),
    [
        (0.4, Grade.OK), (-29.0, Grade.OK), (45.0, Grade.WARNING), (-200.0, Grade.WARNING),
        (301.0, Grade.PROBLEM), (-86400.0, Grade.PROBLEM),
    ],
)  # fmt: skip
def test_a_clock_is_judged_by_what_signatures_bear(ahead_s: float, grade: Grade) -> None:
    finding = skew(ahead_s, "slack.com")
    assert finding.grade is grade
    assert bool(finding.fix) is (grade is not Grade.OK)


async def test_a_clock_that_is_wrong_is_seen() -> None:
    async with TelegramServer() as telegram:
        (right,) = await clock(telegram.base_url)
        assert right.grade is Grade.OK
        (wrong,) = await clock(telegram.base_url, now=lambda: time.time() + 3600)
        assert wrong.grade is Grade.PROBLEM
        assert "ahead of 127.0.0.1" in wrong.text


@pytest.mark.parametrize("url", ["http://127.0.0.1:1/", "nonsense", "http://[", ""])
async def test_a_server_that_tells_no_time_is_no_finding(url: str) -> None:
    assert await clock(url) == []
