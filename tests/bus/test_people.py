"""The people who write to the bot, as the administrator sees them."""

from pathlib import Path

from bus.history.people import find_active_people
from bus.messages import Sender
from tests.bus.harness import BusHarness, running_bus


async def seen(harness: BusHarness) -> list[tuple[str, str, int]]:
    found = await find_active_people(harness.bus.inbox)
    return [(one.sender.user_id, one.sender.name, one.messages) for one in found.people]


async def test_each_person_is_counted_once_with_the_newest_name(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        assert (await find_active_people(harness.bus.inbox)).since is None
        await harness.send("hi", user="ann")
        await harness.send("hello", user="bob", chat="d")
        later = Sender(user_id="ann", name="Ann Lee")
        await harness.send("/status", sender=later, chat="room", is_private=False)
        await harness.wait_until_finished()
        assert await seen(harness) == [("ann", "Ann Lee", 2), ("bob", "bob", 1)]


async def test_a_damaged_row_does_not_hide_other_people(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        await harness.send("hi", user="ann")
        await harness.send("hello", user="bob", chat="d")
        await harness.wait_until_finished()
        await harness.database.execute("UPDATE inbox SET body = '{}' WHERE seq = 1 AND id = 1", {})
        assert await seen(harness) == [("bob", "bob", 1)]
