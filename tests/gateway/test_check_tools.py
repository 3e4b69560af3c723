"""`parley check` names tools, agents and containers that cannot be used as configured."""

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway.checks.configuration import find_config_problems
from gateway.config import load_config
from tests.eventually import eventually
from tests.gateway.test_cli import ROOT, parley
from tests.journeys.service import serving


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
            'tools: [{name: web_search, group: web, use: "agent.tools.web:tavily_search"}]',
            "tools[0].api_key: web_search needs the key of its service: set it",
        ),
        (
            "acp_agents: {helper: {command: no-such-program}}",
            "acp_agents.helper.command: the program no-such-program is not installed here",
        ),
        (
            "sandbox: {use: docker, docker: {command: no-such-docker}}",
            "docker needs the program no-such-docker, which is not installed",
        ),
        (
            "sandbox: {mounts: [{host_path: /no/such/folder, container_path: /mnt/data}]}",
            "sandbox.mounts[0]: /mnt/data is not mounted: host_path is not a folder",
        ),
        (
            "channels: {telegram: {enabled: true, bot_token: '1:a', mode: webhook,"
            " webhook_url: 'http://bot.example/webhooks/telegram', webhook_secret: abcdefghijklmnopqrst}}",
            "channels.telegram.webhook_url must begin with https://",
        ),
        (
            "channels: {telegram: {enabled: true, bot_token: '1:a', mode: webhook,"
            " webhook_url: 'https://bot.example/webhooks/telegram', webhook_secret: short}}",
            "channels.telegram.webhook_secret is not set, or not 16 to 256 letters",
        ),
        (
            "channels: {telegram: {enabled: true}}",
            "channels.telegram.bot_token is not set: set the missing keys, or set channels.telegram.enabled to false",
        ),
        ('tools: [{name: web_fetch, group: web, use: "agent.tools.web:fetch_page"}]', None),
        ("acp_agents: {helper: {command: sh}}", None),
        ("sandbox: {use: docker, docker: {command: sh}}", None),
    ],
)
def test_unusable_tools_are_named(tmp_path: Path, text: str, told: str | None) -> None:
    (tmp_path / "config.yaml").write_text(text, "utf-8")
    config = load_config(str(tmp_path / "config.yaml"), {"PARLEY_HOME": str(tmp_path / "home")})
    problems = list(find_config_problems(config))
    assert len(problems) == (told is not None)
    assert told is None or told in problems[0]


