"""The times of schedules: both switches of daylight saving time, any zone, active hours, and invalid schedules."""

from datetime import UTC, date, datetime, timedelta
from itertools import islice, pairwise
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bus.recurrence import END, InvalidTimes, Recurrence, ScheduleKind, find_zone

ZONES = (
    *("UTC", "Europe/Berlin", "America/New_York", "America/Sao_Paulo", "Asia/Shanghai"),
    *("Asia/Kolkata", "Asia/Kathmandu", "Australia/Lord_Howe", "Pacific/Apia", "Africa/Casablanca"),
    *("America/St_Johns", "Antarctica/Troll", "Asia/Tehran", "Pacific/Chatham"),
    "America/Scoresbysund",
)
zones = st.sampled_from(ZONES)
moments = st.floats(min_value=1.0e9, max_value=2.2e9).map(int).map(float)


def recurrence(
    kind: ScheduleKind, expression: str, zone: str = "Europe/Berlin", **more: object
) -> Recurrence:
    fields = {"since": 0.0, **more}
    return Recurrence(kind=kind, expression=expression, timezone=zone, **fields)  # type: ignore[arg-type]


def local_times(one: Recurrence, after: str, count: int) -> list[str]:
    zone = ZoneInfo(one.timezone)
    begin = datetime.fromisoformat(after).replace(tzinfo=zone).timestamp()
    found = islice(one.times_after(begin), count)
    return [datetime.fromtimestamp(at, zone).strftime("%m-%d %H:%M %z") for at in found]


def test_a_time_that_the_clock_skips_comes_at_the_first_one_that_exists() -> None:
    daily = recurrence("cron", "30 2 * * *")
    assert local_times(daily, "2026-03-28 00:00", 3) == [
        "03-28 02:30 +0100",
        "03-29 03:00 +0200",
        "03-30 02:30 +0200",
    ]


def test_a_time_that_the_clock_shows_twice_comes_once() -> None:
    daily = recurrence("cron", "30 2 * * *")
    assert local_times(daily, "2026-10-24 00:00", 3) == [
        "10-24 02:30 +0200",
        "10-25 02:30 +0200",
        "10-26 02:30 +0100",
    ]


def test_a_time_at_the_end_of_a_day_that_the_clock_skips_comes_just_before() -> None:
    daily = recurrence("cron", "30 22,23 * * *", "America/Scoresbysund")
    assert local_times(daily, "2026-03-28 12:00", 4) == [
        "03-28 22:30 -0200",
        "03-28 22:59 -0200",
        "03-29 22:30 -0100",
        "03-29 23:30 -0100",
    ]


@pytest.mark.parametrize("expression", ["0 9 * * *", "0 0 * * *", "59 23 * * *"])
def test_a_day_that_a_zone_skips_has_no_time(expression: str) -> None:
    daily = recurrence("cron", expression, "Pacific/Apia")
    found = local_times(daily, "2011-12-29 00:00", 4)
    days = [one[:5] for one in found if not one.startswith("12-29")]
    assert days[:3] == ["12-31", "01-01", "01-02"]


@pytest.mark.parametrize("minutes", ["30", "*/30"])
def test_a_date_that_a_zone_skips_comes_a_year_later(minutes: str) -> None:
    yearly = recurrence("cron", f"{minutes} 0 30 12 *", "Pacific/Apia")
    begin = datetime(2011, 12, 20, tzinfo=UTC).timestamp()
    at = yearly.next_after(begin)
    assert at is not None
    assert datetime.fromtimestamp(at, ZoneInfo("Pacific/Apia")).date() == date(2012, 12, 30)


def test_a_period_keeps_its_length_over_a_switch() -> None:
    every = recurrence("every", "12h", since=datetime(2026, 3, 28, 8, tzinfo=UTC).timestamp())
    found = list(islice(every.times_after(every.since), 4))
    assert [later - earlier for earlier, later in pairwise(found)] == [43_200.0] * 3


@given(zones, moments, st.integers(0, 23), st.integers(0, 59))
def test_a_daily_time_comes_once_each_local_day(
    zone: str, begin: float, hour: int, minute: int
) -> None:
    daily = recurrence("cron", f"{minute} {hour} * * *", zone)
    found = list(islice(daily.times_after(begin), 400))
    days = [datetime.fromtimestamp(at, ZoneInfo(zone)).date() for at in found]
    assert len(set(days)) == len(days) == 400
    skipped = zone == "Pacific/Apia" and days[0] < date(2011, 12, 30) < days[-1]
    assert (days[-1] - days[0]).days == 399 + skipped
    assert found == sorted(found)


@given(
    zones,
    moments,
    st.sampled_from(["*/10 * * * *", "0 * * * *", "5 4 * * 1-5", "0 0 1 * *", "0 9 L * *"]),
)
def test_times_follow_each_other_and_do_not_depend_on_where_one_begins(
    zone: str, begin: float, expression: str
) -> None:
    one = recurrence("cron", expression, zone)
    found = list(islice(one.times_after(begin), 30))
    assert all(earlier < later for earlier, later in zip([begin, *found], found, strict=False))
    assert [one.next_after(at) for at in found[:-1]] == found[1:]
    assert one.next_after(found[0] - 1) == found[0]


