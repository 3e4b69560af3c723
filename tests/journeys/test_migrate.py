"""`parley migrate`: a service that ran on SQLite continues on PostgreSQL as if nothing had happened."""

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest
import yaml

from store.checkpoints import open_checkpointer
from store.config import StoreConfig
from store.database import Database
from store.migrations import steps
from tests.fakes.model import FakeModelServer, ModelReply, ModelRequest
from tests.fakes.postgres import MISSING, PostgresServer
from tests.journeys.service import Service, serving, with_model
from tests.people.chat_user import ChatUser
from tests.people.platforms import PlatformServers

PLATFORMS = ("slack", "telegram", "feishu")
WAITING = "wait"


@pytest.fixture
def url(postgres: PostgresServer | None) -> Iterator[str]:
    if postgres is None:
        pytest.skip(MISSING)
    with postgres.database(migrated=False) as created:
        yield created


def echo(request: ModelRequest) -> ModelReply:
    return ModelReply(text=f"You said: {request.last_user_text}")


def echo_but_wait(request: ModelRequest) -> ModelReply:
    reply = echo(request)
    return replace(reply, hang_after=1) if WAITING in request.last_user_text else reply


def use_database(service: Service, url: str) -> None:
    """Change `database.url` of the configuration."""
    config = yaml.safe_load(service.config.read_text())
    service.config.write_text(yaml.safe_dump({**config, "database": {"url": url}}))


async def migrate(service: Service, *arguments: str) -> dict[str, Any]:
    code, out, errors = await service.command("migrate", "--json", *arguments)
    assert code == 0, errors
    assert "Verified" in errors
    return dict(json.loads(out)["tables"])


async def rest_state(service: Service) -> dict[str, Any]:
    """Return the REST API's data that users do not change."""
    async with service.client() as client:
        items = await client.post("/api/store/items/search", json={"namespace_prefix": ["shelf"]})
        threads = (await client.post("/api/threads/search", json={"limit": 100})).json()
        return {
            "items": items.json(),
            "tokens": (await client.get("/api/tokens")).json(),
            "threads": {thread["thread_id"]: thread["created_at"] for thread in threads},
        }


async def use(service: Service, platforms: PlatformServers, model: FakeModelServer) -> None:
    """Fill tables with answered and waiting messages, an item, and a token."""
    for user in platforms.private_users(1):
        await user.send("before the move")
        await user.expect_messages("You said: before the move")
    waiters = platforms.private_users(2)
    for user in waiters:
        await user.send(f"please {WAITING}")
    await model.until(
        lambda m: sum(WAITING in one.last_user_text for one in m.requests) == len(waiters)
    )
    async with service.client() as client:
        item = {"namespace": ["shelf"], "key": "k", "value": {"n": 1}}
        assert (await client.put("/api/store/items", json=item)).is_success
        token = {"name": "ci", "scope": "read"}
        assert (await client.post("/api/tokens", json=token)).is_success
    await service.until_recorded()


async def talk_on(
    service: Service, platforms: PlatformServers, text: str, waiters: Sequence[ChatUser]
) -> None:
    """Start the service. Check that waiting and new messages are answered."""
    await service.start()
    await service.until_connected(*PLATFORMS)
    for user in waiters:
        await user.wait_for_message(f"You said: please {WAITING}")
    for user in platforms.private_users(1):
        await user.send(text)
        await user.wait_for_message(f"You said: {text}")
    await service.until_recorded()


async def test_a_service_continues_on_postgres(tmp_path: Path, url: str) -> None:
    async with PlatformServers() as platforms, FakeModelServer(answer=echo_but_wait) as model:
        config = {**with_model(model.base_url), "channels": platforms.channels}
        async with serving(tmp_path, config, *PLATFORMS) as service:
            await use(service, platforms, model)
            code, _, errors = await service.command("migrate", "sqlite", url)
            assert (code, errors.count("\n")) == (1, 1)
            assert "uses the data folder" in errors
            before = await rest_state(service)
            await service.kill()

            moved = await migrate(service, "sqlite", url)
            assert min(moved[name]["rows"] for name in ("inbox", "checkpoints", "item")) > 0
            use_database(service, url)
            model.answer = echo
            await talk_on(service, platforms, "after the move", platforms.private_users(2))
            assert await rest_state(service) == before
            assert await service.stop() == 0

        asked = [one for one in model.requests if one.last_user_text == "after the move"]
        assert len(asked) == len(PLATFORMS)
        for request in asked:
            assert "before the move" in str(request.messages)
        assert platforms.violations == []


async def test_the_summary_of_a_migration_does_not_contain_the_url(
    tmp_path: Path, url: str
) -> None:
    service = Service(tmp_path, {})
    async with Database.open(StoreConfig(), service.home), open_checkpointer(service.home):
        pass
    code, out, errors = await service.command("migrate", "sqlite", url)
    assert code == 0, errors
    assert re.match(r"Moved \d+ rows of \d+ tables in \S+ s; both sides have the same", out)
    assert "Set `database.url` in the configuration to the PostgreSQL URL" in out
    assert url not in out


async def test_the_owner_creates_the_tables_and_the_service_runs_with_rights_on_rows_only(
    tmp_path: Path, url: str
) -> None:
    role = f"runner_{os.getpid()}"
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'".encode())
        runner_url = (
            f"postgresql://{role}:x@{urlsplit(url).netloc.rpartition('@')[2]}{urlsplit(url).path}"
        )
    try:
        async with PlatformServers() as platforms, FakeModelServer(answer=echo) as model:
            service = Service(
                tmp_path,
                {
                    **with_model(model.base_url),
                    "channels": platforms.channels,
                    "database": {"url": "$PARLEY_DATABASE_URL"},
                },
                {"PARLEY_DATABASE_URL": runner_url, "OWNER_URL": url},
            )
            await service.launch()
            assert await service.ended(within_s=60) == 1
            assert "parley migrate --schema" in service.log.read_text()
            code, out, _ = await service.command("migrate", "--schema", "$OWNER_URL")
            assert (code, out) == (0, f"The tables now have schema {len(steps('postgres'))}.\n")
            with psycopg.connect(url, autocommit=True) as owner:
                owner.execute(
                    f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}".encode()
                )
            await talk_on(service, platforms, "hello", waiters=())
            await service.kill()
            assert platforms.violations == []
    finally:
        with psycopg.connect(url, autocommit=True) as owner:
            owner.execute(f"DROP OWNED BY {role}".encode())
            owner.execute(f"DROP ROLE {role}".encode())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("sqlite",), "name a SQLite source and a PostgreSQL target"),
        (("sqlite", "sqlite"), "name a SQLite source and a PostgreSQL target"),
        (("sqlite", "mysql://db/parley"), "a database is sqlite, sqlite:///FILE, postgresql://"),
        (("sqlite", "$NOT_SET"), "the environment variable NOT_SET is not set"),
        (("sqlite", "postgresql://127.0.0.1:1/parley"), "There is nothing to move"),
        (
            ("postgresql://127.0.0.1:1/parley", "sqlite"),
            "name a SQLite source and a PostgreSQL target",
        ),
        (("--schema", "sqlite"), "--schema takes one database"),
        (("--schema", "postgresql://127.0.0.1:1/parley"), "PostgreSQL cannot be used"),
    ],
)
async def test_wrong_arguments_are_reported_in_one_line(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    service = Service(tmp_path, {})
    code, out, errors = await service.command("migrate", *arguments)
    assert (code, out, errors.count("\n")) == (1, "", 1)
    assert said in errors