SLACK = "channels: {slack: {enabled: true, bot_token: BOT, app_token: APP}}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "channels: {session: {assistant_id: lead_agnet}}",
            "channels.session.assistant_id: there is no assistant 'lead_agnet'; did you mean 'lead_agent'?",
        ),
        (
            "channels: {terminal: {session: {users: {'7': {context: {model_name: dmo}}}}}}",
            "channels.terminal.session.users.7.context.model_name: there is no model 'dmo'; did you mean 'demo'?",
        ),
        (
            "gateway: {required_channels: [terminl]}",
            "gateway.required_channels: there is no enabled channel 'terminl'; did you mean 'terminal'?",
        ),
        (
            "channels: {terminal: {models: [demo, dmo]}}",
            "channels.terminal.models: there is no model 'dmo'; did you mean 'demo'?",
        ),
        (
            "channels: {terminal: {agents: [nobody]}}",
            "channels.terminal.agents: there is no agent 'nobody'",
        ),
        ("channels: {terminal: {models: [demo], agents: []}}", None),
        ("gateway: {required_channels: [slack]}", "there is no enabled channel 'slack'"),
        ("gateway: {required_channels: [terminal]}", None),
        (
            "channels: {session: {context: {agent_name: nobody}}}",
            "agent_name: there is no agent 'nobody': create it, for example in a chat with /bootstrap",
        ),
        (
            "channels: {session: {context: {thinking_enable: true}}}",
            "channels.session.context.thinking_enable: unknown key; did you mean `thinking_enabled`?",
        ),
        (
            SLACK.replace("BOT", "xapp-1-secret").replace("APP", "xapp-1-secret"),
            "channels.slack.bot_token: is an app-level token (xapp-...), not a bot token (xoxb-...)",
        ),
        (
            SLACK.replace("BOT", "xoxb-1-secret").replace("APP", "xoxb-1-secret"),
            "channels.slack.app_token: is a bot token (xoxb-...), not an app-level token (xapp-...)",
        ),
        (
            "channels: {telegram: {enabled: true, bot_token: xoxb-1-secret}}",
            "channels.telegram.bot_token: is a bot token (xoxb-...)",
        ),
        (
            "channels: {telegram: {enabled: true, bot_token: 'bot1:secret'}}",
            "channels.telegram.bot_token: is not a bot token from @BotFather (123456789:...)",
        ),
        (
            "channels: {telegram: {enabled: true, bot_token: '1:secret', allowed_users: ['@bob', 7]}}",
            "channels.telegram.allowed_users: '@bob' is not a user ID such as 123456789",
        ),
        (
            SLACK.replace("BOT", "xoxb-1-secret").replace("APP", "xapp-1, admin_users: [bob, U7]"),
            "channels.slack.admin_users: 'bob' is not a user ID such as U012AB3CD",
        ),
        (
            "models: [{name: gpt, use: 'langchain_openai:ChatOpenAI', model: gpt-5}]",
            "models[0].api_key: the model gpt has no key: set it, or OPENAI_API_KEY",
        ),
        (
            "{models: [{name: own, use: 'langchain_openai:ChatOpenAI', model: gpt-5, api_key: k,"
            " base_url: 'http://127.0.0.1:8000/v1'}], usage: {limits: {person: {cost_per_day: 1}}}}",
            "models[0].price: the model own has no known price",
        ),
        (
            "{tool_groups: [{name: web}], tools: [{name: web_fetch, group: wob, use: 'agent.tools.web:fetch_page'}]}",
            "tools[0].group: there is no tool group 'wob'; did you mean 'web'?",
        ),
        (
            "guardrails: {enabled: true, ask: [Bsh]}",
            "guardrails.ask: no tool is named 'Bsh', so this has no effect; did you mean 'bash'?",
        ),
        (
            "guardrails: {enabled: true, provider: {use: allowlist, config: {denied_tools: ['github_*']}}}",
            "guardrails.provider.config.denied_tools: no tool is named 'github_*', so this has no effect",
        ),
        (
            "subagents: {custom_agents: {k: {description: d, system_prompt: p, tools: [grp]}}}",
            "subagents.custom_agents.k.tools: no tool is named 'grp', so this has no effect; did you mean",
        ),
        ("guardrails: {enabled: true, ask: [BASH, 'Write_*', '*'], fail_closed: true}", None),
        (
            "{tool_groups: [{name: Web}], tools: [{name: web_fetch, group: web, use: 'agent.tools.web:fetch_page'}]}",
            None,
        ),
        ("channels: {langgraph_url: 'http://other', session: {assistant_id: theirs}}", None),
        ("channels: {session: {assistant_id: fe096781-5601-53d2-b2f6-0d3403f7e9ca}}", None),
        (SLACK.replace("BOT", "xoxb-1-secret").replace("APP", "xapp-1-secret"), None),
        ("models: [{name: g, use: 'langchain_openai:ChatOpenAI', model: m, api_key: k}]", None),
    ],
)
def test_references_and_credentials_are_checked(
    tmp_path: Path, text: str, expected: str | None
) -> None:
    (tmp_path / "config.yaml").write_text(text, "utf-8")
    config = load_config(str(tmp_path / "config.yaml"), {"PARLEY_HOME": str(tmp_path / "home")})
    problems = list(find_config_problems(config))
    assert [bool(expected and expected in line) for line in problems] == [True] * bool(expected), (
        problems
    )
    assert "secret" not in "".join(problems)


EXPIRED = {"spec_version": "oap/1.0", "expires_at": "2020-01-01T00:00:00Z"}
SUSPENDED = {"spec_version": "oap/1.0", "status": "suspended"}
LASTING = {"spec_version": "oap/1.0", "expires_at": "2199-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    ("passport", "told"),
    [
        (EXPIRED, "expired at 2020-01-01 00:00:00+00:00, so every tool call is denied"),
        (SUSPENDED, "has the status 'suspended', so every tool call is denied"),
        (LASTING, None),
    ],
)
async def test_a_passport_that_denies_everything_is_reported(
    tmp_path: Path, passport: dict[str, str], told: str | None
) -> None:
    """`check`, `doctor` and `serve` report it in one line."""
    file = tmp_path / "passport.json"
    file.write_text(json.dumps(passport))
    guard = {"enabled": True, "passport": str(file), "provider": {"use": "oap"}}
    async with serving(tmp_path, {"guardrails": guard}) as service:
        # The report is written after the service answers for the first time.
        outputs = [await eventually(service.log.read_text, lambda text: (told or "") in text)]
        for command in (["check"], ["doctor", "--no-model"]):
            code, out, errors = await service.command(*command)
            assert code == (1 if told else 0)
            outputs.append(out + errors)
    for output in outputs:
        lines = [line for line in output.splitlines() if "guardrails: " in line]
        assert [f"the passport {file} {told}" in line for line in lines] == [True] * bool(told)


