"""Schedules of chats: each due time runs once or is reported as missed, with the owner's rights at that time."""

import itertools
import operator
from collections import Counter
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import anyio
import pytest
from typing_extensions import override

from bus.buttons import parse_token
from bus.config import ChannelPolicy, SessionConfig
from bus.messages import decode_inbound
from bus.recurrence import InvalidTimes
from bus.schedules.schedules import ScheduleChange, ScheduleRequest
from store.errors import RowConflict, RowNotFound
from store.schedules import MissedPolicy, Occurrence, OverlapPolicy, Schedule, ScheduleStore
from tests.bus.harness import OPEN, STEER, BusHarness, inbound_message, running_bus
from tests.bus.test_button_presses import press
from tests.eventually import eventually
from tests.fakes.clock import OffsetClock
from tests.fakes.langgraph import Script
from tests.fakes.platform import ButtonPlatform

HOUR = 3600.0
BROKEN = Script(words=(), error={"error": "InternalServerError", "message": "no"})


def moment(harness: BusHarness, in_s: float) -> str:
    """Return a time from now as ISO 8601."""
    return datetime.fromtimestamp(harness.clock() + in_s, UTC).isoformat()


async def plan(
    harness: BusHarness,
    expression: str = "1h",
    *,
    prompt: str = "the news",
    missed: MissedPolicy = "once",
    overlap: OverlapPolicy = "queue",
    **asked: object,
) -> Schedule:
    """Set up a schedule with a message from the user `u`."""
    request = ScheduleRequest(
        prompt=prompt,
        kind="every" if expression.endswith(("h", "m")) else "once",
        expression=expression,
        timezone="UTC",
        missed=missed,
        overlap=overlap,
    )
    return await harness.bus.schedules.create(inbound_message("please", "x", **asked), request)


async def occurrences(harness: BusHarness, schedule: Schedule) -> list[Occurrence]:
    """Return the outcomes of a schedule's due times, the latest first."""
    await harness.bus.scheduler.settle(schedule.id)
    return await ScheduleStore(harness.database).list_occurrences(schedule.id, limit=100)


async def outcomes(harness: BusHarness, schedule: Schedule) -> list[str]:
    return [one.outcome for one in await occurrences(harness, schedule)]


async def expect_outcomes(harness: BusHarness, schedule: Schedule, *wanted: str) -> None:
    await eventually(lambda: outcomes(harness, schedule), lambda found: found == [*wanted])


