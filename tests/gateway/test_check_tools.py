"""`parley check` names tools, agents and containers that cannot be used as they are configured."""

from pathlib import Path

import pytest

from gateway.commands.check import find_config_problems
from gateway.config import load_config


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            'tools: [{name: web_fetch, group: web, use: "agent.tools.web:fetch_page", timout: 3}]',
            "tools: web_fetch: a web tool has no key 'timout'",
        ),
        (
            'tools: [{name: web_search, group: web, use: "agent.tools.web:no_such"}]',
            "tools[0].use: Module agent.tools.web has no attribute 'no_such'",
        ),
        (
            "acp_agents: {helper: {command: no-such-program}}",
            "acp_agents.helper.command: the program no-such-program is not installed here",
        ),
        (
            "sandbox: {use: docker, docker: {command: no-such-docker}}",
            "docker needs the program no-such-docker, which is not installed",
        ),
        ('tools: [{name: web_fetch, group: web, use: "agent.tools.web:fetch_page"}]', None),
        ("acp_agents: {helper: {command: sh}}", None),
        ("sandbox: {use: docker, docker: {command: sh}}", None),
    ],
)
def test_what_cannot_be_used_is_named(tmp_path: Path, text: str, told: str | None) -> None:
    (tmp_path / "config.yaml").write_text(text, "utf-8")
    config = load_config(str(tmp_path / "config.yaml"), {"PARLEY_HOME": str(tmp_path / "home")})
    problems = list(find_config_problems(config))
    assert len(problems) == (told is not None)
    assert told is None or told in problems[0]
