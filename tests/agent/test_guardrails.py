"""Guardrails: providers, the middleware, and provider failures."""

import json
import threading
from pathlib import Path
from typing import Any

import anyio
import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt
from pydantic import ValidationError
from typing_extensions import override

from agent.config import AgentConfig, GuardrailsConfig
from agent.errors import GuardrailUnusable
from agent.guardrails.allowlist import AllowlistProvider
from agent.guardrails.factory import FRAMEWORK, build_guardrail_provider
from agent.guardrails.oap_limits import first_words
from agent.guardrails.oap_passport import OapPassportProvider
from agent.guardrails.protocol import GuardrailDecision, GuardrailReason, GuardrailRequest
from agent.middleware.guardrails import GuardrailMiddleware, guardrail_middleware
from agent.middleware.tool_errors import ToolErrorMiddleware
from agent.paths import OUTPUTS
from tests.agent.agent_harness import AgentHarness, open_agent
from tests.agent.plain_agent import THREAD
from tests.fakes.model import ModelReply, ToolCall
from tests.fakes.scripted import ScriptedChatModel

HERE = __name__


class RecordingProvider:
    """Returns the decision it was built with, and records the requests."""

    name = "recording"
    asked: list[GuardrailRequest]

    def __init__(self, allow: object = True, *, framework: str = "", passport: str = "") -> None:
        self.asked = []
        self.given = (framework, passport)
        self._allow = allow

    def evaluate(self, request: GuardrailRequest) -> GuardrailDecision:
        self.asked.append(request)
        return GuardrailDecision(allow=self._allow)  # type: ignore[arg-type]

    async def aevaluate(self, request: GuardrailRequest) -> GuardrailDecision:
        return self.evaluate(request)


class FailingProvider(RecordingProvider):
    """Raises the given error, or hangs."""

    def __init__(self, error: BaseException | None = None) -> None:
        super().__init__()
        self._error = error
        self.released = threading.Event()

    @override
    def evaluate(self, request: GuardrailRequest) -> GuardrailDecision:
        if self._error is None:
            self.released.wait(20)
            raise AssertionError("released")
        raise self._error

    @override
    async def aevaluate(self, request: GuardrailRequest) -> GuardrailDecision:
        if self._error is None:
            await anyio.sleep_forever()
        return self.evaluate(request)


class AskingProvider(RecordingProvider):
    """Leaves the decision to a person."""

    @override
    async def aevaluate(self, request: GuardrailRequest) -> GuardrailDecision:
        return GuardrailDecision(allow=interrupt({"may": request.tool_name}) == "yes")


class ThirdPartyProvider:
    """A third-party provider that uses no class of ours, not even for its decisions."""

    name = "plain"

    class Decision:
        allow = False
        reasons = (GuardrailReason("plain.no", "because"),)
        policy_id = "p1"

    def evaluate(self, request: object) -> Decision:
        return self.Decision()

    async def aevaluate(self, request: object) -> Decision:
        return self.Decision()


class NamelessProvider:
    """Not a valid provider: it has no name."""

    def evaluate(self, request: object) -> None: ...


def refuse(**_: object) -> None:
    raise TypeError("hush-hush")


def section(use: str, config: object = None, **more: object) -> dict[str, Any]:
    """A `guardrails` section that is switched on."""
    return {"enabled": True, "provider": {"use": use, "config": config}, **more}


def configured(use: str = "allowlist", **more: object) -> GuardrailsConfig:
    return GuardrailsConfig.model_validate(section(use, **more))


def asked(
    name: str = "bash", server: str | None = None, *, is_exempt: bool = False, **args: object
) -> GuardrailRequest:
    return GuardrailRequest(
        tool_name=name, tool_input=args, run_id="r1", mcp_server=server, is_exempt=is_exempt
    )


def code_of(decision: GuardrailDecision) -> str:
    return decision.reasons[0].code


# ---- the whole agent ---------------------------------------------------------------------------


