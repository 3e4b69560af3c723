"""A platform built from docs/howto/add-a-platform.md alone, in a copy of the code, and talked to."""

import re
import shutil
from pathlib import Path

import yaml

from tests.fakes.model import FakeModelServer
from tests.fakes.pigeon import pigeon
from tests.journeys.house import ROOT, serving, with_model

PAGE = ROOT / "docs/howto/add-a-platform.md"
CODE = ("agent", "bots", "bus", "gateway", "store", "skills")

_BLOCK = re.compile(
    r'^```\w+ title="(?P<title>[^"]+)"(?: (?P<where>before|after)="(?P<line>[^"]+)")?\n(?P<code>.*?)^```$',
    re.MULTILINE | re.DOTALL,
)


def build(copy: Path) -> str:
    """Do what the page says, in a copy of the code; return the configuration that it ends with."""
    for package in CODE:
        shutil.copytree(
            ROOT / package, copy / package, ignore=shutil.ignore_patterns("__pycache__")
        )
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
    async with pigeon() as server, FakeModelServer() as model:
        server.say("r1", "hello")
        configuration["channels"]["pigeon"]["base_url"] = server.url
        model.reply("Hello Ann.", "long " * 700)
        config = {**with_model(model.base_url), **configuration, "title": {"enabled": False}}
        environment = {"PYTHONPATH": str(tmp_path / "code")}
        async with serving(tmp_path, config, "pigeon", environment=environment) as service:
            assert await server.until_shown(1) == ["Hello Ann."]
            server.refusals.extend([429, 503])
            server.say("r1", "and more")
            server.say("r2", "/help")
            shown = await server.until_shown(4)
            await service.kill()
            await service.start()
            server.say("r2", "/status")
            again = await server.until_shown(5)
    assert sum(text.startswith("Available commands:") for text in shown) == 1
    assert "".join(text for text in shown if text.startswith("long")).count("long") == 700
    # After a crash everything comes once more from the platform, and nothing is said twice.
    assert again[:4] == shown
    assert again[4] == "No active conversation."
