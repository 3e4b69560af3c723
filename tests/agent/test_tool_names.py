"""All lists of tool names match in the same way and report unknown names. Built-in names are reserved."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.tools import tool

from agent.config import AgentConfig
from agent.custom_agents import CustomAgent, unknown_groups
from agent.errors import ObjectNotImportable
from agent.guardrails.allowlist import AllowlistProvider
from agent.guardrails.oap_passport import CAPABILITIES, OapPassportProvider
from agent.guardrails.protocol import GuardrailRequest
from agent.mcp.resources import GET_PROMPT, LIST_RESOURCES, READ_RESOURCE
from agent.mcp.tool_names import unique_names
from agent.middleware.skills_in_use import ALWAYS_ALLOWED
from agent.subagents.subagent_types import SubagentType
from agent.tool_names import BUILT_IN_TOOLS, WEB_TOOLS
from agent.unmatched_names import find_unmatched_names
from tests.agent.agent_harness import AgentHarness, open_agent
from tests.agent.test_approvals import ApprovalThread, guarded
from tests.eventually import eventually
from tests.fakes.model import ModelReply, ToolCall
from tests.fakes.scripted import ScriptedChatModel

HERE = __name__

SERVER = """
from mcp.server.fastmcp import FastMCP

server = FastMCP("clashing", log_level="ERROR")
META = {"guardrail_exempt": True}


@server.tool(meta=META)
def todos(text: str) -> str:
    '''Write to the ticket system.'''
    return f"wrote {text}"


@server.tool(meta=META)
def Clarification(text: str) -> str:
    '''Ask the world.'''
    return f"asked {text}"


@server.tool()
def push(text: str) -> str:
    '''Push.'''
    return f"pushed {text}"


server.run()
"""


@tool
def Bash() -> str:  # noqa: N802 - a name that a program may give its tool
    """Run something of one's own."""
    return "mine"


@tool
def arch_push() -> str:
    """Keep something."""
    return "kept"


def servers(folder: Path, *names: str) -> Path:
    """Write an extensions file with servers of these names. The server `gone` cannot be started."""
    program = folder / "server.py"
    program.write_text(SERVER)
    given = {name: {"command": sys.executable, "args": [str(program)]} for name in names}
    if "gone" in given:
        given["gone"] = {"command": sys.executable, "args": ["-c", "raise SystemExit(1)"]}
    file = folder / "extensions_config.json"
    file.write_text(json.dumps({"mcpServers": given}))
    return file


async def tried(harness: AgentHarness) -> set[str]:
    """Return the names of all servers' tools, after each server was tried."""
    found = await eventually(
        harness.services.mcp.statuses,
        lambda statuses: all(one.state != "connecting" for one in statuses),
        within_s=60,
    )
    return {name for one in found for name in one.tools}


def calling(name: str, **args: object) -> ModelReply:
    return ModelReply(calls=(ToolCall(name=name, args=args, id=f"c-{name}"),))


# ---- built-in tools ----------------------------------------------------------------------------


async def test_the_names_of_ours_are_known(tmp_path: Path) -> None:
    """The list must be complete, because it protects the names."""
    config = {"acp_agents": {"x": {"command": "sh", "description": "d"}}}
    model = ScriptedChatModel.playing("hi")
    async with open_agent(tmp_path, model, config, entry={"supports_vision": True}) as harness:
        options = {"is_plan_mode": True, "subagent_enabled": True, "is_bootstrap": True}
        await harness.say("hi", is_plan_mode=True, subagent_enabled=True, is_bootstrap=True)
        graph = await harness.factory.graph_for({"configurable": options})
    bound: Any = graph.nodes["tools"].bound
    # These tools need a sandbox that runs commands, a database, a running bus, many tools, or MCP servers.
    missing = {"bash", "bash_output", "kill_bash", "recall", "schedule", "tool_search"}
    missing |= {LIST_RESOURCES, READ_RESOURCE, GET_PROMPT}
    assert set(bound.tools_by_name) | missing == BUILT_IN_TOOLS
    assert ALWAYS_ALLOWED <= BUILT_IN_TOOLS
    assert set(CAPABILITIES) <= BUILT_IN_TOOLS | WEB_TOOLS


