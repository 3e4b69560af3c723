"""A platform is built from docs/howto/add-a-platform.md alone, in a copy of the code, and people write to it."""

import re
import shutil
from pathlib import Path
from typing import Any

import httpx
import yaml

from bus.locales import messages_for
from tests.eventually import eventually
from tests.fakes.example_platform import example_platform
from tests.fakes.model import FakeModelServer
from tests.journeys.service import ROOT, serving, with_model

PAGE = ROOT / "docs/howto/add-a-platform.md"
CODE = ("agent", "bots", "bus", "gateway", "store", "skills")

_BLOCK = re.compile(
    r'^```\w+ title="(?P<title>[^"]+)"(?: (?P<where>before|after)="(?P<line>[^"]+)")?\n(?P<code>.*?)^```$',
    re.MULTILINE | re.DOTALL,
)


def build(copy: Path) -> str:
    """Follow the page in a copy of the code. Return the resulting configuration."""
    for package in CODE:
        # Copies the bytecode, too, because on a busy machine compiling everything takes longer than a start may take.
        being_written = shutil.ignore_patterns("*.pyc.*")
        shutil.copytree(ROOT / package, copy / package, ignore=being_written)
    shutil.copy(ROOT / "pyproject.toml", copy)
    configuration = ""
    for block in _BLOCK.finditer(PAGE.read_text()):
        target, code, line = copy / block["title"], block["code"], block["line"]
        if block["title"] == "config.yaml":
            configuration = code
        elif line is None:
            target.parent.mkdir(exist_ok=True)
            target.write_text(code)
        else:
            text = target.read_text()
            assert text.count(line) == 1, f"{line} in {block['title']}"
            new = f"{code}{line}" if block["where"] == "before" else f"{line}\n{code.rstrip()}"
            target.write_text(text.replace(line, new))
    return configuration


async def test_the_page_makes_a_platform_that_answers(tmp_path: Path) -> None:
    configuration = yaml.safe_load(build(tmp_path / "code"))
    async with example_platform() as server, FakeModelServer() as model:
        server.say("r1", "hello")
        configuration["channels"]["acme"]["base_url"] = server.url
        model.reply("Hello Ann.", "long " * 700)
        config = {**with_model(model.base_url), **configuration, "title": {"enabled": False}}
        environment = {"PYTHONPATH": str(tmp_path / "code")}
        async with serving(tmp_path, config, "acme", environment=environment) as service:
            assert await server.until_shown(1) == ["Hello Ann."]
            server.refusals.extend([429, 503])
            server.say("r1", "and more")
            server.say("r2", "/help")
            shown = await server.until_shown(4)
            await service.kill()
            await service.start()
            server.say("r2", "/status")
            again = await server.until_shown(5)
            assert await service.stop() == 0
    assert sum(text.startswith("Available commands:") for text in shown) == 1
    assert "".join(text for text in shown if text.startswith("long")).count("long") == 700
    # After a crash, the platform sends everything again, and the bot repeats nothing.
    assert again[:4] == shown
    assert again[4] == "No active conversation."
    assert server.reactions[:3] == [("1", "eyes"), ("1", "-eyes"), ("1", "check")]


async def test_the_shared_parts_reconnect_greet_and_receive_webhooks(tmp_path: Path) -> None:
    configuration = yaml.safe_load(build(tmp_path / "code"))
    async with example_platform() as server, FakeModelServer() as model:
        configuration["channels"]["acme"]["base_url"] = server.url
        hook = {"platform": "acme", "mode": "webhook", "secret": "s3cret", "enabled": True}
        configuration["channels"]["acme-hook"] = {**hook, "base_url": server.url}
        model.reply("Pushed.")
        config = {**with_model(model.base_url), **configuration, "title": {"enabled": False}}
        names = ("acme", "acme-hook")
        environment = {"PYTHONPATH": str(tmp_path / "code")}
        async with serving(tmp_path, config, *names, environment=environment) as service:
            server.down = True
            async with service.client() as client:
                state = await until_state(client, "acme", "reconnecting")
                assert state["detail"] == "HTTP 503"
            server.down = False
            server.add_bot("r1")
            assert messages_for("en").hello_group in (await server.until_shown(1))[0]
            url = f"{service.url}/webhooks/acme-hook"
            event: dict[str, object] = {"id": 77, "room": "r9", "from": "bob", "text": "hi"}
            assert await server.post(url, event, "wrong") == 401
            assert [await server.post(url, event, "s3cret") for _ in range(2)] == [200, 200]
            assert (await server.until_shown(2))[1] == "Pushed."
            async with service.client() as client:
                await until_state(client, "acme", "connected")
            assert await service.stop() == 0
    assert ("r9", "Pushed.") in server.shown


async def until_state(client: httpx.AsyncClient, channel: str, state: str) -> dict[str, Any]:
    """Wait until a channel has a state."""

    async def look() -> dict[str, Any]:
        return dict((await client.get("/api/channels")).json()["channels"][channel])

    return await eventually(look, lambda known: known["state"] == state)
