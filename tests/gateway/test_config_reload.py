"""Changes of the configuration file while the service runs."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from agent.factory import AgentFactory, open_agent_factory
from agent.services import AgentSetup
from gateway.config import Config, load_config
from gateway.config_reload import ConfigReloader

FIRST = "models: [{name: a, use: agent.models.demo:DemoChatModel, model: a}]\n"
SECOND = "models: [{name: b, use: agent.models.demo:DemoChatModel, model: b}]\n"


@dataclass
class ReloadHarness:
    """A configuration file that is watched."""

    file: Path
    agents: AgentFactory
    reload: ConfigReloader
    applied: list[Config] = field(default_factory=list)

    async def write(self, text: str) -> None:
        self.file.write_text(text)
        await self.reload.check()

    @property
    def names(self) -> list[str]:
        return [model.name for model in self.agents.services.config.get().chat_models]


@asynccontextmanager
async def watched(
    folder: Path, environ: dict[str, str] | None = None
) -> AsyncIterator[ReloadHarness]:
    file = folder / "config.yaml"
    file.write_text(FIRST)
    variables = {"PARLEY_HOME": str(folder / "home"), **(environ or {})}
    config = load_config(str(file), variables)
    applied: list[Config] = []
    async with open_agent_factory(AgentSetup(config=config.agent, home=config.home)) as agents:
        reload = ConfigReloader(config, agents, on_applied=applied.append, overrides={})
        yield ReloadHarness(file, agents, reload, applied)


async def test_a_changed_model_holds_for_later_runs_and_those_under_way_keep_theirs(
    tmp_path: Path,
) -> None:
    async with watched(tmp_path) as site:
        before = await site.agents.graph_for({})
        await site.write(SECOND)
        assert site.names == ["b"]
        assert await site.agents.graph_for({}) is not before
        state = await before.ainvoke(
            {"messages": [("user", "hello")]}, {"configurable": {"thread_id": "t"}}
        )
        assert state["messages"][-1].text


async def test_the_same_content_changes_nothing(tmp_path: Path) -> None:
    async with watched(tmp_path) as site:
        await site.write(FIRST)
        assert site.applied == []


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("models: [", "config.yaml: line"),
        ("models: [{name: x, model: y}]", "models[0].use: is missing"),
        ("tools: [{name: x, group: g, use: 'no_such:thing'}]", "Could not import module no_such"),
        ("models: [{name: b, use: m:C, model: b, api_key: $NOT_SET}]", "NOT_SET"),
    ],
)
async def test_an_invalid_file_changes_nothing_and_is_reported_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, text: str, told: str
) -> None:
    async with watched(tmp_path) as site:
        await site.write(text)
        await site.reload.check()
        assert site.names == ["a"]
        assert caplog.text.count("the changed configuration is ignored") == 1
        assert told in caplog.text
        await site.write(SECOND)
        assert site.names == ["b"]


async def test_misspelled_keys_are_warnings(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with watched(tmp_path) as site:
        await site.write(SECOND.replace("name: b", "name: b, delay: 0") + "\ntitel: {}\n")
        assert site.names == ["b"]
    assert (
        "models[0].delay: unknown key, not an argument of DemoChatModel; did you mean"
        in caplog.text
    )
    assert "titel: unknown key, ignored" in caplog.text


async def test_a_file_that_is_gone_for_a_moment_is_waited_for(tmp_path: Path) -> None:
    async with watched(tmp_path) as site:
        site.file.unlink()
        await site.reload.check()
        assert site.names == ["a"]
        await site.write(SECOND)
        assert site.names == ["b"]


async def test_settings_that_need_a_restart_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with watched(tmp_path) as site:
        await site.write(
            f"{SECOND}gateway: {{port: 9999}}\nchannels: {{max_queue: 3}}\nlog_level: debug\n"
        )
        assert site.names == ["b"]
        assert "take effect after a restart: channels, gateway" in caplog.text
        assert site.applied[0].log_level == "debug"


async def test_new_secrets_are_hidden_and_former_ones_stay_hidden(tmp_path: Path) -> None:
    async with watched(tmp_path) as site:
        for secret in ("secret-one", "secret-two"):
            await site.write(
                f"models: [{{name: m, use: agent.models.demo:DemoChatModel, model: m, api_key: {secret}}}]"
            )
        assert {"secret-one", "secret-two"} <= site.applied[-1].secrets
