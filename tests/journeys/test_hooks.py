"""Other systems write to chats of three platforms: nothing is lost or doubled, with kill -9 and two nodes."""

import re
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
import yaml

from tests.eventually import eventually
from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest
from tests.fakes.model_switches import ModelSwitches
from tests.fakes.postgres import MISSING, postgres_server
from tests.hook_senders import SECRET, signed, signed_by_github
from tests.journeys.nodes import two_nodes
from tests.journeys.service import Service, serving, with_model
from tests.people.chat_user import ChatUser
from tests.people.platforms import PlatformServers
from tests.prove.databases import PostgresDatabase, ProvenDatabase, SqliteDatabase

PLATFORMS = ("slack", "telegram", "feishu")
BUILDS = range(1, 4)
"""The events of each hook."""

TOKENS = 20_000
"""The daily limit of each person."""


def hooks_for(people: Iterable[ChatUser]) -> dict[str, Any]:
    """Return a hook into the chat of each person."""
    return {
        user.channel: {
            "secret": SECRET,
            "channel": user.channel,
            "chat": user.chat,
            "prompt": "Build {build.number} failed: report it.",
        }
        for user in people
    }


def report(request: ModelRequest) -> ModelReply:
    """Answer an event with a report that names its build. Answer people as usual."""
    found = re.search(r"Build <hook_data>(\d+)</hook_data> failed", request.last_user_text)
    return ModelReply(text=f"Report {found[1]}" if found else "Hello")


def _never(_request: ModelRequest) -> ModelReply:
    return ModelReply(text="never to be finished", hang_after=0)


def reports(user: ChatUser) -> Counter[str]:
    return Counter(text for text in user.bot_messages() if text.startswith("Report"))


async def send(client: httpx.AsyncClient, hook: str, number: int) -> str:
    """Send an event until it is accepted. Return its outcome."""
    headers, body = signed({"build": {"number": number}}, f"{hook}-{number}")
    answer = await client.post(f"/hooks/{hook}", content=body, headers=headers)
    assert answer.is_success, answer.text
    return str(answer.json()["status"])


def stranger(service: Service) -> httpx.AsyncClient:
    """Return a client without a token."""
    return httpx.AsyncClient(base_url=service.url, timeout=20)


async def test_events_are_answered_once_though_the_service_is_killed(
    tmp_path: Path, with_database: dict[str, Any]
) -> None:
    async with PlatformServers() as platforms, FakeModelServer(answer=_never) as model:
        people = platforms.private_users(0)
        config = {
            **with_model(model.base_url),
            **with_database,
            "channels": platforms.channels,
            "hooks": hooks_for(people),
        }
        async with serving(tmp_path, config, *PLATFORMS) as service:
            for user in people:
                await user.send("/status")
            for user in people:
                assert await eventually(user.bot_messages)
            await service.until_recorded()
            async with stranger(service) as client:
                for user in people:
                    for number in BUILDS:
                        assert await send(client, user.channel, number) == "accepted"
            await eventually(lambda: len(model.requests) >= 1)
            await service.kill()
            assert not any(reports(user) for user in people)
            model.answer = report
            await service.start()
            await service.until_connected(*PLATFORMS)
            async with stranger(service) as client:
                for user in people:
                    for number in BUILDS:
                        assert await send(client, user.channel, number) == "duplicate"
            expected = Counter({f"Report {number}": 1 for number in BUILDS})
            for user in people:
                await eventually(partial(reports, user), lambda seen: seen == expected, within_s=90)
            await _usage_names_the_hooks(service)
        assert platforms.violations == []


async def _usage_names_the_hooks(service: Service) -> None:
    async with service.client() as client:

        async def people() -> set[str]:
            totals = (await client.get("/api/usage?by=person&by=kind")).json()["totals"]
            return {row["person"].rpartition(":")[2] for row in totals if row["kind"] == "hook"}

        wanted = {f"hook%3A{name}" for name in PLATFORMS}
        await eventually(people, lambda found: found == wanted)


async def test_two_nodes_accept_a_delivery_once_and_one_answers_for_the_other(
    tmp_path: Path, database: dict[str, Any]
) -> None:
    slow = FakeModelServer(ModelSwitches(first_token_delay_s=2.0))
    async with PlatformServers() as platforms, slow as model:
        model.answer = report
        people = platforms.private_users(0)
        config = {
            **with_model(model.base_url),
            **database,
            "channels": platforms.channels,
            "hooks": hooks_for(people),
        }
        async with two_nodes(tmp_path, config) as (first, second):
            for user in people:
                await user.send("/status")
            for user in people:
                assert await eventually(user.bot_messages)
            outcomes = Counter[str]()

            async def deliver(node: Service, user: ChatUser, number: int) -> None:
                async with stranger(node) as client:
                    outcomes[await send(client, user.channel, number)] += 1

            async with anyio.create_task_group() as tasks:
                for user in people:
                    for number in BUILDS:
                        tasks.start_soon(deliver, first, user, number)
                        tasks.start_soon(deliver, second, user, number)
            events = len(people) * len(BUILDS)
            assert outcomes == {"accepted": events, "duplicate": events}
            await first.kill()
            for user in people:
                await eventually(
                    partial(reports, user), lambda seen: len(seen) == len(BUILDS), within_s=90
                )
            twice = [user.channel for user in people if max(reports(user).values()) > 1]
            # If the node is killed while it sends a message, Telegram cannot tell whether the message arrived.
            assert set(twice) <= {"telegram"}
        assert platforms.violations == []


