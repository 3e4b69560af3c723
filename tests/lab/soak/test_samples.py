"""Soak tests find growth of memory, and counts that do not decrease, in their samples."""

import math
from dataclasses import replace
from pathlib import Path

from tests.lab.soak.report import markdown_table, write_page
from tests.lab.soak.samples import (
    MAX_MORE,
    Growth,
    Sample,
    growth_of,
    per_thousand_turns,
    problems,
)

FLAT = dict.fromkeys(("RSS, MB", *MAX_MORE), 10.0)


def samples_with(**grows: float) -> list[Sample]:
    """Return two hours of samples, one a minute, in which values grow by the given amounts a minute."""
    names = {"rss": "RSS, MB", "descriptors": "descriptors"}
    return [
        Sample(
            at_s=60.0 * minute,
            turns=100 * minute,
            values=FLAT | {names[name]: 10.0 + much * minute for name, much in grows.items()},
        )
        for minute in range(120)
    ]


def test_constant_memory_is_no_problem() -> None:
    assert problems(samples_with()) == []
    assert problems(samples_with(rss=0.9 / 60)) == []


def test_memory_growth_above_a_megabyte_an_hour_is_a_problem() -> None:
    samples = samples_with(rss=2 / 60)
    # 6,000 turns an hour.
    assert problems(samples) == [
        "RSS grows by 2.00 ± 0.00 MB an hour (0.333 ± 0.000 MB per 1,000 turns)"
    ]


def test_a_growths_error_is_also_given_per_turns() -> None:
    growth = per_thousand_turns(samples_with(), Growth(slope=3.0, error=1.5))
    assert (round(growth.slope, 3), round(growth.error, 3)) == (0.5, 0.25)


def test_growth_within_the_error_is_no_problem() -> None:
    noisy = [
        Sample(
            at_s=60.0 * minute, turns=minute, values=FLAT | {"RSS, MB": 10.0 + 20 * (minute % 2)}
        )
        for minute in range(10)
    ]
    assert problems(noisy) == []
    assert growth_of(noisy, "RSS, MB").error > 20


def test_a_growth_during_the_warm_up_does_not_count() -> None:
    samples = [
        Sample(
            at_s=60.0 * minute,
            turns=minute,
            values=FLAT | {"RSS, MB": min(10.0 + 5 * minute, 100.0)},
        )
        for minute in range(100)
    ]
    assert problems(samples) == []


def test_descriptors_that_are_not_closed_are_a_problem() -> None:
    assert problems(samples_with(descriptors=1.0)) == ["descriptors: 99.5, then 119.5"]


def test_descriptors_and_tasks_of_a_finished_burst_are_no_problem() -> None:
    samples = samples_with()
    busy = samples[-3]
    samples[-3] = replace(busy, values={**busy.values, "descriptors": 200.0, "tasks": 500.0})
    assert problems(samples) == []


def test_too_few_samples_have_no_verdict_but_can_be_shown(tmp_path: Path) -> None:
    samples = samples_with()[:1]
    assert problems(samples) == []
    assert math.isinf(growth_of(samples, "RSS, MB").error)
    page = tmp_path / "soak.html"
    write_page(samples, problems(samples), page)
    assert "No value grows that must not." in page.read_text("utf-8")
    assert markdown_table(samples).count("\n| ") == len(FLAT)
