"""A backup of the running service is restored on an empty machine, with all messages accepted before it."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import anyio

from tests.eventually import eventually
from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest
from tests.journeys.service import Service, serving, with_model
from tests.people.chat_user import ChatUser
from tests.people.platforms import PlatformServers

PLATFORMS = ("slack", "telegram", "feishu")
WAITING = "wait"


def echo(request: ModelRequest) -> ModelReply:
    return ModelReply(text=f"You said: {request.last_user_text}")


def echo_but_wait(request: ModelRequest) -> ModelReply:
    """Never finish the answer to a message with `WAITING`, so that it is unanswered at the time of the backup."""
    reply = echo(request)
    return replace(reply, hang_after=1) if WAITING in request.last_user_text else reply


class InboxRow(NamedTuple):
    """An accepted message."""

    event_id: str
    state: str
    body: str


def inbox(service: Service) -> list[InboxRow]:
    """Return all accepted messages of a service, running or not."""
    with closing(sqlite3.connect(service.home / "parley.db")) as journal:
        rows = journal.execute("SELECT event_id, state, body FROM inbox").fetchall()
        return [InboxRow(*row) for row in rows]


async def talk(platforms: PlatformServers) -> None:
    """Let new people write, as fast as the platforms deliver messages, until canceled."""
    for number in count(500):
        for user in platforms.private_users(number):
            await user.send(f"load {number}")
        await anyio.sleep(0.05)


async def back_up_under_load(
    service: Service, platforms: PlatformServers, file: Path
) -> list[InboxRow]:
    """Back up while people write. Return the messages that were accepted before the backup began."""
    async with anyio.create_task_group() as load:
        load.start_soon(talk, platforms)
        before = await eventually(
            lambda: inbox(service),
            lambda rows: len(rows) > 30 and sum(WAITING in row.body for row in rows) == 3,
        )
        code, _, errors = await service.command("backup", str(file))
        assert (code, errors) == (0, "")
        during = inbox(service)
        load.cancel_scope.cancel()
    assert len(during) > len(before), "nothing happened during the backup"
    return before


async def restored(folder: Path, config: dict[str, Any], file: Path) -> Service:
    """Return a service on an empty machine, with its data from a backup."""
    service = Service(folder, config)
    code, out, errors = await service.command("restore", str(file))
    assert (code, errors) == (0, "")
    assert "restored" in out
    return service


async def test_a_backup_under_load_has_all_that_was_accepted_before_it(tmp_path: Path) -> None:
    file = tmp_path / "backup.tar.gz"
    async with PlatformServers() as platforms, FakeModelServer(answer=echo_but_wait) as model:
        config = {**with_model(model.base_url), "channels": platforms.channels}
        first, second = platforms.private_users(1), platforms.private_users(2)
        async with serving(tmp_path, config, *PLATFORMS) as service:
            for user in first:
                await user.send("answered before")
                await user.expect_messages("You said: answered before")
            for user in second:
                await user.send(f"please {WAITING}")
            before = await back_up_under_load(service, platforms, file)
        model.answer = echo
        (tmp_path / "new").mkdir()
        fresh = await restored(tmp_path / "new", config, file)
        assert {row.event_id for row in before} <= {row.event_id for row in inbox(fresh)}
        await fresh.start()
        try:
            await _answers_what_waited_and_remembers(fresh, first, second, model)
        finally:
            await fresh.kill()
        assert platforms.violations == []


async def _answers_what_waited_and_remembers(
    service: Service, first: list[ChatUser], second: list[ChatUser], model: FakeModelServer
) -> None:
    await service.until_connected(*PLATFORMS)
    for user in second:
        await user.wait_for_message(f"You said: please {WAITING}")
    await eventually(lambda: inbox(service), lambda rows: all(row.state == "done" for row in rows))
    for user in first:
        await user.send("and after")
        await user.wait_for_message("You said: and after")
    asked = [request for request in model.requests if request.last_user_text == "and after"]
    assert len(asked) == len(first)
    assert all("answered before" in str(request.messages) for request in asked)