def test_a_custom_agent_can_be_an_assistant(tmp_path: Path) -> None:
    agent = tmp_path / "home" / "agents" / "code-reviewer"
    agent.mkdir(parents=True)
    (agent / "config.yaml").write_text("description: Reviews code.")
    (agent / "SOUL.md").write_text("Be kind.")
    text = (
        "channels: {session: {assistant_id: code_reviewer, context: {agent_name: code-reviewer}}}"
    )
    (tmp_path / "config.yaml").write_text(text)
    config = load_config(str(tmp_path / "config.yaml"), {"PARLEY_HOME": str(tmp_path / "home")})
    assert list(find_config_problems(config)) == []


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("sandbox: {use: local, allow_host_bash: true}", "can run any command on this machine"),
        ("gateway: {admin_token: nineteen-characters}", "fewer than 20 characters"),
        (
            "channels: {telegram: {enabled: true, bot_token: '1:a', dm_policy: allowlist}}",
            "nobody gets answers in private",
        ),
        ("sandbox: {use: local}", None),
        ("gateway: {admin_token: twenty-characters-ok}", None),
    ],
)
def test_risky_settings_are_pointed_out(tmp_path: Path, text: str, hint: str | None) -> None:
    code, out, _ = parley(tmp_path, "check", "--json", config=text)
    warnings = [line for line in json.loads(out)["warnings"] if "No chat platform" not in line]
    assert code == 0
    assert [hint in line for line in warnings] == ([True] if hint else []), warnings


def test_a_tool_that_only_a_server_can_have_is_a_warning(tmp_path: Path) -> None:
    """The server does not work, so its tools are unknown."""
    command = {"command": "sh", "args": ["-c", "exit 1"]}
    servers = {"GitHub": command, "off": {**command, "enabled": False}}
    (tmp_path / "extensions_config.json").write_text(json.dumps({"mcpServers": servers}))
    text = "guardrails: {enabled: true, ask: ['github_*', off_push, bash, gitlab_push]}"
    code, out, _ = parley(tmp_path, "check", "--json", config=text)
    report = json.loads(out)
    assert code == 1
    assert ["gitlab_push" in line for line in report["problems"]] == [True, False]
    assert report["problems"][1] == "MCP server GitHub: it ended before it responded"
    unknown = [line for line in report["warnings"] if "guardrails.ask" in line]
    assert ["github_*" in unknown[0], "off_push" in unknown[1], len(unknown)] == [True, True, 2]
    assert "the tools of the MCP server 'GitHub' are not known" in unknown[0]


def test_all_problems_are_reported_in_one_round(tmp_path: Path) -> None:
    text = """
models: [{name: big, use: "no_such_package:Chat", model: m}]
channels: {session: {assistant_id: lead_agnet}, telegram: {enabled: true, bot_token: $NO_SUCH_TOKEN}}
"""
    code, out, err = parley(tmp_path, "check", config=text)
    assert code == 2
    for part in ("NO_SUCH_TOKEN", "no_such_package", "lead_agnet"):
        assert sum(part in line for line in err.splitlines()) == 1, part
    code, out, err = parley(tmp_path, "check", "--json", config=text)
    report = json.loads(out)
    assert (code, err, report["healthy"], len(report["problems"])) == (2, "", False, 3)
    code, out, _ = parley(tmp_path, "check", "--json", config="{}")
    assert (code, json.loads(out)["problems"]) == (0, [])


WRONG_EVERYWHERE = """
log_level: loud
models:
  - {name: a, use: "langchain_openai:ChatOpenAl", model: x, api_key: $NO_SUCH_KEY}
  - {name: a, use: "agent.models.demo:DemoChatModel", model: x, supports_vision: perhaps}
title: {model_name: nobody, max_chars: many}
memory: often
guardrails: {ask: [bash]}
subagents: {agents: {basch: {}, genral: {}}}
tool_groups: [{name: web}]
tools: [{name: web_fetch, group: wob, use: "agent.tools.web:fetch_page"}]
sandbox: {mounts: [{host_path: /no/such/folder, container_path: /mnt/docs}]}
gateway: {port: 99999, auth: none, host: 0.0.0.0, required_channels: [slack, telgram]}
database: {url: "mysql://elsewhere"}
channels:
  max_concurrent_runs: many
  session: {assistant_id: lead_agnet, context: {model_name: a}}
  slack: {enabled: ture, bot_token: xapp-1, app_token: xoxb-1}
  telegram: {enabled: true, bot_token: xoxb-1, dm_policy: everyone, allowed_users: [bob]}
  second: {platform: telegram, enabled: true, bot_token: xapp-1, group_policy: everyone}
"""
SEEN_AT_ONCE = """
log_level: must be
models[0].api_key: the environment variable NO_SUCH_KEY
models[0].use: ChatOpenAl
models[1].supports_vision: must be
title.max_chars: must be
memory: must be a section
guardrails: ask has no effect
subagents: agents: there is no subagent type named 'basch'
subagents: agents: there is no subagent type named 'genral'
tools[0].group: there is no tool group 'wob'
sandbox.mounts[0]: /mnt/docs is not mounted
gateway.port: must be
gateway.required_channels: there is no enabled channel 'telgram'
gateway.auth: `none` would open
database.url: must look like
channels.max_concurrent_runs: must be
channels.session.assistant_id: there is no assistant
channels.slack.enabled: must be
channels.telegram.bot_token: is a bot token
channels.telegram.dm_policy: must be
channels.telegram.allowed_users: 'bob'
channels.second.bot_token: is an app-level token
channels.second.group_policy: must be
"""


