"""Two `parley serve` processes on one PostgreSQL database share the work. The work of one fails over to the other."""

import signal
from functools import partial
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.eventually import eventually
from tests.fakes.model import FakeModelServer, ModelReply, ToolCall
from tests.fakes.postgres_proxy import PostgresProxy
from tests.journeys.nodes import answers_go_on, slow_model, two_nodes, write_all
from tests.journeys.service import Service, with_model
from tests.people.platforms import PlatformServers

LOST_DATABASE = 75


async def logged(service: Service, line: str) -> None:
    """Wait until a service has logged something."""
    await eventually(service.log.read_text, lambda text: line in text)


def owners(url: str) -> set[int]:
    """Return the nodes that have chats."""
    with psycopg.connect(url) as connection:
        rows = connection.execute("SELECT DISTINCT node FROM chat_owner").fetchall()
        return {row[0] for row in rows}


def running_node(url: str) -> str:
    """Return the name of the node that executes a run; "" if none does."""
    with psycopg.connect(url) as connection:
        rows = connection.execute(
            "SELECT name FROM node JOIN run ON run.node = node.number WHERE run.status = 'running'"
        ).fetchall()
        return str(rows[0][0]) if rows else ""


async def test_two_nodes_share_the_chats(tmp_path: Path, database: dict[str, Any]) -> None:
    async with PlatformServers() as platforms, FakeModelServer() as model:
        config = {**with_model(model.base_url), **database, "channels": platforms.channels}
        async with two_nodes(tmp_path, config) as nodes:
            asked: list[str] = []
            # The second one gets its share once it listens and the chats are idle.
            while len(owners(database["database"]["url"])) < len(nodes):
                asked.append(f"You said: hi {len(asked)}")
                for user in platforms.users:
                    await user.send(asked[-1].removeprefix("You said: "))
                for user in platforms.users:
                    await user.expect_messages(*asked)
                    assert user.misplaced_messages() == []
            for node in nodes:
                assert await node.stop() == 0
        assert platforms.violations == []


@pytest.mark.parametrize("killed", [0, 1])
async def test_a_node_answers_what_a_killed_one_left(
    tmp_path: Path, database: dict[str, Any], killed: int
) -> None:
    async with PlatformServers() as platforms, slow_model() as model:
        config = {**with_model(model.base_url), **database, "channels": platforms.channels}
        async with two_nodes(tmp_path, config) as nodes:
            await write_all(platforms, model)
            await nodes[killed].kill()
            await answers_go_on(platforms)
            assert await nodes[1 - killed].stop() == 0
        assert platforms.violations == []


async def test_a_frozen_node_is_replaced_and_says_nothing_more(
    tmp_path: Path, database: dict[str, Any]
) -> None:
    async with PlatformServers() as platforms, slow_model() as model:
        config = {**with_model(model.base_url), **database, "channels": platforms.channels}
        async with two_nodes(tmp_path, config) as (first, second):
            await write_all(platforms, model)
            await eventually(lambda: platforms.telegram.is_waited_for)
            first.send(signal.SIGSTOP)
            await logged(second, "is gone; its work fails over to other nodes")
            await answers_go_on(platforms)
            # The frozen node's poll ended with 409. The response waits for the node to wake up.
            assert platforms.telegram.conflicts == 1
            for user in platforms.users:
                await user.send(f"awake, {user.name}?")
            first.send(signal.SIGCONT)
            assert await first.ended() == LOST_DATABASE
            assert "The work of this node failed over to other nodes" in first.log.read_text()
            for user in platforms.users:
                names = (f"hi from {user.name}", f"again from {user.name}", f"awake, {user.name}?")
                await user.expect_messages(*(f"You said: {text}" for text in names))
                assert user.misplaced_messages() == []
            assert await second.stop() == 0


async def test_a_node_cut_off_from_the_database_is_replaced_and_says_nothing_more(
    tmp_path: Path, database: dict[str, Any]
) -> None:
    async with PlatformServers() as platforms, slow_model() as model:
        config = {**with_model(model.base_url), **database, "channels": platforms.channels}
        with PostgresProxy(database["database"]["url"]) as proxy:
            cut_off = {**config, "database": {"url": proxy.url}}
            async with two_nodes(tmp_path, cut_off, config) as (first, second):
                await write_all(platforms, model)
                proxy.hold()
                await logged(second, "is gone; its work fails over to other nodes")
                await answers_go_on(platforms)
                proxy.release()
                assert await first.ended() == LOST_DATABASE
                for user in platforms.users:
                    assert user.misplaced_messages() == []


async def test_a_node_hands_its_turns_over_when_it_is_stopped(
    tmp_path: Path, database: dict[str, Any]
) -> None:
    async with PlatformServers() as platforms, slow_model() as model:
        config = {**with_model(model.base_url), **database, "channels": platforms.channels}
        async with two_nodes(tmp_path, config) as (first, second):
            await write_all(platforms, model)
            assert await first.stop() == 0
            await answers_go_on(platforms)
            assert await second.stop() == 0
        assert platforms.violations == []


async def test_a_turn_goes_on_at_its_next_step_when_its_node_is_stopped(
    tmp_path: Path, database: dict[str, Any]
) -> None:
    async with PlatformServers() as platforms, FakeModelServer() as model:
        channels = {**platforms.channels, "drain_s": 60}
        config = {**with_model(model.base_url), **database, "channels": channels}
        looking = ToolCall("ls", {"path": "/mnt/user-data/workspace"})
        model.reply(
            ModelReply(calls=(looking,), first_token_delay_s=2.0),
            ModelReply(text="Nothing there"),
        )
        [user, *_] = platforms.users
        async with two_nodes(tmp_path, config) as nodes:
            await user.send("look around")
            await model.until(lambda m: len(m.requests) == 1)
            name = await eventually(partial(running_node, database["database"]["url"]))
            at_work, other = sorted(nodes, key=lambda node: not name.endswith(str(node.port)))
            assert await at_work.stop() == 0
            await user.expect_messages("Nothing there")
            # No step was repeated.
            assert len(model.requests) == 2
            assert await other.stop() == 0
        assert platforms.violations == []