@given(zones, moments, st.integers(0, 6 * 1440))
def test_a_local_date_and_time_is_that_time_or_the_next_that_exists(
    zone: str, begin: float, minutes: int
) -> None:
    local = datetime.fromtimestamp(begin, UTC).replace(tzinfo=None, second=0)
    local += timedelta(minutes=minutes)
    at = recurrence("once", local.isoformat(), zone).next_after(0.0)
    assert at is not None
    shown = datetime.fromtimestamp(at, ZoneInfo(zone)).replace(tzinfo=None)
    assert shown == local or timedelta(0) < shown - local <= timedelta(days=1)
    assert recurrence("once", local.isoformat(), zone).next_after(at) is None


@given(zones, moments, st.sampled_from(["09:00-18:00", "22:00-06:00", "00:00-00:01"]))
def test_it_is_never_due_outside_of_its_active_hours(zone: str, begin: float, hours: str) -> None:
    one = recurrence("every", "7m", zone, since=begin, active_hours=hours)
    for at in islice(one.times_after(begin), 50):
        shown = datetime.fromtimestamp(at, ZoneInfo(zone)).strftime("%H:%M")
        first, _, last = hours.partition("-")
        assert first <= shown < last if first < last else shown >= first or shown < last


def test_it_ends() -> None:
    one = recurrence("every", "1h", "UTC", end_at=2 * 3600.0)
    assert list(one.times_after(0.0)) == [3600.0, 7200.0]
    assert one.count_between(0.0, 1e9) == 2
    with pytest.raises(InvalidTimes, match="day-of-month"):
        recurrence("cron", "0 0 30 2 *", "UTC").check()


@pytest.mark.parametrize(
    ("kind", "expression", "more", "words"),
    [
        ("cron", "0 9 * *", {}, "five fields"),
        ("cron", "0 9 * * * *", {}, "five fields"),
        ("cron", "61 9 * * *", {}, "Bad minute"),
        ("every", "soon", {}, "a number and a unit"),
        ("every", "59s", {}, "at least 60 seconds"),
        ("once", "tomorrow", {}, "ISO 8601"),
        ("once", "2026-12-24T18:00", {"active_hours": "09:00-18:00"}, "no active hours"),
        ("every", "1h", {"active_hours": "9-18"}, "two times of day"),
        ("every", "1h", {"active_hours": "09:00-09:00"}, "different end"),
        ("every", "1h", {"timezone": "Mars/Phobos"}, "no time zone"),
        ("every", "1h", {"timezone": "../etc/passwd"}, "no time zone"),
        ("once", "0001-01-01T00:00", {}, "1970 to 9998"),
        ("once", "0001-01-01T00:00", {"timezone": "Asia/Tokyo"}, "1970 to 9998"),
        ("once", "1969-12-31T23:59", {}, "1970 to 9998"),
        ("once", "9999-01-01T00:00", {}, "1970 to 9998"),
        ("once", "9999-12-31T23:59:59-12:00", {}, "1970 to 9998"),
        ("once", "9999-12-31T23:59", {"timezone": "America/Los_Angeles"}, "1970 to 9998"),
        ("every", "1h", {"end_at": -1.0}, "1970 to 9998"),
        ("every", "1h", {"end_at": END}, "1970 to 9998"),
        ("cron", "0 9 * * *", {"end_at": 2 * END}, "1970 to 9998"),
    ],
)
def test_what_cannot_be_used_says_why(
    kind: ScheduleKind, expression: str, more: dict[str, object], words: str
) -> None:
    fields = {"timezone": "UTC", "since": 0.0, **more}
    with pytest.raises(InvalidTimes, match=words):
        Recurrence(kind=kind, expression=expression, **fields).check()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("kind", "expression", "more"),
    [
        ("once", "9998-12-31T12:00", {}),
        ("every", "999999w", {}),
        ("every", "999999w", {"active_hours": "09:00-18:00"}),
        ("every", "1d", {}),
        ("every", "1d", {"active_hours": "09:00-18:00"}),
        ("cron", "0 9 * * *", {}),
        ("cron", "*/10 * * * *", {}),
        ("cron", "0 0 29 2 *", {}),
        ("cron", "*/10 0 29 2 *", {}),
        ("cron", "59 23 31 12 *", {}),
        ("cron", "0 0 29 2 *", {"active_hours": "00:00-01:00"}),
    ],
)
@pytest.mark.parametrize("zone", ["UTC", "Pacific/Apia", "America/Los_Angeles"])
def test_after_the_year_9998_it_never_comes_again(
    kind: ScheduleKind, expression: str, more: dict[str, object], zone: str
) -> None:
    one = recurrence(kind, expression, zone, **more)
    one.check()
    for before in (2e9, END - 86_400, END - 1):
        at = one.next_after(before)
        assert at is None or before < at < END
    assert one.next_after(END - 1) is None
    assert one.next_after(END) is None
    assert one.next_after(10 * END) is None
    assert one.count_between(END - 3 * 86_400, 10 * END) < 500


def test_short_names_of_cron_expressions() -> None:
    assert recurrence("cron", "@daily", "UTC").next_after(1.0) == 86_400.0
    with pytest.raises(InvalidTimes):
        find_zone("\0")