def writing() -> ScriptedChatModel:
    call = ToolCall(name="write_file", args={"path": f"{OUTPUTS}/a.txt", "content": "hi"}, id="c1")
    return ScriptedChatModel.playing(ModelReply(calls=(call,)), "I see.")


def answer_of(messages: list[AnyMessage]) -> ToolMessage:
    (found,) = [message for message in messages if isinstance(message, ToolMessage)]
    return found


def is_written(harness: AgentHarness) -> bool:
    return (harness.folders().outputs / "a.txt").exists()


async def test_a_denied_tool_never_runs_and_the_run_goes_on(tmp_path: Path) -> None:
    guard = section("allowlist", {"allowed_tools": ["ls"]})
    async with open_agent(tmp_path, writing(), {"guardrails": guard}) as harness:
        messages = await harness.say("write it")
        told = answer_of(messages)
        assert told.status == "error"
        assert told.content == (
            "Guardrail denied: tool 'write_file' was blocked (oap.tool_not_allowed). "
            "Reason: tool 'write_file' is not in the allowlist. Choose an alternative approach."
        )
        assert (told.tool_call_id, told.name) == ("c1", "write_file")
        assert messages[-1].text == "I see."
        assert not is_written(harness)


async def test_an_allowed_tool_runs(tmp_path: Path) -> None:
    guard = section("allowlist", {"allowed_tools": ["write_file"]})
    async with open_agent(tmp_path, writing(), {"guardrails": guard}) as harness:
        assert answer_of(await harness.say("write it")).status == "success"
        assert is_written(harness)


@pytest.mark.parametrize(
    ("config", "name", "is_exempt", "allowed"),
    [
        ({"allowed_tools": ["ls"]}, "recall", True, True),
        ({"allowed_tools": []}, "tool_search", True, True),
        ({"denied_tools": ["recall"]}, "recall", True, False),
        ({"allowed_tools": ["ls"]}, "tool_search", False, False),
        ({"allowed_tools": ["Bash"]}, "bash_output", False, True),
        ({"allowed_tools": ["ls"]}, "kill_bash", False, False),
    ],
)
def test_an_allowlist_leaves_the_tools_that_others_need(
    config: dict[str, list[str]], name: str, *, is_exempt: bool, allowed: bool
) -> None:
    asked = GuardrailRequest(tool_name=name, tool_input={}, is_exempt=is_exempt)
    assert AllowlistProvider(**config).evaluate(asked).allow is allowed


async def test_configuration_changes_apply_to_the_next_run(tmp_path: Path) -> None:
    model = writing()
    async with open_agent(tmp_path, model) as harness:
        old = harness.services.config.get()
        guard = section("allowlist", {"allowed_tools": []})
        await harness.factory.replace_config(
            old.model_copy(update={"guardrails": configured(**guard["provider"])})
        )
        assert answer_of(await harness.say("write it")).status == "error"
        assert not is_written(harness)


async def test_a_passport_guards_the_whole_agent(tmp_path: Path) -> None:
    file = tmp_path / "passport.json"
    file.write_text(json.dumps(passport("data.file.read")))
    guard = section("oap", passport=str(file))
    async with open_agent(tmp_path, writing(), {"guardrails": guard}) as harness:
        told = answer_of(await harness.say("write it"))
        assert "(oap.tool_not_allowed)" in told.text
        assert "data.file.write" in told.text
        assert str(tmp_path) not in told.text


