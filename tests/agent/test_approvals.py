"""Tool calls that wait for a person: the interrupt, the answers to it, and calls that must run only once."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AnyMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.types import Command

from agent.config import AgentConfig, GuardrailsConfig
from agent.guardrails.protocol import (
    GuardrailDecision,
    GuardrailRequest,
    allow,
    ask_for_approval,
    deny,
)
from agent.middleware.guardrails import guardrail_middleware
from agent.middleware.skills_in_use import approves
from agent.paths import OUTPUTS, SKILLS
from agent.skills.manifest import parse_manifest
from tests.agent.agent_harness import AgentHarness, open_agent
from tests.agent.plain_agent import THREAD
from tests.agent.test_skills import put
from tests.fakes.model import ModelReply, ToolCall
from tests.fakes.scripted import ScriptedChatModel

HERE = __name__
APPROVE = {"decisions": [{"type": "approve"}]}
REJECT = {"decisions": [{"type": "reject", "message": "not on a Friday"}]}
CONFIG: RunnableConfig = {"configurable": {"thread_id": THREAD}, "recursion_limit": 100}


class ScriptedProvider:
    """Decides by the file's name: `ask-*` needs a person's approval, `no-*` is denied."""

    name = "judge"

    def evaluate(self, request: GuardrailRequest) -> GuardrailDecision:
        path = str(request.tool_input.get("path", ""))
        if "no-" in path:
            return deny("judge.no", "never")
        return ask_for_approval("it writes a file.") if "ask-" in path else allow()

    async def aevaluate(self, request: GuardrailRequest) -> GuardrailDecision:
        return self.evaluate(request)


class ApprovalThread:
    """The agent of a harness in one thread, and the interrupts it waits for."""

    def __init__(self, harness: AgentHarness) -> None:
        self.home = harness
        self.interrupts: tuple[Any, ...] = ()

    async def go(self, given: object, **context: object) -> list[AnyMessage]:
        graph = await self.home.factory.graph_for(CONFIG)
        state = await graph.ainvoke(
            given, CONFIG, context={"thread_id": THREAD, **context}, durability="sync"
        )
        self.interrupts = tuple(state.get("__interrupt__", ()))
        messages: list[AnyMessage] = state["messages"]
        return messages

    async def say(self, text: str) -> list[AnyMessage]:
        return await self.go({"messages": [HumanMessage(text)]})

    async def resume(self, *answers: object) -> list[AnyMessage]:
        pairs = zip(self.interrupts, answers, strict=False)
        return await self.go(Command(resume={one.id: answer for one, answer in pairs}))

    def files(self) -> list[str]:
        return sorted(file.name for file in self.home.folders().outputs.glob("*"))


def guarded(*ask: str, use: str = "") -> dict[str, Any]:
    section: dict[str, Any] = {"enabled": True, "ask": list(ask)}
    return {"guardrails": section | ({"provider": {"use": use}} if use else {})}


def write(name: str, call_id: str = "c1") -> ToolCall:
    args = {"path": f"{OUTPUTS}/{name}", "content": "hi"}
    return ToolCall(name="write_file", args=args, id=call_id)


def append(call_id: str) -> ToolCall:
    args = {"path": f"{OUTPUTS}/log.txt", "content": "x", "append": True}
    return ToolCall(name="write_file", args=args, id=call_id)


def model(*calls: ToolCall) -> ScriptedChatModel:
    return ScriptedChatModel.playing(ModelReply(text="Let me.", calls=calls), "I see.")


def results(messages: Sequence[AnyMessage]) -> dict[str, str]:
    return {m.tool_call_id: m.text for m in messages if isinstance(m, ToolMessage)}


async def test_a_call_waits_until_a_person_approves_it(tmp_path: Path) -> None:
    async with open_agent(tmp_path, model(write("a.txt")), guarded("write_*")) as harness:
        agent = ApprovalThread(harness)
        await agent.say("write it")
        (asked,) = agent.interrupts
        assert agent.files() == []
        args = {"path": f"{OUTPUTS}/a.txt", "content": "hi"}
        [action] = asked.value["action_requests"]
        assert (action["name"], action["args"]) == ("write_file", args)
        assert action["description"]
        review = {"action_name": "write_file", "allowed_decisions": ["approve", "reject"]}
        assert asked.value["review_configs"] == [review]
        messages = await agent.resume(APPROVE)
        assert agent.files() == ["a.txt"]
        assert messages[-1].text == "I see."


async def test_a_call_that_is_rejected_is_not_made_and_the_run_goes_on(tmp_path: Path) -> None:
    async with open_agent(tmp_path, model(write("a.txt")), guarded("*")) as harness:
        agent = ApprovalThread(harness)
        await agent.say("write it")
        messages = await agent.resume(REJECT)
        assert agent.files() == []
        assert messages[-1].text == "I see."
        told = results(messages)["c1"]
        assert "did not approve" in told
        assert "not on a Friday" in told


@pytest.mark.parametrize(
    "answer", [None, "", "yes", True, {}, {"decisions": []}, {"type": "edit"}, [1, 2]]
)
async def test_malformed_decisions_approve_nothing(tmp_path: Path, answer: object) -> None:
    async with open_agent(tmp_path, model(write("a.txt")), guarded("write_file")) as harness:
        agent = ApprovalThread(harness)
        await agent.say("write it")
        messages = await agent.resume(answer)
        assert agent.files() == []
        assert "did not approve" in results(messages)["c1"]


async def test_calls_beside_each_other_are_decided_one_by_one_and_run_once(tmp_path: Path) -> None:
    free = ToolCall(name="ls", args={"path": OUTPUTS}, id="free")
    calls = model(append("c1"), append("c2"), free, append("c3"))
    async with open_agent(tmp_path, calls, guarded("write_file")) as harness:
        agent = ApprovalThread(harness)
        await agent.say("write them")
        assert len(agent.interrupts) == 3
        first = agent.interrupts
        await agent.resume(APPROVE)
        # The approved call ran; the others still wait.
        assert {one.id for one in agent.interrupts} == {one.id for one in first[1:]}
        messages = await agent.resume(REJECT, APPROVE)
        told = results(messages)
        assert len(agent.interrupts) == 0
        assert "did not approve" in told["c2"]
        assert (harness.folders().outputs / "log.txt").read_text() == "xx"
        assert len([m for m in messages if isinstance(m, ToolMessage)]) == 4


async def test_a_provider_may_leave_it_to_a_person(tmp_path: Path) -> None:
    calls = model(write("ask-1", "ask"), write("no-1", "no"), write("free-1", "free"))
    async with open_agent(tmp_path, calls, guarded(use=f"{HERE}:ScriptedProvider")) as harness:
        agent = ApprovalThread(harness)
        await agent.say("write them")
        (asked,) = agent.interrupts
        assert asked.value["action_requests"][0]["description"] == "it writes a file."
        assert agent.files() == ["free-1"]
        told = results(await agent.resume(APPROVE))
        assert agent.files() == ["ask-1", "free-1"]
        assert "Guardrail denied" in told["no"]


async def test_calls_that_the_guardrail_denies_are_not_offered_for_approval(tmp_path: Path) -> None:
    async with open_agent(
        tmp_path, model(write("no-1")), guarded("*", use=f"{HERE}:ScriptedProvider")
    ) as harness:
        agent = ApprovalThread(harness)
        messages = await agent.say("write it")
        assert agent.interrupts == ()
        assert "judge.no" in results(messages)["c1"]


async def test_another_message_instead_of_an_answer_makes_no_call(tmp_path: Path) -> None:
    async with open_agent(tmp_path, model(write("a.txt")), guarded("write_file")) as harness:
        agent = ApprovalThread(harness)
        await agent.say("write it")
        messages = await agent.say("forget it")
        assert agent.files() == []
        assert messages[-1].text == "I see."


async def test_a_subagents_question_fails_with_a_reason(tmp_path: Path) -> None:
    link = guardrail_middleware(
        GuardrailsConfig(enabled=True, ask=["write_file"]), None, is_subagent=True
    )
    assert link is not None
    args = {"description": "write", "prompt": "write it", "subagent_type": "general-purpose"}
    lead = ScriptedChatModel.playing(
        ModelReply(calls=(ToolCall(name="task", args=args, id="t"),)),
        ModelReply(calls=(write("a.txt"),)),
        "It needs approval.",
        "Done.",
    )
    async with open_agent(tmp_path, lead, guarded("write_file")) as harness:
        agent = ApprovalThread(harness)
        messages = await harness.say("delegate", subagent_enabled=True)
        assert messages[-1].text == "Done."
        assert agent.files() == []
    assert any("a subagent cannot ask" in m.text for prompt in lead.prompts for m in prompt)


def test_ask_alone_is_a_guardrail() -> None:
    config = AgentConfig.model_validate(guarded("bash")).guardrails
    assert guardrail_middleware(config, None) is not None
    assert guardrail_middleware(GuardrailsConfig(), None) is None


# --- calls that a skill approves ------------------------------------------------------------------------------------


def skill_reading(call_id: str = "read") -> ToolCall:
    args = {"path": f"{SKILLS}/custom/notes/SKILL.md"}
    return ToolCall(name="read_file", args=args, id=call_id)


def put_skill(home: Path, grants: str) -> None:
    put(home / "skills" / "custom" / "notes", "notes", f"allowed-tools: {grants}")


async def test_a_skill_in_use_approves_its_tools_until_the_next_message(tmp_path: Path) -> None:
    put_skill(tmp_path, "Write Read")
    script = ScriptedChatModel.playing(
        ModelReply(calls=(write("a.txt", "first"),)),  # before the skill is read: needs approval
        ModelReply(calls=(skill_reading(), write("b.txt", "beside"))),  # same step: also asked
        ModelReply(calls=(write("c.txt", "later"),)),
        "Done.",
        ModelReply(calls=(write("d.txt", "next"),)),  # after the next message: needs approval again
    )
    async with open_agent(tmp_path, script, guarded("write_file")) as harness:
        agent = ApprovalThread(harness)
        await agent.say("go")
        assert len(agent.interrupts) == 1
        await agent.resume(APPROVE)
        assert len(agent.interrupts) == 1
        messages = await agent.resume(APPROVE)
        assert messages[-1].text == "Done."
        assert agent.files() == ["a.txt", "b.txt", "c.txt"]
        await agent.say("and again")
        assert len(agent.interrupts) == 1


async def test_a_skill_that_could_not_be_read_approves_nothing(tmp_path: Path) -> None:
    put_skill(tmp_path, "Write")
    path = f"{SKILLS}/custom/notes/SKILL.md"
    reading = ToolCall(name="read_file", args={"path": path, "start_line": "many"}, id="read")
    script = ScriptedChatModel.playing(
        ModelReply(calls=(reading,)), ModelReply(calls=(write("a.txt"),)), "Done."
    )
    async with open_agent(tmp_path, script, guarded("write_file")) as harness:
        agent = ApprovalThread(harness)
        await agent.say("go")
        assert len(agent.interrupts) == 1


async def test_a_provider_still_decides_about_what_a_skill_approves(tmp_path: Path) -> None:
    put_skill(tmp_path, "Write")
    script = ScriptedChatModel.playing(
        ModelReply(calls=(skill_reading(),)),
        ModelReply(calls=(write("no-a.txt", "denied"), write("ask-b.txt", "asked"))),
    )
    config = guarded("write_file", use=f"{HERE}:ScriptedProvider")
    async with open_agent(tmp_path, script, config) as harness:
        agent = ApprovalThread(harness)
        await agent.say("go")
        (asked,) = agent.interrupts
        assert asked.value["action_requests"][0]["args"]["path"].endswith("ask-b.txt")
        assert agent.files() == []


@pytest.mark.parametrize(
    ("grants", "command", "is_approved"),
    [
        ("Bash", "rm -r x", True),
        ("Bash(git:*)", "git status", True),
        ("Bash(git:*)", "git", True),
        ("Bash(git *)", "git log --oneline | git shortlog", True),
        ("Bash(git add *)", "git add a b && git add 'c d'", True),
        ("Bash(npm test)", "npm test", True),
        ("Bash(* --version)", "python3 --version", True),
        ("Bash(npm test)", "npm test x", False),
        ("Bash(git:*)", "gitx status", False),
        ("Bash(git:*)", "git status; rm -r x", False),
        ("Bash(git:*)", "git status & rm x", False),
        ("Bash(git:*)", "git status\nrm x", False),
        ("Bash(git:*)", "(git status) || rm x", False),
        ("Bash(git:*)", "git log $(rm x)", False),
        ("Bash(git:*)", "git log `rm x`", False),
        ("Bash(git:*)", "git log > /mnt/user-data/outputs/x", False),
        ("Bash(git:*)", "git log <(rm x)", False),
        ("Bash(git:*)", "PATH=. git log", False),
        ("Bash(git:*)", "git log 'rm x", False),
        ("Bash(git:*)", "if git log; then rm x; fi", False),
        ("Bash(git:*)", "", False),
        ("Read(src:*) ls", "ls", False),
    ],
)
def test_a_pattern_approves_only_commands_of_its_kind(
    grants: str, command: str, *, is_approved: bool
) -> None:
    head = f"---\nname: a\ndescription: b\nallowed-tools: {grants}\n---\n"
    parsed = parse_manifest(head).allowed_tools
    assert approves(parsed, "bash", {"command": command}) is is_approved


def test_a_pattern_of_another_tool_approves_nothing() -> None:
    parsed = parse_manifest("---\nname: a\ndescription: b\nallowed-tools: Write(src/**)\n---\n")
    assert not approves(parsed.allowed_tools, "write_file", {"path": "src/a"})