@asynccontextmanager
async def breakable(
    folder: Path, engine: str
) -> AsyncIterator[tuple[dict[str, Any], ProvenDatabase]]:
    """Yield the configuration of a database that the test can stop, and the database."""
    if engine == "sqlite":
        yield {}, SqliteDatabase(folder / "home")
        return
    with postgres_server() as server:
        if server is None:
            pytest.skip(MISSING)
        with server.database() as url:
            yield {"database": {"url": url}}, PostgresDatabase(server, url)


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
async def test_while_the_database_is_away_an_event_is_refused_and_stored_once_when_sent_again(
    tmp_path: Path, engine: str
) -> None:
    async with (
        PlatformServers() as platforms,
        FakeModelServer(answer=report) as model,
        breakable(tmp_path, engine) as (database_config, database),
    ):
        people = platforms.private_users(0)
        config = {
            **with_model(model.base_url),
            **database_config,
            "channels": platforms.channels,
            "hooks": hooks_for(people),
        }
        async with serving(tmp_path, config, *PLATFORMS) as service, stranger(service) as client:
            for user in people:
                await user.send("/status")
            for user in people:
                assert await eventually(user.bot_messages)
            await service.until_recorded()
            outcomes = dict[str, list[int]]()

            async def deliver(user: ChatUser) -> None:
                headers, body = signed({"build": {"number": 1}}, f"{user.channel}-1")
                path, statuses = f"/hooks/{user.channel}", outcomes.setdefault(user.channel, [])
                while not {200, 202} & {*statuses}:
                    answer = await client.post(path, content=body, headers=headers, timeout=60)
                    statuses.append(answer.status_code)

            async with anyio.create_task_group() as tasks, database.broken():
                for user in people:
                    tasks.start_soon(deliver, user)
                await eventually(lambda: len(outcomes) == 3 and all(outcomes.values()))
                assert {status for seen in outcomes.values() for status in seen} == {503}
            for user in people:
                # 200: the client gave up a request while the database came back, but the event was stored after all.
                assert outcomes[user.channel][-1] in (200, 202)
                assert await send(client, user.channel, 1) == "duplicate"
                await eventually(partial(reports, user), lambda seen: seen == {"Report 1": 1})
        assert platforms.violations == []


async def test_limits_of_usage_hold_for_events_and_not_for_people_of_the_chat(
    tmp_path: Path,
) -> None:
    async with PlatformServers() as platforms, FakeModelServer(answer=report) as model:
        person = platforms.private_users(0)[1]
        config = {
            **with_model(model.base_url),
            "channels": platforms.channels,
            "hooks": hooks_for([person]),
            "memory": {"enabled": False},
            "usage": {"limits": {"person": {"tokens_per_day": TOKENS}}},
        }
        async with serving(tmp_path, config, *PLATFORMS) as service, stranger(service) as client:
            await person.send("hi")
            await person.wait_for_message("Hello")
            for number in range(1, 20):
                assert await send(client, person.channel, number) == "accepted"
                await eventually(partial(_has_answers_to_events, person, number))
            assert any("allowance" in text for text in person.bot_messages())
            asked = len(model.requests)
            assert asked < 20
            await person.send("and me?")
            await eventually(lambda: person.bot_messages().count("Hello") == 2)
            assert len(model.requests) == asked + 1
            async with service.client() as operator:
                found = (await operator.get("/api/usage?by=person&by=kind")).json()["totals"]
            [used] = [row for row in found if row["kind"] == "hook"]
            assert 0 < used["input_tokens"] + used["output_tokens"] <= TOKENS
        assert platforms.violations == []


def _has_answers_to_events(user: ChatUser, count: int) -> bool:
    texts = user.bot_messages()
    return sum(text.startswith("Report") or "allowance" in text for text in texts) == count


async def test_hooks_of_a_changed_configuration_work_without_a_restart(tmp_path: Path) -> None:
    async with PlatformServers() as platforms, FakeModelServer() as model:
        model.answer = report
        people = platforms.private_users(0)
        config = {**with_model(model.base_url), "channels": platforms.channels}
        async with serving(tmp_path, config, *PLATFORMS) as service, stranger(service) as client:
            pushes = {**hooks_for(people)["telegram"], "form": "github"}
            headers, body = signed_by_github({"build": {"number": 5}}, "d1")
            refused = await client.post("/hooks/pushes", content=body, headers=headers)
            assert refused.status_code == 401
            tree = yaml.safe_load(service.config.read_text())
            service.config.write_text(yaml.safe_dump({**tree, "hooks": {"pushes": pushes}}))

            async def status() -> int:
                answer = await client.post("/hooks/pushes", content=body, headers=headers)
                return answer.status_code

            await eventually(status, lambda found: found == 202, within_s=30)
            [person] = [user for user in people if user.channel == "telegram"]
            await person.send("hi")
            await eventually(partial(reports, person), lambda seen: seen == {"Report 5": 1})
            code, out, _ = await service.command("check")
            assert (code, f"github, into telegram {person.chat}" in out) == (0, True)
            wrong = {"pushes": {**pushes, "channel": "telegrm", "promt": "x"}}
            service.config.write_text(yaml.safe_dump({**tree, "hooks": wrong}))
            code, _, error = await service.command("check")
            assert code == 1
            assert "hooks.pushes.channel: there is no enabled channel 'telegrm'" in error
            assert "hooks.pushes.promt: unknown key" in error
        assert platforms.violations == []