@pytest.mark.parametrize(
    ("guard", "text"),
    [
        (section("nowhere:Class"), "guardrails.provider.use: Could not import module nowhere"),
        (section("allow"), "is not of the form module:name"),
        (section("json:decoder"), "json:decoder is not a class"),
        (section("allowlist", {"allow": ["ls"]}), "unexpected keyword argument 'allow'"),
        (section("allowlist", {"allowed_tools": "ls"}), "allowed_tools must be a list"),
        (section("allowlist", {"denied_tools": [1]}), "denied_tools must be a list"),
        (section("oap"), "set guardrails.passport"),
        (section("oap", passport="/no/such/file"), "guardrails.passport: there is no file /no/such/file"),
        (section("oap", passport="{"), "the passport is not JSON"),
        (section("oap", passport='{"spec_version": "v2"}'), "spec_version"),
        (section("oap", passport='{"spec_version": "oap/1.0", "limits": {"x": {"rate": 1}}}'), "unknown limit 'rate'"),
        (section(f"{HERE}:NamelessProvider"), "has no aevaluate and no name"),
        (section(f"{HERE}:refuse", {"key": "hush-hush"}), "cannot be built with it (TypeError)"),
    ],
)  # fmt: skip
async def test_configuration_errors_are_one_line(
    tmp_path: Path, guard: dict[str, Any], text: str
) -> None:
    with pytest.raises(GuardrailUnusable) as caught:
        async with open_agent(tmp_path, writing(), {"guardrails": guard}):
            pass
    said = caught.value.user_message
    assert text in said
    assert said.startswith("guardrails")
    assert "\n" not in said
    assert "hush-hush" not in said


@pytest.mark.parametrize(
    ("guard", "text"),
    [
        ({"enabled": True}, "provider.use is not set"),
        ({"ask": ["bash"]}, "ask has no effect without enabled: true"),
        ({"enabled": False, "ask": ["bash"]}, "ask has no effect without enabled: true"),
        ({"provider": {"config": {}}}, "guardrails.provider.use"),
        ({"timeout_seconds": 0}, "guardrails.timeout_seconds"),
        ({"timeout_seconds": float("nan")}, "guardrails.timeout_seconds"),
        ({"timeout_seconds": float("inf")}, "guardrails.timeout_seconds"),
    ],
)
def test_invalid_sections_are_rejected(guard: object, text: str) -> None:
    with pytest.raises(ValidationError) as caught:
        AgentConfig.model_validate({"guardrails": guard})
    assert text in str(caught.value)


def test_no_provider_unless_enabled() -> None:
    config = GuardrailsConfig.model_validate({"provider": {"use": "nowhere:Class"}})
    assert build_guardrail_provider(config) is None
    assert guardrail_middleware(config, None) is None
    assert guardrail_middleware(config, AllowlistProvider()) is None


def test_classes_receive_only_their_parameters() -> None:
    made = build_guardrail_provider(configured(f"{HERE}:RecordingProvider", passport="agent-7"))
    assert isinstance(made, RecordingProvider)
    assert made.given == (FRAMEWORK, "agent-7")
    own = configured(f"{HERE}:RecordingProvider", config={"framework": "own"})
    again = build_guardrail_provider(own)
    assert isinstance(again, RecordingProvider)
    assert again.given == ("own", "")
    assert isinstance(
        build_guardrail_provider(configured(f"{HERE}:ThirdPartyProvider")), ThirdPartyProvider
    )


# ---- the middleware ----------------------------------------------------------------------------


@tool
def touch(name: str) -> str:
    """Do something."""
    if name == "raise":
        raise ValueError("it broke")
    return f"touched {name}"


def agent(provider: Any, *calls: ToolCall, **more: object) -> Any:  # noqa: ANN401 - a graph
    """Return a graph whose model makes guarded calls of `touch`. The guardrails run outside the error handling."""
    model = ScriptedChatModel.playing(ModelReply(calls=calls or (call("x"),)), "done")
    settings = GuardrailsConfig.model_validate(section("allowlist", **more))
    links = [GuardrailMiddleware(settings, provider, is_subagent=True), ToolErrorMiddleware()]
    return create_agent(model, [touch], middleware=links, checkpointer=InMemorySaver())


def call(name: str, tool_name: str = "touch") -> ToolCall:
    return ToolCall(name=tool_name, args={"name": name}, id=f"c-{name}")


