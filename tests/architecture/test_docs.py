"""The documentation is correct: it describes every key, command and route, and no others."""

import argparse
import os
import re
import shlex
import socket
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import anyio
import pytest
import yaml
from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from agent.config import AgentConfig
from bots.config import BotsConfig
from bots.slack.manifest import app_manifest
from bus.commands import COMMANDS
from bus.config import DEFAULT_SESSION, BusConfig, ChannelPolicy, SessionConfig
from bus.platform import ConnectionState, Disposition
from bus.voice.config import VoiceConfig
from gateway.cli import COMMANDS as PROGRAM_COMMANDS
from gateway.cli import build_parser
from gateway.config import NodeConfig, _TopLevelConfig, load_config
from gateway.gateway_config import GatewayConfig
from store.config import StoreConfig
from store.files.config import StorageConfig
from tests.gateway.composed import composed

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
FIRST_CHAT = ROOT / "docs/tutorials/first-chat.md"
REFERENCE = ROOT / "docs" / "reference"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

UNSET = object()
REQUIRED = object()

PROGRAMS = {
    "apt-get", "cat", "cp", "curl", "docker", "echo", "export", "git", "journalctl", "langgraph", "make", "mkdir",
    "parley", "python", "python3", "systemctl", "tar", "umask", "uv",
}  # fmt: skip
"""Commands that documents may ask a reader to type."""

OTHER_SITES = {
    "https://agentclientprotocol.com",
    "https://agentskills.io/specification",
    "https://docs.astral.sh/uv/",
    "https://docs.langchain.com/langgraph-platform/why-langgraph",
    "https://semver.org/",
    "https://github.com/microsoft/playwright-mcp",
    "https://www.standardwebhooks.com",
    "https://www.contributor-covenant.org/version/2/1/code_of_conduct/",
}
"""Links that no test follows. Open a link yourself before you add it."""


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", page.read_text("utf-8"), re.M | re.S)


def rows(text: str) -> Iterator[list[str]]:
    """Yield the cells of every table row whose first cell is code."""
    for line in text.splitlines():
        if line.startswith("| `"):
            yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("| "))]


# --- configuration ---------------------------------------------------------------------------------------------


def fields(model: type[BaseModel], path: str) -> Iterator[tuple[str, object]]:
    """Yield (key path, default) of a section and of its subsections. A default may be UNSET or REQUIRED."""
    for name, field in model.model_fields.items():
        where = f"{path}.{name}" if path else name
        kinds = (field.annotation, *get_args(field.annotation))
        inner = next((k for k in kinds if isinstance(k, type) and issubclass(k, BaseModel)), None)
        default = field.get_default(call_default_factory=True)
        if inner is None or inner is SessionConfig:
            yield where, shown(default)
        elif isinstance(default, list):
            yield where, default
            yield from fields(inner, f"{where}[]")
        elif isinstance(default, dict):
            yield where, default
            yield from fields(inner, f"{where}.*")
        else:
            yield from fields(inner, where)


def shown(default: object) -> object:
    if default is PydanticUndefined:
        return REQUIRED
    if default is None or default == "":
        return UNSET
    return default.model_dump(exclude_unset=True) if isinstance(default, BaseModel) else default


def channel_fields() -> Iterator[tuple[str, object]]:
    """Yield the keys of the channels. Shared keys appear once, as `channels.*`."""
    yield from (
        (p, d) for p, d in fields(ChannelPolicy, "channels.*") if p != "channels.*.dm_policy"
    )
    yield "channels.*.dm_policy", "see below"
    yield "channels.*.platform", "the section's name"
    for name, section in BotsConfig.model_fields.items():
        model = section.annotation
        assert isinstance(model, type)
        own = vars(model)["__annotations__"]
        for path, default in fields(model, f"channels.{name}"):
            key = path.rpartition(".")[2]
            if key in own and key != "platform":
                yield path, default


def known_keys() -> dict[str, object]:
    session = {
        f"channels.session.{name}": getattr(DEFAULT_SESSION, name)
        for name in SessionConfig.model_fields
    }
    bus = {
        path: default
        for path, default in fields(BusConfig, "channels")
        if path != "channels.session"
    }
    return {
        **dict(fields(_TopLevelConfig, "")),
        **dict(fields(AgentConfig, "")),
        **dict(fields(StoreConfig, "database")),
        **dict(fields(StorageConfig, "storage")),
        **dict(fields(NodeConfig, "node")),
        **dict(fields(VoiceConfig, "voice")),
        **dict(fields(GatewayConfig, "gateway")),
        **bus,
        **session,
        **dict(channel_fields()),
    }


