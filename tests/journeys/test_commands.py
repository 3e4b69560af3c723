"""The commands, in every place, while a run hangs."""

from pathlib import Path

import anyio
import httpx

from tests.fakes.model import FakeModelServer, ModelRequest, Reply
from tests.journeys.people import Person, Town
from tests.journeys.service import serving, with_model


def answer(request: ModelRequest) -> Reply:
    if "hang" in request.last_user_text:
        return Reply(text="one two three", hang_after=1)
    return Reply(text=f"You said: {request.last_user_text}")


async def ask(seat: Person, command: str, *wanted: str) -> str:
    """Send a command; return its one answer when it is there (a card may have to grow first)."""
    before = len(seat.heard())
    await seat.say(command)
    await seat_hears_one_more(seat, before)
    with anyio.move_on_after(5):
        while not all(text in seat.heard()[before] for text in wanted):  # noqa: ASYNC110
            await anyio.sleep(0.02)
    said = seat.heard()[before]
    assert all(text in said for text in wanted), (
        f"{seat.name}: {command} was answered with {said!r}"
    )
    return said


async def seat_hears_one_more(seat: Person, before: int) -> None:
    with anyio.fail_after(5):
        while len(seat.heard()) <= before:  # noqa: ASYNC110 - three platforms, three signals
            await anyio.sleep(0.02)


async def test_commands_answer_at_once_while_a_run_hangs(tmp_path: Path) -> None:
    async with Town() as town, FakeModelServer(answer=answer) as model:
        config = {**with_model(model.base_url), "channels": town.channels}
        config["channels"]["telegram"]["admin_users"] = [1001]
        async with serving(tmp_path, config, "slack", "telegram", "feishu") as service:
            for seat in town.seats:
                await seat.say("hang on")
            await model.until(lambda m: len(m.requests) == len(town.seats), within_s=15)
            async with service.client() as client, anyio.create_task_group() as people:
                for seat in town.seats:
                    people.start_soon(_use_all_commands, seat, client)
            await model.until(lambda m: all(r.closed_by_client for r in m.requests), within_s=5)
            async with anyio.create_task_group() as people:
                for seat in town.seats:
                    people.start_soon(_start_over, seat)
            assert await service.stop() == 0
        assert town.violations == []


async def _use_all_commands(seat: Person, client: httpx.AsyncClient) -> None:
    await ask(seat, "/help", "Available commands:", "/new — ", "/stop — ")
    status = await ask(seat, "/status", "Active thread: ")
    thread = status.removeprefix("Active thread: ").strip()
    assert (await client.get(f"/api/threads/{thread}")).status_code == 200
    await ask(seat, "/models", "Available models:", "fake")
    await ask(seat, "/memory", "Memory contains 0 fact(s).")
    is_admin = seat.channel == "telegram"
    await ask(
        seat,
        "/why",
        "Not accepted on telegram" if is_admin else "Only admins can use this command.",
    )
    await ask(seat, "/undo", "Something is running: send ", "/stop first.")
    await ask(seat, "/stop", "Stopped")


async def _start_over(seat: Person) -> None:
    await ask(seat, "/new", "New conversation started.")
    await ask(seat, "/bootstrap", "You said: ")
    await ask(seat, "/usr/bin is a path", "You said: /usr/bin is a path")


async def test_bootstrap_and_new_do_not_wait_behind_a_hanging_run(tmp_path: Path) -> None:
    async with Town() as town, FakeModelServer(answer=answer) as model:
        config = {**with_model(model.base_url), "channels": town.channels}
        async with serving(tmp_path, config, "slack", "telegram", "feishu"):
            for seat in town.seats:
                await seat.say("hang on")
            await model.until(lambda m: len(m.requests) == len(town.seats), within_s=15)
            for seat in town.seats:
                before = len(seat.heard())
                await seat.say("/bootstrap set me up")
                await seat_hears_one_more(seat, before)
                await seat.say("/new")
                await seat.say("fresh start")
            for seat in town.seats:
                assert await _hears(seat, "fresh start"), f"{seat.name}: {seat.heard()}"


async def _hears(seat: Person, text: str) -> bool:
    with anyio.move_on_after(10):
        while not any(said.endswith(text) for said in seat.heard()):  # noqa: ASYNC110
            await anyio.sleep(0.02)
        return True
    return False


def recite(request: ModelRequest) -> Reply:
    """Say all that people said in this conversation, and the number of the request."""
    said = [str(m["content"]) for m in request.messages if m["role"] == "user"]
    return Reply(text=f"Heard {', '.join(said)}.")


async def test_what_was_said_is_taken_back_and_said_anew(tmp_path: Path) -> None:
    async with Town() as town, FakeModelServer(answer=recite) as model:
        config = {**with_model(model.base_url), "channels": town.channels}
        async with (
            serving(tmp_path, config, "slack", "telegram", "feishu"),
            anyio.create_task_group() as people,
        ):
            for seat in town.seats:
                people.start_soon(_take_back, seat)
        assert town.violations == []


async def _take_back(seat: Person) -> None:
    await ask(seat, "alpha", "Heard alpha.")
    await ask(seat, "beta", "Heard alpha, beta.")
    await _when_quiet(seat, "/retry", "Heard alpha, beta.")
    await _when_quiet(seat, "/undo", "Undone: “beta”.")
    await ask(seat, "/undo", "Undone: “alpha”.")
    await ask(seat, "/undo", "Nothing to undo.")
    await ask(seat, "delta", "Heard delta.")


async def _when_quiet(seat: Person, command: str, wanted: str) -> None:
    """Send a command until it is not told to wait: a card shows all words a moment before its turn is over."""
    with anyio.fail_after(10):
        while "Something is running" in (said := await ask(seat, command)):  # noqa: ASYNC110
            await anyio.sleep(0.1)
        while wanted not in said:
            said = seat.heard()[-1]
            await anyio.sleep(0.02)