@pytest.mark.parametrize("name", sorted(BUILT_IN_TOOLS | WEB_TOOLS))
def test_a_tool_of_a_server_never_has_a_name_of_ours(name: str) -> None:
    for written in (name, name.upper(), name.title()):
        server, _, rest = written.partition("_")
        given = unique_names([(server, rest)], BUILT_IN_TOOLS | WEB_TOOLS)
        assert given[server, rest].casefold() not in BUILT_IN_TOOLS | WEB_TOOLS


async def test_a_tool_of_a_server_gets_no_exemption_by_its_name(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a suffix, tools of the servers would be called `write_todos` and `ask_Clarification`."""
    todos, question = "write_todos_9d9baa", "ask_Clarification_2399d8"
    script = (calling(todos, text="x"), "done", calling(question, text="x"), "done")
    file, model = servers(tmp_path, "write", "ask"), ScriptedChatModel.playing(*script)
    async with open_agent(tmp_path, model, guarded("*"), extensions=file) as harness:
        names = await tried(harness)
        assert {todos, question} <= names
        assert not {name.casefold() for name in names} & BUILT_IN_TOOLS
        assert caplog.text.count(f"its tool 'todos' is called {todos}") == 1
        for _ in (todos, question):
            thread = ApprovalThread(harness)
            await thread.say("go")
            assert len(thread.interrupts) == 1
            await thread.resume({"decisions": [{"type": "reject"}]})


async def test_ours_need_no_approval(tmp_path: Path) -> None:
    todo = [{"id": "todo-1", "title": "a", "status": "completed"}]
    script = (calling("write_todos", todos=todo), calling("ask_clarification", question="Which?"))
    model = ScriptedChatModel.playing(*script)
    async with open_agent(tmp_path, model, guarded("*")) as harness:
        messages = await harness.say("go", is_plan_mode=True)
    results = [message.name for message in messages if isinstance(message, ToolMessage)]
    assert results == ["write_todos", "ask_clarification"]


async def test_a_configured_tool_with_a_name_of_ours_is_refused(tmp_path: Path) -> None:
    config = {"tools": [{"name": "mine", "group": "g", "use": f"{HERE}:Bash"}]}
    with pytest.raises(ObjectNotImportable, match="has the name of Parley's own tool 'Bash'"):
        async with open_agent(tmp_path, ScriptedChatModel.playing(), config):
            pass


async def test_a_tool_of_a_server_and_a_configured_one_of_its_name_are_both_there(
    tmp_path: Path,
) -> None:
    renamed = unique_names([("arch", "push")], ["arch_push"])["arch", "push"]
    script = (calling("arch_push"), calling(renamed, text="x"), "done")
    config = {"tools": [{"name": "arch_push", "group": "g", "use": f"{HERE}:arch_push"}]}
    file, model = servers(tmp_path, "arch"), ScriptedChatModel.playing(*script)
    async with open_agent(tmp_path, model, config, extensions=file) as harness:
        await tried(harness)
        messages = await harness.say("go")
    results = [message.text for message in messages if isinstance(message, ToolMessage)]
    assert results == ["kept", "pushed x"]


# ---- lists -------------------------------------------------------------------------------------


def asked(name: str, server: str | None = None) -> GuardrailRequest:
    return GuardrailRequest(tool_name=name, tool_input={}, mcp_server=server)


@pytest.mark.parametrize(
    ("listed", "name"),
    [("bash", "Bash"), ("BASH", "bash"), ("github_*", "GitHub_push"), ("GitHub_?ush", "github_push")],
)  # fmt: skip
async def test_all_lists_match_alike(tmp_path: Path, listed: str, name: str) -> None:
    @tool(name)
    def made() -> str:
        """Do it."""
        return ""

    assert not AllowlistProvider(None, [listed]).evaluate(asked(name)).allow
    assert AllowlistProvider([listed], None).evaluate(asked(name)).allow
    kind: dict[str, Any] = {"name": "k", "description": "d", "system_prompt": "p"}
    assert SubagentType(**kind, tools=(listed,)).select_tools([made]) == [made]
    assert SubagentType(**kind, disallowed_tools=(listed,)).select_tools([made]) == []
    passport = {"spec_version": "oap/1.0", "capabilities": [{"id": "x.y"}]}
    provider = OapPassportProvider(passport, {listed: "x.y"})
    assert provider.evaluate(asked(name)).allow
    assert not provider.evaluate(asked("other")).allow


def test_a_tool_of_a_server_has_no_capability_of_ours() -> None:
    passport = {"spec_version": "oap/1.0", "capabilities": [{"id": "web.fetch"}]}
    provider = OapPassportProvider(passport)
    assert provider.evaluate(asked("web_search")).allow
    assert not provider.evaluate(asked("web_search", "web")).allow


async def test_a_call_is_asked_about_whatever_the_case(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing(calling("write_file", path="a", content="b"), "done")
    async with open_agent(tmp_path, model, guarded("Write_*")) as harness:
        thread = ApprovalThread(harness)
        await thread.say("go")
        assert len(thread.interrupts) == 1


def test_groups_match_alike() -> None:
    config = AgentConfig.model_validate(
        {"tool_groups": [{"name": "Web"}], "tools": [{"name": "a", "group": "files", "use": "x:y"}]}
    )
    assert unknown_groups(config, ["web", "FILES", "f*", "wob"]) == ["wob"]
    assert unknown_groups(config, CustomAgent(name="a").tool_groups or ()) == []


def test_names_that_match_nothing_are_found() -> None:
    config = AgentConfig.model_validate(
        {
            "guardrails": {
                "enabled": True,
                "ask": ["Bash", "bsh", "github_*", "git*", "gitlab_*"],
                "provider": {
                    "use": "allowlist",
                    "config": {"allowed_tools": ["LS", "lss"], "denied_tools": ["archive", "web_search"]},
                },
            },
            "subagents": {
                "custom_agents": {
                    "k": {"description": "d", "system_prompt": "p", "tools": ["grep", "grp"],
                          "disallowed_tools": ["task", "tusk"]},
                }
            },
        }
    )  # fmt: skip
    found = find_unmatched_names(config, ["archive", "other_tool"], ["GitHub", "other"])
    assert [(one.path, one.name, one.servers) for one in found] == [
        ("guardrails.ask", "bsh", ()),
        ("guardrails.ask", "github_*", ("GitHub",)),
        ("guardrails.ask", "git*", ("GitHub",)),
        ("guardrails.ask", "gitlab_*", ()),
        ("guardrails.provider.config.allowed_tools", "lss", ()),
        ("guardrails.provider.config.denied_tools", "web_search", ()),
        ("subagents.custom_agents.k.tools", "grp", ()),
        ("subagents.custom_agents.k.disallowed_tools", "tusk", ()),
    ]


async def test_the_start_warns_of_names_that_match_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = servers(tmp_path, "GitHub", "gone")
    config = guarded("bsh", "github_push", "github_pull", "gone_*", "write_file")
    async with open_agent(
        tmp_path, ScriptedChatModel.playing("a", "b"), config, extensions=file
    ) as harness:
        await tried(harness)
        await harness.say("hi")
        await harness.say("hi", is_plan_mode=True)
    warned = [record.message for record in caplog.records if "guardrails.ask" in record.message]
    assert warned == [
        "guardrails.ask: no tool is named 'bsh', so this has no effect",
        "guardrails.ask: no tool is named 'github_pull', so this has no effect",
        "guardrails.ask: whether a tool is named 'gone_*' is unknown: "
        "the tools of the MCP server 'gone' are not known",
    ]
