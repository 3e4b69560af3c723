"""Secrets of Parley's connections (proxy, PostgreSQL, bucket, collector, servers) appear nowhere.

For the secrets of platforms, models and MCP servers, see test_canaries.py.
"""

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit

import anyio
import httpx
import psycopg
import pytest
from anyio.abc import SocketAttribute, SocketStream
from psycopg import sql

from tests.eventually import eventually
from tests.fakes.model import FakeModelServer
from tests.fakes.s3 import S3Bucket
from tests.journeys.service import Service, serving, with_model
from tests.journeys.test_canaries import Witness, ask_everything, has_more_than, speak, talk
from tests.people.platforms import PlatformServers
from tests.people.telegram import TelegramPrivateUser

SECRETS = {
    "proxy password": "canary-proxy-password-1a",
    "database password": "canary/database+password-2b",
    "bucket key": "canary-bucket-key-3c",
    "collector key": "canary-collector-key-4d",
    "model header": "canary-model-header-5e",
    "password in a model's address": "canary-model-password-6f",
    "password in an MCP server's address": "canary-mcp-password-7a",
}
PASSWORD = quote(SECRETS["database password"], safe="")
LOGINS = {
    "database password in an address": PASSWORD,
    "proxy login": f"parley:{SECRETS['proxy password']}",
    "login in a model's address": "me:" + SECRETS["password in a model's address"],
    "login in an MCP server's address": "me:" + SECRETS["password in an MCP server's address"],
}
"""Forms of the secrets in addresses and, in base64, in headers."""

NOWHERE = "127.0.0.1:9"


@dataclass
class RefusingProxy:
    """A proxy that refuses all clients and records their requests.

    Attributes:
        asked: The headers of all requests.
    """

    port: int
    asked: list[bytes] = field(default_factory=list)


@asynccontextmanager
async def refusing_proxy() -> AsyncIterator[RefusingProxy]:
    """Run a proxy inside the block."""
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1")
    proxy = RefusingProxy(listener.extra(SocketAttribute.local_port))  # noqa: S610 - not Django's

    async def refuse(client: SocketStream) -> None:
        async with client:
            with suppress(anyio.EndOfStream, anyio.BrokenResourceError):
                head = await client.receive()
                proxy.asked.append(head)
                start = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: %d\r\n\r\n"
                await client.send(start % len(head) + head)

    async with listener, anyio.create_task_group() as tasks:
        tasks.start_soon(listener.serve, refuse)
        yield proxy
        tasks.cancel_scope.cancel()


def environment(proxy_port: int) -> dict[str, str]:
    proxy = f"http://parley:{SECRETS['proxy password']}@127.0.0.1:{proxy_port}"
    return {
        "HTTP_PROXY": proxy,
        "HTTPS_PROXY": proxy,
        "http_proxy": proxy,
        "https_proxy": proxy,
        "NO_PROXY": "127.0.0.1",
        "no_proxy": "127.0.0.1",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector.invalid:4318",
        "OTEL_EXPORTER_OTLP_HEADERS": f"authorization=Bearer%20{SECRETS['collector key']}",
        "OTEL_BSP_SCHEDULE_DELAY": "100",
        "OTEL_BLRP_SCHEDULE_DELAY": "100",
        "OTEL_METRIC_EXPORT_INTERVAL": "200",
    }


def with_password(url: str) -> str:
    """Return the URL of a database with a password. A server that trusts all clients ignores it."""
    parts = urlsplit(url)
    user, _, place = parts.netloc.rpartition("@")
    name = user.partition(":")[0] or "postgres"
    return urlunsplit(parts._replace(netloc=f"{name}:{PASSWORD}@{place}"))


def configuration(
    platforms: PlatformServers, model: str, database: str, bucket: S3Bucket
) -> dict[str, Any]:
    config = with_model(model)
    [works] = config["models"]
    secret = SECRETS["password in a model's address"]
    broken = works | {
        "name": "broken",
        "base_url": f"http://me:{secret}@{NOWHERE}/v1",
        "default_headers": {"X-Key": SECRETS["model header"]},
    }
    behind_proxy = works | {"name": "behind-proxy", "base_url": "https://model.invalid/v1"}
    telegram = platforms.channels["telegram"]
    elsewhere = telegram | {
        "platform": "telegram",
        "bot_token": "123456:behind-the-proxy",
        "base_url": "https://telegram.invalid/bot",
    }
    return {
        **config,
        "models": [works, broken, behind_proxy],
        "channels": {"telegram": telegram, "telegram-elsewhere": elsewhere},
        "database": {"url": with_password(database)},
        "storage": bucket.storage() | {"secret_access_key": SECRETS["bucket key"]},
        "log_level": "debug",
    }