async def run(graph: Any) -> list[ToolMessage]:  # noqa: ANN401 - a graph
    config = {"configurable": {"thread_id": THREAD, "user_id": "slack:T:U", "run_id": "r1"}}
    given = {"messages": [HumanMessage("go")]}
    state = await graph.ainvoke(given, config)
    assert isinstance(state["messages"][-1], AIMessage)
    return [message for message in state["messages"] if isinstance(message, ToolMessage)]


async def test_guardrail_request_fields() -> None:
    provider = RecordingProvider()
    (told,) = await run(agent(provider, passport="agent-7"))
    assert told.text == "touched x"
    (request,) = provider.asked
    assert (request.tool_name, request.tool_input) == ("touch", {"name": "x"})
    assert (request.agent_id, request.is_subagent) == ("agent-7", True)
    assert (request.thread_id, request.user_id, request.run_id) == (THREAD, "slack:T:U", "r1")
    assert request.tool_call_id == "c-x"
    assert request.timestamp.endswith("+00:00")


@pytest.mark.parametrize(
    ("provider", "reason"),
    [
        (RecordingProvider(allow=False), "(oap.denied). Reason: blocked by guardrail policy."),
        (
            RecordingProvider(allow="yes"),
            "(oap.evaluator_error). Reason: the guardrail could not decide",
        ),
        (RecordingProvider(allow=None), "(oap.evaluator_error)"),
        (FailingProvider(RuntimeError("hush-hush")), "(oap.evaluator_error)"),
        (
            ThirdPartyProvider(),
            "was blocked (plain.no). Reason: because. Choose an alternative approach.",
        ),
    ],
)
async def test_denied_calls_do_not_run(
    provider: Any,  # noqa: ANN401 - anything of the right shape
    reason: str,
) -> None:
    (told,) = await run(agent(provider))
    assert told.status == "error"
    assert reason in told.text
    assert "hush-hush" not in told.text


async def test_a_provider_that_hangs_denies_and_the_run_goes_on() -> None:
    provider = FailingProvider()
    with anyio.fail_after(20):
        (told,) = await run(agent(provider, timeout_seconds=0.05))
    provider.released.set()
    assert "(oap.evaluator_error)" in told.text


@pytest.mark.parametrize(
    "provider",
    [FailingProvider(RuntimeError("x")), FailingProvider(), RecordingProvider(allow=None)],
)
async def test_failing_open_is_a_choice(provider: Any) -> None:  # noqa: ANN401 - as above
    (told,) = await run(agent(provider, fail_closed=False, timeout_seconds=0.05))
    assert told.text == "touched x"


async def test_failing_open_does_not_open_what_is_denied() -> None:
    (told,) = await run(agent(RecordingProvider(allow=False), fail_closed=False))
    assert told.status == "error"


async def test_errors_of_allowed_tools_are_tool_errors() -> None:
    (told,) = await run(agent(RecordingProvider(), call("raise")))
    assert told.text.startswith("Error: Tool 'touch' failed with ValueError")


async def test_parallel_calls_are_decided_separately() -> None:
    provider = AllowlistProvider(denied_tools=["other"])
    graph = agent(provider, call("a"), call("b", "other"), call("c"))
    told = {message.tool_call_id: message.status for message in await run(graph)}
    assert told == {"c-a": "success", "c-b": "error", "c-c": "success"}


@pytest.mark.parametrize(("answer", "text"), [("yes", "touched x"), ("no", "(oap.denied)")])
async def test_a_person_may_decide(answer: str, text: str) -> None:
    graph = agent(AskingProvider())
    config = {"configurable": {"thread_id": THREAD}}
    stopped = await graph.ainvoke({"messages": [HumanMessage("go")]}, config)
    assert stopped["__interrupt__"][0].value == {"may": "touch"}
    state = await graph.ainvoke(Command(resume=answer), config)
    assert text in answer_of(state["messages"]).text


