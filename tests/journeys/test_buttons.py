"""Buttons in every place: options, approvals over a kill, and trying again, through the real adapters."""

from pathlib import Path

import anyio

from bus.locales.en import ENGLISH
from tests.fakes.model import Call, FakeModelServer, ModelRequest, Reply
from tests.journeys.people import Person, Town
from tests.journeys.service import serving, with_model

PLATFORMS = ("slack", "telegram", "feishu")
FILE = "/mnt/user-data/workspace/notes.txt"


class Model:
    """Asks which colour, writes a file where told to, and breaks off once."""

    def __init__(self) -> None:
        self.written = 0
        self._broken: set[str] = set()

    def answer(self, request: ModelRequest) -> Reply:
        last = request.messages[-1]
        said = request.last_user_text
        if last["role"] == "tool":
            is_refused = "did not approve" in str(last["content"])
            self.written += not is_refused
            return Reply(text="It stays unwritten." if is_refused else "It is written.")
        if "paint" in said:
            asked = {"question": "Which colour?", "options": ["red", "green"]}
            return Reply(calls=(Call("ask_clarification", asked),))
        if "write" in said:
            return Reply(calls=(Call("write_file", {"path": FILE, "content": said}),))
        if "break" in said and said not in self._broken:
            self._broken.add(said)
            return Reply(text="one two three", drop_after=1)
        return Reply(text=f"You said: {said}")


async def test_what_people_press_in_every_place(tmp_path: Path) -> None:
    model = Model()
    async with Town() as town, FakeModelServer(answer=model.answer) as server:
        config = {
            **with_model(server.base_url),
            "channels": town.channels,
            "guardrails": {"enabled": True, "ask": ["write_file"]},
        }
        async with serving(tmp_path, config, *PLATFORMS) as service:
            async with anyio.create_task_group() as people:
                for seat in town.seats:
                    people.start_soon(_choose_and_ask_to_write, seat)
            await service.until_recorded()
            # Nothing was written while people think, also not by a restart.
            await service.kill()
            await service.start()
            await service.until_connected(*PLATFORMS)
            assert model.written == 0
            async with anyio.create_task_group() as people:
                for number, seat in enumerate(town.seats):
                    people.start_soon(_decide, seat, bool(number % 2))
            assert model.written == len(town.seats) // 2
            # One after the other: a model that fails again and again is left alone for a while.
            for number in (0, 2, 5):
                await _try_again(town.seats[number], number)
            assert await service.stop() == 0
        assert "Traceback" not in service.log.read_text()
        assert [seat.stray() for seat in town.seats] == [[]] * len(town.seats)
        assert town.violations == []


async def _choose_and_ask_to_write(seat: Person) -> None:
    await seat.say("please paint it")
    await seat.presses("green")
    await seat.sees("You said: green")
    await seat.sees("Which colour?", "✓ green")
    await until_no(seat, "red")
    await seat.say("please write it")
    await seat.sees("write_file", FILE)


async def _decide(seat: Person, approves: bool) -> None:
    await seat.presses(ENGLISH.button_approve if approves else ENGLISH.button_deny)
    await seat.sees("It is written." if approves else "It stays unwritten.")
    await seat.sees("write_file", ENGLISH.mark_approved if approves else ENGLISH.mark_denied)
    await until_no(seat, ENGLISH.button_approve)


async def _try_again(seat: Person, number: int) -> None:
    await seat.say(f"break {number}")
    await seat.presses(ENGLISH.button_retry)
    await seat.sees(f"You said: break {number}")
    await until_no(seat, ENGLISH.button_retry)


async def until_no(seat: Person, label: str) -> None:
    """Wait until no such button stands there any more."""
    with anyio.move_on_after(20):
        while label in seat.labels():  # noqa: ASYNC110 - three platforms, three signals
            await anyio.sleep(0.02)
    assert label not in seat.labels(), f"{seat.name}: {seat.heard()}"