def documented_keys() -> dict[str, object]:
    """Return the table of keys with their defaults, without the table of environment variables."""
    text = (REFERENCE / "configuration.md").read_text("utf-8").partition("\n## Top level")[2]
    words = {"unset": UNSET, "required": REQUIRED}
    found: dict[str, object] = {}
    for key, default, _ in rows(text):
        name = key.strip("`")
        assert name not in found, f"{name} is listed twice"
        code = default.startswith("`")
        found[name] = yaml.safe_load(default.strip("`")) if code else words.get(default, default)
    return found


def test_every_configuration_key_is_documented_with_its_default() -> None:
    known, documented = known_keys(), documented_keys()
    assert sorted(documented) == sorted(known)
    wrong = {key for key in known if documented[key] != known[key]}
    assert wrong == set()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_configuration_shown_can_be_used(page: Path, tmp_path: Path) -> None:
    for text in blocks(page, "yaml"):
        if "display_information" in text:  # a manifest, not a configuration
            continue
        (tmp_path / "config.yaml").write_text(text, "utf-8")
        names = re.findall(r"\$([A-Z_]+)", text)
        environ = {name: f"a-long-value-of-{name}" for name in names}
        config = load_config(str(tmp_path / "config.yaml"), environ)
        assert config.warnings == ()


# --- commands, routes, command line ----------------------------------------------------------------------------


def test_every_chat_command_is_documented() -> None:
    documented = [row[0] for row in rows((REFERENCE / "commands.md").read_text("utf-8"))]
    assert documented == [f"`/{command.name}`" for command in COMMANDS]


async def test_every_route_is_documented(tmp_path: Path) -> None:
    text = (REFERENCE / "rest.md").read_text("utf-8")
    documented = [row[0].strip("`") for row in rows(text)]
    async with composed(tmp_path) as service:
        described = service.app.openapi()["paths"]
    served = {
        f"{method.upper()} {path}" for path, methods in described.items() for method in methods
    }
    assert len(documented) == len(set(documented))
    assert set(documented) == served | {"GET /api/openapi.json"}


def test_every_event_result_and_state_is_documented() -> None:
    text = (REFERENCE / "rest.md").read_text("utf-8")
    results = text.partition("### Event results")[2].partition("\n## ")[0]
    assert {f"`{reason}`" for reason in Disposition} <= set(re.findall(r"`\w+`", results))
    assert all(f"`{link}`" in text for link in ConnectionState)


def commands(top: argparse.ArgumentParser, name: str) -> Iterator[tuple[str, set[str]]]:
    """Yield every command with its own options."""
    for action in top._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, inner in action.choices.items():
                options = {flag for a in inner._actions for flag in a.option_strings}
                yield f"{name} {word}", options - {"-h", "--help", "--config"}
                yield from commands(inner, f"{name} {word}")


def test_every_command_of_the_command_line_is_documented() -> None:
    text = (REFERENCE / "cli.md").read_text("utf-8")
    sections = re.split(r"^##+ ", text, flags=re.M)[1:]
    documented = {s.partition("\n")[0].strip("`"): s for s in sections}
    known = dict(commands(build_parser(), "parley"))
    assert list(documented) == list(known)
    for name, options in known.items():
        told = {row[0].strip("`").split()[0] for row in rows(documented[name])}
        assert told == options, name


def test_the_slack_manifest_shown_is_the_one_that_is_printed() -> None:
    page = ROOT / "docs" / "howto" / "connect-slack.md"
    (shown,) = (yaml.safe_load(b) for b in blocks(page, "yaml") if "display_information" in b)
    assert shown == app_manifest()


# --- links, versions, commands that readers type ---------------------------------------------------------------