# ---- by name -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("allowed", "denied", "name", "is_allowed"),
    [
        (None, None, "bash", True),
        (None, [], "bash", True),
        ([], None, "bash", False),
        ([], [], "", False),
        (["bash"], None, "bash", True),
        (["bash"], None, "Bash", True),
        (["ba*"], None, "Bash", True),
        (None, ["BA?H"], "bash", False),
        (["*"], None, "", False),
        (["bash"], None, "", False),
        (["", "bash"], None, "", False),
        (["bash"], ["bash"], "bash", False),
        (None, ["bash"], "bash", False),
        (None, ["bash"], "ls", True),
        (("ls",), None, "ls", True),
    ],
)
def test_tools_by_name(
    allowed: list[str] | None, denied: list[str] | None, name: str, *, is_allowed: bool
) -> None:
    decision = AllowlistProvider(allowed, denied).evaluate(asked(name))
    assert decision.allow is is_allowed
    assert code_of(decision) == ("oap.allowed" if is_allowed else "oap.tool_not_allowed")


# ---- by passport -------------------------------------------------------------------------------


def passport(*capabilities: str, limits: object = None, **more: object) -> dict[str, Any]:
    return {
        "spec_version": "oap/1.0",
        "status": "active",
        "capabilities": [{"id": name} for name in capabilities],
        "limits": limits or {},
        **more,
    }


SHELL = "system.command.execute"


@pytest.mark.parametrize(
    ("granted", "request_", "is_allowed"),
    [
        ([SHELL], asked("bash"), True),
        (["bash"], asked("bash"), True),
        ([], asked("bash"), False),
        ([SHELL], asked("read_file"), False),
        (["data.file.read"], asked("grep"), True),
        (["data.file.read"], asked("write_file"), False),
        ([], asked("ask_clarification", is_exempt=True), True),
        ([], asked("ask_clarification"), False),
        ([], asked(""), False),
        ([SHELL], asked("own_tool"), False),
        (["own_tool"], asked("own_tool"), True),
        (["mcp.tool.execute"], asked("gh_issues", server="gh"), True),
        (["mcp.tool.execute"], asked("own_tool"), False),
        (["mcp.tool.execute"], asked("bash"), False),
    ],
)
def test_capabilities(granted: list[str], request_: GuardrailRequest, *, is_allowed: bool) -> None:
    decision = OapPassportProvider(passport(*granted)).evaluate(request_)
    assert decision.allow is is_allowed
    assert code_of(decision) == ("oap.allowed" if is_allowed else "oap.tool_not_allowed")


@pytest.mark.parametrize(
    "more",
    [
        {"status": "suspended"},
        {"status": "revoked"},
        {"status": ""},
        {"expires_at": "2020-01-01T00:00:00Z"},
        {"expires_at": "2020-01-01T00:00:00"},
    ],
)
def test_invalid_passports(more: dict[str, str]) -> None:
    provider = OapPassportProvider(passport(SHELL, **more))
    for name in ("bash", "ask_clarification"):
        assert code_of(provider.evaluate(asked(name))) == "oap.passport_suspended"
    later = OapPassportProvider(passport(SHELL, expires_at="2199-01-01T00:00:00Z"))
    assert later.evaluate(asked()).allow