async def test_a_reminder_comes_once(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        reminder = await plan(harness, moment(harness, HOUR), prompt="call Bob")
        harness.clock.ahead += HOUR - 30
        assert harness.server.runs == []
        harness.clock.ahead += 31
        await harness.expect_replies("Hello you")
        assert harness.prompts() == ["call Bob"]
        await expect_outcomes(harness, reminder, "answered")
        harness.clock.ahead += 10 * HOUR
        found = await ScheduleStore(harness.database).find(reminder.id)
        assert found is not None
        assert (found.next_at, found.paused_because) == (None, "ended")
        assert await harness.bus.schedules.list_chat(found.key or inbound_message("", "").key) == []


async def test_a_period_comes_again_and_again(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        hourly = await plan(harness)
        for count in (1, 2, 3):
            harness.clock.ahead += HOUR
            await harness.wait_for_runs(count)
            await expect_outcomes(harness, hourly, *["answered"] * count)
        due = [one.due_at for one in await occurrences(harness, hourly)]
        assert [later - earlier for later, earlier in itertools.pairwise(due)] == [HOUR] * 2


@pytest.mark.parametrize("missed", ["once", "skip"])
async def test_times_that_were_missed_come_as_one_or_are_told(
    tmp_path: Path, missed: MissedPolicy
) -> None:
    async with running_bus(tmp_path) as harness:
        hourly = await plan(harness, missed=missed)
        harness.clock.ahead += 4.5 * HOUR
        await expect_outcomes(harness, hourly, "answered" if missed == "once" else "missed")
        [one] = await occurrences(harness, hourly)
        assert one.missed == 3
        if missed == "once":
            [prompt] = harness.prompts()
            assert prompt.startswith("the news\n\n[This was due at 1970-01-1")
            assert "missed since: 3" in prompt
        else:
            assert harness.server.runs == []
            await harness.send("/schedule")
            await eventually(lambda: len(harness.platform.texts) == 1)
            assert "missed, because the service was down" in harness.platform.texts[0]


async def test_a_kill_between_the_two_steps_doubles_nothing(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        hourly = await plan(harness, missed="skip")
        event = f"schedule:{hourly.id}:{hourly.next_at:.3f}"
        await harness.send("the news", event=event, origin=f"schedule:{hourly.id}", message_id="")
        await harness.expect_replies("Hello you")
        harness.clock.ahead += 1.5 * HOUR
        await expect_outcomes(harness, hourly, "answered")
        await harness.expect_replies("Hello you")


async def test_a_clock_that_is_set_back_fires_nothing_twice(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        hourly = await plan(harness)
        harness.clock.ahead += HOUR
        await expect_outcomes(harness, hourly, "answered")
        harness.clock.ahead -= 0.5 * HOUR
        store = ScheduleStore(harness.database)

        async def next_time() -> float | None:
            found = await store.find(hourly.id)
            return found.next_at if found else None

        await eventually(next_time, lambda at: at == hourly.next_at)
        harness.clock.ahead += 0.5 * HOUR
        await eventually(next_time, lambda at: at == (hourly.next_at or 0) + HOUR)
        harness.clock.ahead += HOUR
        await expect_outcomes(harness, hourly, "answered", "answered")
        await harness.expect_replies("Hello you", "Hello you")


async def test_after_a_jump_far_ahead_and_back_it_goes_on(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        hourly = await plan(harness)
        harness.clock.ahead += 1000 * HOUR
        await expect_outcomes(harness, hourly, "answered")
        harness.clock.ahead -= 1000 * HOUR
        store = ScheduleStore(harness.database)

        async def is_near() -> bool:
            found = await store.find(hourly.id)
            return found is not None and (found.next_at or 0) <= harness.clock() + HOUR

        await eventually(is_near)
        harness.clock.ahead += 2 * HOUR
        await expect_outcomes(harness, hourly, "answered", "answered")


async def test_the_agent_may_have_nothing_to_say(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        harness.server.scripts.append(Script(words=("NO_REPLY",)))
        hourly = await plan(harness)
        harness.clock.ahead += HOUR
        await expect_outcomes(harness, hourly, "silent")
        assert harness.platform.texts == []


@pytest.mark.parametrize("overlap", ["queue", "skip", "replace"])
async def test_a_time_that_comes_while_the_previous_one_runs(
    tmp_path: Path, overlap: OverlapPolicy
) -> None:
    async with running_bus(tmp_path) as harness:
        gate = harness.hold_next_run("first")
        hourly = await plan(harness, overlap=overlap)
        harness.clock.ahead += HOUR
        await harness.wait_for_runs(1)
        harness.clock.ahead += HOUR
        if overlap == "skip":
            await expect_outcomes(harness, hourly, "skipped", "queued")
        elif overlap == "queue":
            await expect_outcomes(harness, hourly, "queued", "queued")
        else:
            await harness.wait_for_runs(2)
            await eventually(lambda: "Hello you" in harness.platform.texts)
        gate.set()
        wanted = {"skip": ("skipped", "answered"), "replace": ("answered", "silent")}
        await expect_outcomes(harness, hourly, *wanted.get(overlap, ("answered", "answered")))
        assert ("first" in harness.platform.texts) == (overlap != "replace")


@pytest.mark.parametrize(
    "policy", [STEER, OPEN.model_copy(update={"session": SessionConfig(busy="interrupt")})]
)
async def test_it_waits_for_the_answer_to_a_person(tmp_path: Path, policy: ChannelPolicy) -> None:
    async with running_bus(tmp_path, policy=policy) as harness:
        harness.server.accepts_injection = True
        hourly = await plan(harness)
        gate = harness.hold_next_run("mine")
        await harness.send("hello")
        await harness.wait_for_runs(1)
        harness.clock.ahead += HOUR
        await expect_outcomes(harness, hourly, "queued")
        gate.set()
        await harness.expect_replies("mine", "Hello you")
        assert harness.server.runs[0].injected == []


async def test_an_owner_without_rights_is_told_once(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        hourly = await plan(harness)
    closed = ChannelPolicy(
        dm_policy="allowlist", allowed_users=["someone"], admin_users=["someone"]
    )
    async with running_bus(tmp_path, policy=closed) as harness:
        harness.clock.ahead += HOUR
        await expect_outcomes(harness, hourly, "failed")
        await eventually(lambda: len(harness.platform.texts) == 1)
        assert "no longer allowed to use me" in harness.platform.texts[0]
        assert harness.server.runs == []
        harness.clock.ahead += 5 * HOUR
        await harness.send("/schedule", user="someone")
        await eventually(lambda: len(harness.platform.texts) == 2)
        assert (
            "paused: u left this chat or is no longer allowed to use me"
            in harness.platform.texts[1]
        )
        await harness.send("/why", user="someone")
        await eventually(lambda: len(harness.platform.texts) == 3)
        assert f"`schedule:{hourly.id}` of `u`: `not_allowed`" in harness.platform.texts[2]


async def test_an_owner_without_rights_is_told_of_a_time_that_was_the_only_one(
    tmp_path: Path,
) -> None:
    async with running_bus(tmp_path) as harness:
        once = await plan(harness, moment(harness, 60.0))
    closed = ChannelPolicy(dm_policy="allowlist", allowed_users=["someone"])
    async with running_bus(tmp_path, policy=closed) as harness:
        harness.clock.ahead += 60.0
        await expect_outcomes(harness, once, "failed")
        await eventually(lambda: len(harness.platform.texts) == 1)
        assert "no longer allowed to use me" in harness.platform.texts[0]
        found = await harness.bus.schedules.find(once.id)
        assert (found.is_enabled, found.paused_because, found.next_at) == (False, "owner", None)


async def test_five_failures_in_a_row_pause_it_with_one_notice(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        hourly = await plan(harness)
        harness.server.scripts += [BROKEN] * 4 + [Script(words=("fine",))] + [BROKEN] * 6
        for count in range(1, 11):
            harness.clock.ahead += HOUR
            await harness.wait_for_runs(count)
            wanted = ["failed"] * 4 + ["answered"] + ["failed"] * 5
            await expect_outcomes(harness, hourly, *wanted[:count][::-1])
        await eventually(lambda: "failed 5 times in a row" in harness.platform.texts[-1])
        harness.clock.ahead += 5 * HOUR
        found = await harness.bus.schedules.find(hourly.id)
        assert (found.is_enabled, found.paused_because) == (False, "failures")
        again = await harness.bus.schedules.resume(hourly.id)
        assert (again.is_enabled, again.failures) == (True, 0)
        assert len([text for text in harness.platform.texts if "in a row" in text]) == 1


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_runs_at_the_same_time_with_one_key_are_one(
    tmp_path: Path, request: pytest.FixtureRequest, engine: str
) -> None:
    shared = request.getfixturevalue("store") if engine == "postgres" else None
    async with running_bus(tmp_path, store=shared) as harness:
        hourly = await plan(harness)
        found: list[Occurrence] = []

        async def run() -> None:
            found.append(await harness.bus.scheduler.run_now(hourly, "api:k"))

        async with anyio.create_task_group() as tasks:
            for _ in range(8):
                tasks.start_soon(run)
        assert len({(one.inbox_id, one.due_at, one.created_at) for one in found}) == 1
        assert found[0].created_at == found[0].due_at
        await harness.expect_replies("Hello you")
        await expect_outcomes(harness, hourly, "answered")


async def test_the_list_and_its_buttons(tmp_path: Path) -> None:
    platform = ButtonPlatform("fake")
    policy = OPEN.model_copy(update={"admin_users": ["boss"]})
    async with running_bus(tmp_path, platform=platform, policy=policy) as harness:
        await harness.send("/schedule")
        await eventually(lambda: "has no schedules" in "".join(platform.texts))
        hourly = await plan(harness, prompt="the news\nplease")
        await harness.send("/schedule")
        await eventually(lambda: "1. **the news please** · every 1h · next" in platform.texts[-1])
        pressed = await press(harness, "Pause 1")
        assert pressed.text == "Paused: the news please"
        await eventually(lambda: "· paused" in platform.texts[-1])
        harness.clock.ahead += HOUR
        assert (await press(harness, "Resume 1", event_id="p2")).text.startswith(
            "Resumed: the news"
        )
        # If the platform resends the press, the schedule still starts once.
        for _ in range(2):
            pressed = await press(harness, "Run 1 now", event_id="p3")
            assert pressed.text == "Started: the news please"
        await eventually(lambda: platform.texts[-1] == "Hello you")
        await expect_outcomes(harness, hourly, "answered")
        tokens = [parse_token(button.token) for button in platform.shown[-2].buttons]
        assert len(tokens) == 3
        stranger = await press(harness, "Delete 1", nth=-2, user="v", event_id="p4")
        assert stranger.text == "Only the person who asked can do that." or stranger.urgent
        assert (await press(harness, "Delete 1", nth=-2, user="boss", event_id="p5")).text
        await eventually(lambda: "has no schedules" in platform.texts[-2])
        with pytest.raises(RowNotFound):
            await harness.bus.schedules.find(hourly.id)


async def test_the_command_changes_schedules_too(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:

        async def answer(text: str, **changes: object) -> str:
            count = len(harness.platform.texts)
            await harness.send(text, **changes)
            await eventually(lambda: len(harness.platform.texts) > count)
            return harness.platform.texts[count]

        await plan(harness, prompt="one")
        await plan(harness, moment(harness, HOUR), prompt="two")
        assert "**two**\nonce · next" in await answer("/schedule 2")
        assert "> two" in harness.platform.texts[-1]
        assert (
            await answer("/schedule 3") == "There is no schedule 3. Send /schedule to see the list."
        )
        assert await answer("/schedule pause 1") == "Paused: one"
        assert "Only u, who set it up" in await answer("/schedule delete 1", user="v")
        assert await answer("/schedule delete 1") == "Deleted: one"
        assert await answer("/schedule run") == "Started: two"
        await eventually(lambda: harness.platform.texts[-1] == "Hello you")


async def test_a_change_of_its_times_counts_from_now(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        hourly = await plan(harness)
        changed = await harness.bus.schedules.change(
            hourly.id, ScheduleChange(expression="2h", prompt="the weather", name="w")
        )
        assert changed.next_at == pytest.approx(harness.clock() + 2 * HOUR, abs=5)
        assert (changed.name, decode_inbound(changed.body).text) == ("w", "the weather")
        with pytest.raises(InvalidTimes):
            await harness.bus.schedules.change(hourly.id, ScheduleChange(expression="soon"))
        with pytest.raises(InvalidTimes, match="future"):
            await plan(harness, moment(harness, -1))


async def test_a_chat_has_a_limited_number(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bus.schedules.schedules.MAX_PER_CHAT", 2)
    async with running_bus(tmp_path) as harness:
        for _ in range(2):
            await plan(harness)
        with pytest.raises(RowConflict):
            await plan(harness)
        await plan(harness, chat="another")


class _SteppedClock(OffsetClock):
    """A clock that moves only when a test moves it."""

    @override
    def __call__(self) -> float:
        return 1_000_000.0 + self.ahead


async def test_many_that_are_due_at_once_start_evenly_within_the_spread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, limit in {"BATCH": 2, "SPREAD_S": 4.0, "TICK_S": 0.01}.items():
        monkeypatch.setattr(f"bus.schedules.scheduler.{name}", limit)
    async with running_bus(tmp_path, clock=_SteppedClock()) as harness:
        planned = [await plan(harness, chat=f"c{number}") for number in range(24)]

        async def found() -> list[Occurrence]:
            each = [await occurrences(harness, schedule) for schedule in planned]
            return list(itertools.chain.from_iterable(each))

        async def count() -> int:
            return len(await found())

        harness.clock.ahead += HOUR
        for second in range(4):
            await eventually(count, partial(operator.eq, 6 * (second + 1)))
            await harness.bus.scheduler.wake()  # Every change of a schedule does this.
            await anyio.wait_all_tasks_blocked()
            harness.clock.ahead += 1.0
        await harness.wait_for_runs(len(planned))
        await harness.wait_until_finished()
        seen = await found()
        assert {one.schedule_id for one in seen} == {one.id for one in planned}
        assert Counter(one.created_at - one.due_at for one in seen) == dict.fromkeys(range(4), 6)
        assert len(harness.server.runs) == len(planned) == len(seen)


async def test_its_text_is_no_command(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        await plan(harness, prompt="/new")
        harness.clock.ahead += HOUR
        await harness.expect_replies("Hello you")
        assert harness.prompts() == ["/new"]
