"""The people who write to the bot, as the administrator sees them."""

from pathlib import Path

from bus.messages import Sender
from tests.bus.harness import BusHarness, running_bus
from tests.eventually import eventually


async def seen(harness: BusHarness) -> list[tuple[str, str, int]]:
    found = await harness.bus.people.search("", channel="", limit=9, offset=0)
    return sorted((one.user_id, one.name, one.messages) for one in found)


async def test_each_person_is_counted_once_with_the_newest_name(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        await harness.send("hi", user="ann")
        await harness.send("hello", user="bob", chat="d")
        later = Sender(user_id="ann", name="Ann Lee")
        await harness.send("/status", sender=later, chat="room", is_private=False)
        await harness.send("by itself", user="ann", origin="schedule:1")
        await harness.wait_until_finished()
        await eventually(
            lambda: seen(harness), lambda found: found == [("ann", "Ann Lee", 2), ("bob", "bob", 1)]
        )


async def test_a_damaged_row_does_not_hide_other_people(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        await harness.database.execute(
            "CREATE TRIGGER damage AFTER INSERT ON inbox WHEN new.id = 1 BEGIN"
            " UPDATE inbox SET body = '{}' WHERE id = 1; END",
            {},
        )
        await harness.send("hi", user="ann")
        await harness.send("hello", user="bob", chat="d")
        await eventually(lambda: seen(harness), lambda found: found == [("bob", "bob", 1)])