@pytest.mark.parametrize(
    ("limits", "args", "code"),
    [
        ({"allowed_commands": ["git", "ls"]}, {"command": "git log | ls && git status"}, "oap.allowed"),
        ({"allowed_commands": ["git"]}, {"command": "git log; rm x"}, "oap.command_not_allowed"),
        ({"allowed_commands": ["git"]}, {"command": "git log\nrm x"}, "oap.command_not_allowed"),
        ({"allowed_commands": ["git"]}, {"command": "git $(rm x)"}, "oap.command_not_allowed"),
        ({"allowed_commands": ["git"]}, {"command": "git `rm x`"}, "oap.command_not_allowed"),
        ({"allowed_commands": ["git"]}, {"command": "(rm x)"}, "oap.command_not_allowed"),
        ({"allowed_commands": ["git"]}, {"command": "git 'unclosed"}, "oap.command_not_allowed"),
        ({"allowed_commands": ["git"]}, {"command": ""}, "oap.command_not_allowed"),
        ({"allowed_commands": ["git"]}, {}, "oap.command_not_allowed"),
        ({"allowed_commands": ["git"]}, {"command": "env rm x"}, "oap.command_not_allowed"),
        ({"allowed_commands": ["time"]}, {"command": "time rm x"}, "oap.command_not_allowed"),
        ({"allowed_commands": []}, {"command": "ls"}, "oap.command_not_allowed"),
        ({"allowed_commands": ["*"]}, {"command": "ls $(x)"}, "oap.allowed"),
        ({"allowed_commands": ["make"]}, {"command": "make all 2>&1 > log.txt"}, "oap.allowed"),
        ({"blocked_patterns": ["rm -rf"]}, {"command": "ls; RM   -rf /"}, "oap.blocked_pattern"),
        ({"blocked_patterns": ["rm -rf"]}, {"deep": [{"x": "rm\t-rf"}]}, "oap.blocked_pattern"),
        ({"blocked_patterns": [""]}, {"command": "ls"}, "oap.allowed"),
        ({"max_amount": 100}, {"amount": 100}, "oap.allowed"),
        ({"max_amount": 100}, {"amount": 101}, "oap.limit_exceeded"),
        ({"max_amount": 100}, {"amount": float("nan")}, "oap.limit_exceeded"),
        ({"max_content": 3}, {"content": "abcd"}, "oap.limit_exceeded"),
        ({"max_content": 3}, {}, "oap.allowed"),
    ],
)  # fmt: skip
async def test_limits(limits: object, args: dict[str, Any], code: str) -> None:
    provider = OapPassportProvider(passport(SHELL, limits={SHELL: limits}))
    request = GuardrailRequest(tool_name="bash", tool_input=args)
    assert code_of(provider.evaluate(request)) == code
    assert code_of(await provider.aevaluate(request)) == code


@pytest.mark.parametrize(
    "limit", [{"rate": 1}, {"max_x": "1"}, {"max_x": float("nan")}, {"max_x": True}]
)
def test_unknown_limits_are_rejected(limit: object) -> None:
    with pytest.raises(GuardrailUnusable, match="could not be enforced"):
        OapPassportProvider(passport(SHELL, limits={SHELL: limit}))


def test_calls_are_counted_in_each_run() -> None:
    provider = OapPassportProvider(passport(SHELL, limits={SHELL: {"max_calls_per_run": 2}}))
    codes = [code_of(provider.evaluate(asked())) for _ in range(3)]
    assert codes == ["oap.allowed", "oap.allowed", "oap.limit_exceeded"]
    other = GuardrailRequest(tool_name="bash", tool_input={}, run_id="r2")
    assert provider.evaluate(other).allow


def test_passport_changes_apply_immediately(tmp_path: Path) -> None:
    file = tmp_path / "passport.json"
    file.write_text(json.dumps(passport(SHELL)))
    provider = OapPassportProvider(str(file), {"own": SHELL})
    assert provider.evaluate(asked()).allow
    assert provider.evaluate(asked("own")).allow
    file.write_text(json.dumps(passport(SHELL, status="suspended")))
    assert code_of(provider.evaluate(asked())) == "oap.passport_suspended"
    file.unlink()
    with pytest.raises(GuardrailUnusable):
        provider.evaluate(asked())


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("a && b || c; d & e | f", ["a", "b", "c", "d", "e", "f"]),
        ("X=1 Y=2 a b", ["a"]),
        ("sudo -u x rm", ["sudo", "-u"]),
        ("echo 'a; b' \"c && d\"", ["echo"]),
        ("a >&2 && b &> c", ["a", "b"]),
        ("cat <(ls)", [""]),
    ],
)
def test_first_words(command: str, words: list[str]) -> None:
    assert first_words(command) == words