def anchors(page: Path) -> set[str]:
    """Return the names under which the headings of a page can be linked to."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in headings}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if target.startswith(("https://", "mailto:")):
            continue
        file, _, anchor = target.partition("#")
        goal = (page.parent / file).resolve() if file else page
        assert goal.exists(), target
        assert not anchor or anchor in anchors(goal), target


def test_links_to_other_sites_are_listed() -> None:
    linked = {
        target
        for page in PAGES
        for target in re.findall(r"\]\((\w+://[^)\s]+)\)", page.read_text("utf-8"))
    }
    assert linked == OTHER_SITES


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_page_has_one_title_and_is_linked_to(page: Path) -> None:
    assert re.match(r"# \S", page.read_text("utf-8"))
    if page != README:
        others = "".join(other.read_text("utf-8") for other in PAGES if other != page)
        assert f"{page.name})" in others or f"{page.name}#" in others, "no page links to this one"


def test_the_newest_version_in_the_changelog_is_the_packages() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    versions = re.findall(r"^## (\d\S*)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.M)
    assert versions[0] == project["version"]
    assert len(versions) == len(set(versions))


def typed(page: Path) -> Iterator[list[str]]:
    """Yield the commands that a page tells its reader to type, as words. Each part of a pipe is a separate command."""
    for block in blocks(page, "console"):
        for line in re.sub(r"\\\n\s*", " ", block).splitlines():
            if line.startswith("$ "):
                words = shlex.split(line[2:].replace("$(", "").replace(")", ""), comments=True)
                yield from split_at(words, {"|", "&&"})


def split_at(words: list[str], marks: set[str]) -> Iterator[list[str]]:
    part: list[str] = []
    for word in [*words, "|"]:
        if word not in marks:
            part.append(word)
            continue
        yield part
        part = []


def check_typed(words: list[str], targets: set[str]) -> None:
    """Fail unless the command works: a make target must exist, and a `parley` command line must parse."""
    program, *arguments = [word for word in words if not re.match(r"[A-Z_]+=", word)] or ["export"]
    if program == "docker" and "parley" in arguments[3:]:
        program, *arguments = arguments[arguments.index("parley", 3) :]
        if arguments[:1] == ["parley"]:
            arguments = arguments[1:]
    name = Path(program).name
    assert name in PROGRAMS, program
    if name == "make":
        assert {word for word in arguments if "=" not in word} <= targets
    if name == "parley" and not {"--help", "--version"} & set(arguments):
        build_parser().parse_args(arguments)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_documented_commands_exist(page: Path) -> None:
    targets = set(re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M))
    for words in typed(page):
        check_typed(words, targets)


def test_the_map_for_contributors_leads_to_files_that_exist() -> None:
    named = re.findall(r"`([\w.]+/[\w./-]*)`", (ROOT / "CONTRIBUTING.md").read_text("utf-8"))
    assert len(named) > 20
    assert [path for path in named if not (ROOT / path).exists()] == []


def test_public_ci_runs_what_decides() -> None:
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text("utf-8"))
    steps = workflow["jobs"]["test"]["steps"]
    assert [step["run"] for step in steps if "CI" in step.get("env", {})] == [".ci/run"]
    assert os.access(ROOT / ".ci/run", os.X_OK)


@pytest.mark.parametrize("form", ["bug", "feature"])
def test_forms_for_issues_ask_what_is_needed(form: str) -> None:
    content = yaml.safe_load((ROOT / f".github/ISSUE_TEMPLATE/{form}.yml").read_text("utf-8"))
    questions = {part["id"]: part for part in content["body"] if part["type"] != "markdown"}
    assert len(questions) == len([p for p in content["body"] if p["type"] != "markdown"])
    assert any(question.get("validations", {}).get("required") for question in questions.values())


def test_the_readme_starts_with_pictures_and_ways_to_start() -> None:
    text = README.read_text("utf-8")
    pictures = re.findall(r"\(docs/pictures/([a-z]+)\.(?:svg|png)\)", text)
    assert pictures == ["slack", "telegram", "feishu", "console", "terminal"]
    screen = "\n".join(text.splitlines()[:30])
    for start in (
        "docs/pictures/console.png",
        "$ make run",
        "uv tool install",
        "docker compose up",
    ):
        assert start in screen
    assert text.index("## Commands") < text.index("## How it is built") < text.index("## Compared")


def test_the_readme_names_the_commands_and_the_five_folders() -> None:
    text = README.read_text("utf-8")
    assert "$ make test" in text
    section = text.partition("## How it is built")[2].partition("\n## ")[0]
    assert [row[0] for row in rows(section)] == [
        f"`{name}/`" for name in ("bots", "bus", "gateway", "agent", "store")
    ]
    commands = re.findall(r"^\| `parley (\w+)[^`]*` \|", text, re.M)
    assert len(commands) > 5
    assert set(commands) <= set(PROGRAM_COMMANDS)


def transcript() -> tuple[list[str], str]:
    """Return the person's messages in the first tutorial, and the answers."""
    text = "\n".join(blocks(FIRST_CHAT, "text")[1:])
    said = re.findall(r"^you> (.*)$", text, re.M)
    return said, bare(re.sub(r"^you> .*\n", "", text, flags=re.M))


def bare(text: str) -> str:
    """Return a chat without the parts that differ between machines."""
    text = re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "ID", text)
    return re.sub(r"\n+", "\n", re.sub(r"/\S+(?=/terminal/)", "HOME", text)).strip()


async def test_the_chat_in_the_first_tutorial_is_the_demos(tmp_path: Path) -> None:
    said, answers = transcript()
    assert bare(await chat(tmp_path, said)) == answers


async def chat(folder: Path, said: list[str]) -> str:
    """Return the output of `parley chat` for these lines, without a running service."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = folder / "config.yaml"
    config.write_text(f"gateway: {{port: {port}}}", "utf-8")
    with anyio.fail_after(150):
        done = await anyio.run_process(
            [sys.executable, "-m", "gateway", "chat", "--config", str(config)],
            input="".join(f"{line}\n" for line in said).encode(),
            cwd=folder,
            env={
                "PARLEY_HOME": str(folder / "home"),
                "PYTHONPATH": str(ROOT),
                "PYTHONSAFEPATH": "1",
            },
        )
    return done.stdout.decode()