def test_invalid_keys_hide_no_other_problem(tmp_path: Path) -> None:
    code, out, _ = parley(tmp_path, "check", "--json", config=WRONG_EVERYWHERE)
    problems = json.loads(out)["problems"]
    assert code == 2
    for line in SEEN_AT_ONCE.split("\n")[1:-1]:
        key, _, words = line.partition(": ")
        found = [one for one in problems if f" {key}: " in one and words in one]
        assert len(found) == 1, (line, problems)
    assert len(problems) == len(SEEN_AT_ONCE.split("\n")[1:-1]), problems


@contextmanager
def small_disk(folder: Path, options: str) -> Iterator[None]:
    """Mount a file system at a folder. Skip the test where that is not allowed."""
    folder.mkdir(exist_ok=True)
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=True)
    except subprocess.CalledProcessError:
        pytest.skip("mounting is not allowed here")
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk")
@pytest.mark.parametrize(
    ("options", "problem", "warning"),
    [
        ("size=40m", "0.0 GB free: too little for the journal", None),
        ("size=4g,nr_inodes=50", "only 49 free inodes", None),
        ("size=4g,ro", "the data folder is not writable", None),
        ("size=300m", None, "below sandbox.min_free_disk_mb"),
        ("size=4g", None, None),
    ],
)
def test_the_disk_of_the_data_folder_is_checked(
    tmp_path: Path, options: str, problem: str | None, warning: str | None
) -> None:
    with small_disk(tmp_path / "disk", options):
        home = str(tmp_path / "disk" / "home")
        code, out, _ = parley(tmp_path, "check", "--json", config="{}", PARLEY_HOME=home)
    report = json.loads(out)
    assert code == (1 if problem else 0)
    assert [problem in line for line in report["problems"]] == [True] * bool(problem), report
    warnings = [line for line in report["warnings"] if "No chat platform" not in line]
    assert [warning in line for line in warnings] == [True] * bool(warning), report


def test_a_sandbox_that_cannot_be_built_is_a_problem(tmp_path: Path) -> None:
    code, out, _ = parley(tmp_path, "check", "--json", config="sandbox: {use: 'json:dumps'}")
    (problem,) = json.loads(out)["problems"]
    assert (code, "json:dumps cannot be built" in problem) == (1, True)


def test_the_policies_of_each_channel_are_shown(tmp_path: Path) -> None:
    text = """
channels:
  telegram: {enabled: true, bot_token: "1:literal"}
  support: {platform: telegram, enabled: true, bot_token: "2:literal", external_policy: open, dm_policy: open}
"""
    code, out, _ = parley(tmp_path, "check", config=text)
    assert code == 0
    lines = {line.split()[0]: line for line in out.splitlines() if line.strip()}
    assert lines["telegram"].endswith(
        "on; private chats: pairing, groups: pairing, people from outside: deny"
    )
    assert lines["support"].endswith(
        "on; private chats: open, groups: pairing, people from outside: open"
    )


@pytest.mark.parametrize("limit", ["0", "-1", "1001", "many"])
def test_the_number_of_threads_to_list_is_checked(tmp_path: Path, limit: str) -> None:
    code, _, err = parley(tmp_path, "threads", f"--limit={limit}")
    assert code == 2
    assert "must be a number from 1 to 1000" in err


def test_a_tracing_package_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "langfuse.py").write_text("")  # shadows the package, which is installed for the tests
    (tmp_path / ".env").write_text(
        "LANGFUSE_TRACING=true\nLANGFUSE_PUBLIC_KEY=pk-lf-1\nLANGFUSE_SECRET_KEY=sk-lf-1\n"
    )
    code, _, told = parley(tmp_path, "check", config="", PYTHONPATH=f"{other}:{ROOT}")
    assert code == 1
    assert "LANGFUSE_TRACING: Module langfuse has no attribute 'Langfuse'" in told