def extensions() -> str:
    secret = SECRETS["password in an MCP server's address"]
    servers = {
        "gone": {"type": "http", "url": f"http://me:{secret}@{NOWHERE}/mcp"},
        "behind-proxy": {"type": "http", "url": f"https://me:{secret}@mcp.invalid/mcp"},
    }
    return json.dumps({"mcpServers": servers})


@pytest.mark.timeout(300)
async def test_no_secret_of_a_connection_is_found_anywhere(
    tmp_path: Path, url: str, bucket: S3Bucket
) -> None:
    witness = Witness({name: secret.encode() for name, secret in (SECRETS | LOGINS).items()})
    async with PlatformServers() as platforms, FakeModelServer(answer=speak) as model:
        (tmp_path / "extensions_config.json").write_text(extensions())
        config = configuration(platforms, model.base_url, url, bucket)
        async with (
            refusing_proxy() as proxy,
            serving(
                tmp_path, config, "telegram", environment=environment(proxy.port), fork=False
            ) as service,
        ):
            user = TelegramPrivateUser(platforms.telegram)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(witness.watch_processes, service.pid)
                await talk(user, service)
                await ask_broken_models(user)
                await ask_everything(witness, service, "nothing")
                tasks.cancel_scope.cancel()
            await run_commands(service, witness, tmp_path)
            await service.stop()
    for request in model.requests:
        witness.look("requests to the model", json.dumps(request.body) + str(request.headers))
    look_at_what_is_left(witness, service, user, url, bucket)
    assert witness.found == []
    assert min(witness.looked.values()) > 0
    heads = b"".join(proxy.asked)
    for host in ("telegram", "model", "mcp", "collector"):
        assert f"{host}.invalid".encode() in heads, host
    assert base64.b64encode(LOGINS["proxy login"].encode()) in heads
    assert SECRETS["collector key"].encode() in heads


async def ask_broken_models(user: TelegramPrivateUser) -> None:
    for name in ("broken", "behind-proxy"):
        for said in (f"/model {name}", "hello?"):
            seen = len(user.bot_messages())
            await user.send(said)
            await eventually(partial(has_more_than, user, seen), within_s=60)


async def run_commands(service: Service, witness: Witness, folder: Path) -> None:
    commands = (
        ["doctor", "--json"],
        ["doctor"],
        ["check", "--json"],
        ["check"],
        ["threads"],
        ["backup", str(folder / "backup.tar.gz")],
        ["migrate", "--files", str(service.home)],
    )
    for command in commands:
        _, out, errors = await service.command(*command)
        witness.look(f"parley {command[0]}", out + errors)


def look_at_what_is_left(
    witness: Witness, service: Service, user: TelegramPrivateUser, url: str, bucket: S3Bucket
) -> None:
    witness.look("the log", service.log.read_bytes())
    witness.look("messages", "\n".join(user.bot_messages()))
    for path in service.home.rglob("*"):
        if path.is_file():
            witness.look(f"home/{path.name}", path.read_bytes() or b" ")
    for name in bucket.objects():
        witness.look("the bucket", httpx.get(f"{bucket.url}/{name}").content or b" ")
    with psycopg.connect(url) as connection:
        tables = connection.execute(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'"
        ).fetchall()
        for (table,) in tables:
            rows = connection.execute(
                sql.SQL("SELECT t::text FROM {} AS t").format(sql.Identifier(table))
            )
            witness.look("the database", str(rows.fetchall()))


BUCKET = {
    "url": "s3://bucket/parley",
    "endpoint": f"http://{NOWHERE}",
    "access_key_id": "test",
    "secret_access_key": SECRETS["bucket key"],
    "retry_s": 0,
}


@pytest.mark.parametrize(
    "section",
    [
        {"database": {"url": f"postgresql://parley:{PASSWORD}@{NOWHERE}/parley"}},
        {"database": {"url": f"postgresql://parley:{PASSWORD}@127.0.0.1:port/parley"}},
        {"database": {"url": f"postgres:/parley:{PASSWORD}@{NOWHERE}/parley"}},
        {"database": {"url": f"postgresql://parley:{PASSWORD}@{NOWHERE}/parley?sslmode=x"}},
        {"storage": BUCKET},
        {"storage": BUCKET | {"endpoint": f"http://me:{SECRETS['bucket key']}@{NOWHERE}"}},
        {"storage": BUCKET | {"retry_s": SECRETS["bucket key"]}},
    ],
    ids=["no database", "no port", "no address", "no mode", "no bucket", "a login", "no number"],
)
async def test_a_service_that_cannot_connect_reveals_no_secret(
    tmp_path: Path, section: dict[str, Any]
) -> None:
    witness = Witness({name: secret.encode() for name, secret in (SECRETS | LOGINS).items()})
    service = Service(tmp_path, section)
    await service.launch()
    assert await service.ended(within_s=60) != 0
    witness.look("the log", service.log.read_bytes())
    await run_commands(service, witness, tmp_path)
    assert witness.found == []
