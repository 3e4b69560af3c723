"""Models whose servers fail: retries, fallback models, messages to people, and circuit breakers."""

import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import httpx
import openai
import pytest
import yaml
from langchain.agents import create_agent
from langchain.agents.middleware.types import ModelRequest, ModelResponse
from langchain_core.exceptions import ContextOverflowError
from langchain_core.language_models import BaseChatModel, GenericFakeChatModel
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from langgraph.errors import GraphInterrupt
from pydantic import ValidationError

from agent.config import AgentConfig, CircuitBreakerConfig, LlmRetryConfig
from agent.errors import ModelNotFound
from agent.locales.en import ENGLISH
from agent.middleware.llm_retry import LlmRetryMiddleware, fallback_order
from agent.models.circuit_breakers import CircuitBreakers
from agent.models.failures import classify_error, is_fallback
from agent.state import ThreadState
from agent.uploads.images import REJECTED
from tests.agent.agent_harness import open_agent
from tests.eventually import eventually
from tests.fakes.model import FakeModelServer, ModelReply
from tests.fakes.scripted import ScriptedChatModel, registered
from tests.gateway.composed import composed

SECRET = "sk-very-secret"
ASKED: Any = httpx.Request("POST", "http://model.example.org")


def refused(
    status: int, headers: dict[str, str] | None = None, code: str = ""
) -> openai.APIStatusError:
    """Return an error of the OpenAI package whose text quotes a key."""
    response: Any = httpx.Response(status, headers=headers, request=ASKED)
    body = {"code": code, "message": f"bad key {SECRET}"}
    kind = openai.RateLimitError if status == 429 else openai.APIStatusError
    return kind(f"bad key {SECRET} {code}", response=response, body=body)


def unreachable() -> openai.APIConnectionError:
    return openai.APIConnectionError(request=ASKED)


def unreadable() -> ValueError:
    """Return LangChain's error for a call, in an answer that is not streamed, whose arguments are a JSON string."""
    call: Any = {"name": "ls", "args": "{}", "id": "1"}
    with pytest.raises(ValidationError) as caught:
        AIMessage("", tool_calls=[call])
    return caught.value


class RetryHarness:
    """An agent with only this middleware and a test clock. Records its pauses and messages."""

    def __init__(
        self,
        model: BaseChatModel,
        others: dict[str, ScriptedChatModel | None] | None = None,
        *,
        threshold: int = 5,
        **config: object,
    ) -> None:
        self.waited: list[float] = []
        self.events: list[dict[str, Any]] = []
        self.now = 1000.0
        self._others = others or {}
        breaker = CircuitBreakerConfig(failure_threshold=threshold)
        self.breakers = CircuitBreakers(lambda: breaker, lambda: self.now)
        self.link = LlmRetryMiddleware(
            LlmRetryConfig.model_validate(config),
            names=["first", *self._others],
            models=self._model,
            breakers=self.breakers,
            sleep=self._sleep,
        )
        self.graph = create_agent(model, [], middleware=[self.link], state_schema=ThreadState)

    async def _sleep(self, seconds: float) -> None:
        self.waited.append(seconds)

    async def _model(self, name: str | None) -> BaseChatModel:
        model = self._others[name or ""]
        if model is None:
            raise ModelNotFound
        return model

    async def say(self, said: HumanMessage | None = None) -> Any:  # noqa: ANN401 - a message
        """Run one turn and return its last message."""
        last: Any = None
        question: Any = {"messages": [said or HumanMessage("hi")]}
        stream: Any = self.graph.astream(question, stream_mode=["custom", "values"])
        async for mode, chunk in stream:
            if mode == "custom":
                self.events.append(chunk)
            else:
                last = chunk["messages"][-1]
        return last


# ---- classification of errors ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "reason", "retryable"),
    [
        (refused(401), "auth", False),
        (unreadable(), "server", True),
        (refused(403), "auth", False),
        (refused(402), "quota", False),
        (refused(429, code="insufficient_quota"), "quota", False),
        (refused(429), "rate_limit", True),
        (refused(408), "timeout", True),
        (refused(409), "server", True),
        (refused(425), "server", True),
        (refused(500), "server", True),
        (refused(502), "server", True),
        (refused(503), "server", True),
        (refused(504), "server", True),
        (refused(529), "server", True),
        (refused(501), "server", False),
        (refused(400), "request", False),
        (refused(404), "request", False),
        (refused(400, code="context_length_exceeded"), "context", False),
        (refused(400, code="the request exceeds the available context size"), "context", False),
        (refused(400, code="Input is too long for requested model."), "context", False),
        (refused(400, code="The input token count (9) exceeds the maximum"), "context", False),
        (refused(413, code="request_too_large"), "context", False),
        (ContextOverflowError("too long"), "context", False),
        (unreachable(), "connection", True),
        (openai.APITimeoutError(ASKED), "timeout", True),
        (httpx.ReadTimeout("slow"), "timeout", True),
        (httpx.RemoteProtocolError("cut"), "connection", True),
        (ConnectionResetError(), "connection", True),
        (TimeoutError(), "timeout", True),
        (ValueError("No generation chunks were returned"), "server", True),
    ],
)
def test_errors_are_distinguished(error: Exception, reason: str, *, retryable: bool) -> None:
    failure = classify_error(error)
    assert failure is not None
    assert (failure.reason, failure.retryable) == (reason, retryable)
    assert SECRET not in failure.detail
    assert "⚠️" in ENGLISH.model(failure.reason)


@pytest.mark.parametrize("error", [TypeError("x"), KeyError("x"), ValueError("x"), OSError("disk")])
def test_other_errors_are_not_a_model_s(error: Exception) -> None:
    assert classify_error(error) is None


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "7"}, 7),
        ({"Retry-After": "0.5"}, 0.5),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-3"}, None),
        ({"retry-after": "nan"}, None),
        ({}, None),
    ],
)
def test_the_server_s_wish_is_read(headers: dict[str, str], seconds: float | None) -> None:
    failure = classify_error(refused(429, headers))
    assert failure is not None
    assert failure.retry_after_s == seconds


# ---- retries -----------------------------------------------------------------------------------


async def test_a_failing_server_is_retried_and_the_client_notified() -> None:
    rig = RetryHarness(ScriptedChatModel.playing(refused(503), unreachable(), "There."))
    assert (await rig.say()).text == "There."
    assert rig.waited == [1, 2]
    assert [(e["type"], e["attempt"], e["max_attempts"], e["wait_ms"]) for e in rig.events] == [
        ("llm_retry", 1, 3, 1000),
        ("llm_retry", 2, 3, 2000),
    ]
    assert [e["reason"] for e in rig.events] == ["server", "connection"]
    assert SECRET not in str(rig.events)


async def test_pauses_double_up_to_a_bound() -> None:
    rig = RetryHarness(ScriptedChatModel.playing(*[refused(500)] * 5, "At last."), max_attempts=6)
    assert (await rig.say()).text == "At last."
    assert rig.waited == [1, 2, 4, 8, 8]


async def test_the_server_s_wish_comes_first_unless_it_is_too_long() -> None:
    rig = RetryHarness(ScriptedChatModel.playing(refused(429, {"retry-after": "7"}), "There."))
    assert (await rig.say()).text == "There."
    assert rig.waited == [7]
    rig = RetryHarness(ScriptedChatModel.playing(refused(429, {"retry-after": "3600"}), "Never."))
    assert is_fallback(await rig.say())
    assert rig.waited == []


@pytest.mark.parametrize("status", [401, 402, 403, 404])
async def test_permanent_errors_are_not_retried(status: int) -> None:
    model = ScriptedChatModel.playing(refused(status), "Never.")
    rig = RetryHarness(model)
    said = await rig.say()
    assert (len(model.prompts), rig.waited) == (1, [])
    kwargs = said.additional_kwargs
    assert kwargs["error_fallback"] is True
    assert kwargs["error_detail"] == f"HTTP {status}"
    assert SECRET not in said.model_dump_json()


async def test_a_rejected_request_is_repeated_without_its_attachments() -> None:
    picture = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    document = {"type": "file", "base64": "JVBERi0x", "mime_type": "application/pdf"}
    question = HumanMessage([{"type": "text", "text": "What is this?"}, picture, document])
    model = ScriptedChatModel.playing(refused(400), "A damaged picture.")
    rig = RetryHarness(model)
    assert (await rig.say(question)).text == "A damaged picture."
    note = {"type": "text", "text": REJECTED}
    first, second = (prompt[-1].content for prompt in model.prompts)
    assert (first, second) == (question.content, [question.content[0], note, note])
    assert rig.waited == []

    model = ScriptedChatModel.playing(refused(400), refused(400), "Never.")
    assert is_fallback(await RetryHarness(model).say(question))
    model = ScriptedChatModel.playing(refused(401), "Never.")
    assert is_fallback(await RetryHarness(model).say(question))


async def test_the_last_failure_is_described(caplog: pytest.LogCaptureFixture) -> None:
    rig = RetryHarness(ScriptedChatModel.playing(*[refused(500)] * 3, "Never."))
    said = await rig.say()
    assert said.text == ENGLISH.model_server
    assert said.additional_kwargs["error_type"] == "APIStatusError"
    assert said.additional_kwargs["error_reason"] == "server"
    assert "attempt 3 of 3" in caplog.text
    assert SECRET not in caplog.text


async def test_why_a_request_was_rejected_is_logged_for_who_looks_for_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("DEBUG")
    error = refused(400, code="array schema missing items")
    await RetryHarness(ScriptedChatModel.playing(error)).say()
    (record,) = (one for one in caplog.records if "rejected the request" in one.getMessage())
    assert record.levelname == "DEBUG"
    assert "array schema missing items" in record.getMessage()
    assert SECRET not in caplog.text


async def test_errors_of_a_program_and_interrupts_pass() -> None:
    with pytest.raises(TypeError, match="a mistake"):
        await RetryHarness(ScriptedChatModel.playing(TypeError("a mistake"))).say()
    rig = RetryHarness(ScriptedChatModel.playing("Never."))

    async def interrupted(_: ModelRequest[Any]) -> ModelResponse[Any]:
        raise GraphInterrupt

    request: Any = ModelRequest(
        model=ScriptedChatModel.playing(), messages=[], state={"messages": []}, runtime=None
    )
    with pytest.raises(GraphInterrupt):
        await rig.link.awrap_model_call(request, interrupted)


# ---- fallback models ---------------------------------------------------------------------------


async def test_the_next_model_is_the_fallback(caplog: pytest.LogCaptureFixture) -> None:
    first = ScriptedChatModel.playing(*[refused(500)] * 3)
    second = ScriptedChatModel.playing(refused(401))
    third = ScriptedChatModel.playing("Here I am.")
    rig = RetryHarness(first, {"second": second, "gone": None, "third": third})
    assert (await rig.say()).text == "Here I am."
    told = [(e["from"], e["to"], e["reason"]) for e in rig.events if e["type"] == "llm_fallback"]
    assert told == [("first", "second", "server"), ("first", "third", "server")]
    assert "Falling back to model third from first" in caplog.text
    assert "Cannot fall back to model gone" in caplog.text


async def test_if_all_models_fail_the_first_models_error_is_reported() -> None:
    rig = RetryHarness(
        ScriptedChatModel.playing(refused(401)), {"second": ScriptedChatModel.playing(refused(400))}
    )
    assert (await rig.say()).text == ENGLISH.model_auth


def test_the_order_is_that_of_the_configuration() -> None:
    entries = [{"name": n, "use": "x:Y", "model": n} for n in "abc"]
    config = _config(models=entries)
    assert fallback_order(config, "a") == ("a", "b", "c")
    assert fallback_order(config, "c") == ("c",)
    alone = _config(models=entries, llm_retry={"fallback": False})
    assert fallback_order(alone, "a") == ("a",)


async def test_the_whole_agent_goes_on_with_the_next_model(tmp_path: Path) -> None:
    second = ScriptedChatModel.playing("I stand in.")
    with registered(second) as keys:
        config = {"models": [{**keys, "name": "second"}], "llm_retry": {"first_wait_s": 0}}
        first = ScriptedChatModel.playing(*[unreachable()] * 3)
        async with open_agent(tmp_path, first, config) as harness:
            assert (await harness.say("hi"))[-1].text == "I stand in."
    assert len(first.prompts) == 3


# ---- text that was already streamed ------------------------------------------------------------


@asynccontextmanager
async def streamed_run(tmp_path: Path, server: FakeModelServer) -> AsyncIterator[dict[str, Any]]:
    """Run one turn over the API; yield the last message, the ids of streamed messages, and the run's status."""
    config = {"models": [_entry(server)], "llm_retry": {"first_wait_s": 0}}
    async with composed(tmp_path, yaml.safe_dump(config)) as home:
        thread = (await home.client.post("/api/threads", json={})).json()["thread_id"]
        body: dict[str, Any] = {"input": {"messages": [{"role": "human", "content": "go"}]}}
        body |= {"assistant_id": "lead_agent", "stream_mode": ["messages-tuple", "values"]}
        url = f"/api/threads/{thread}"
        stream = (await home.client.post(f"{url}/runs/stream", json=body)).text
        (run,) = (await home.client.get(f"{url}/runs")).json()
        state = (await home.client.get(f"{url}/state")).json()
    messages = state["values"]["messages"]
    yield {"messages": messages, "stream": stream.replace('": "', '":"'), "status": run["status"]}


async def test_a_stream_that_breaks_is_repeated_as_a_new_message(tmp_path: Path) -> None:
    async with FakeModelServer() as server:
        server.reply(ModelReply(text="one two three", drop_after=2), "All is well.")
        async with streamed_run(tmp_path, server) as run:
            last = run["messages"][-1]
    assert [message["content"] for message in run["messages"]] == ["go", "All is well."]
    assert run["status"] == "success"
    assert [request.last_user_text for request in server.requests[:2]] == ["go", "go"]
    chunks = [
        json.loads(line.removeprefix("data: "))[0]
        for line in run["stream"].splitlines()
        if line.startswith("data: [{") and "AIMessageChunk" in line
    ]
    ids = list(dict.fromkeys(chunk["id"] for chunk in chunks))
    assert len(ids) == 2
    assert ids[1] == last["id"]
    final = "".join(chunk["content"] for chunk in chunks if chunk["id"] == last["id"])
    assert final == "All is well."


async def test_if_every_stream_breaks_its_words_stay_under_their_id(tmp_path: Path) -> None:
    async with FakeModelServer() as server:
        server.reply(*[ModelReply(text="one two three", drop_after=2)] * 3, "Never.")
        async with streamed_run(tmp_path, server) as run:
            last = run["messages"][-1]
    assert last["content"] == f"one two\n\n{ENGLISH.model_connection}"
    assert f'"id":"{last["id"]}"' in run["stream"]
    assert (run["status"], len(server.requests)) == ("error", 3)
    assert '"status":"error"' in run["stream"]


async def test_a_stream_that_breaks_before_its_first_token_is_retried(tmp_path: Path) -> None:
    async with FakeModelServer() as server:
        server.reply(ModelReply(text="one two", drop_after=0), "Fine.")
        config = {"models": [_entry(server)], "llm_retry": {"first_wait_s": 0}}
        async with open_agent(tmp_path, ScriptedChatModel.playing(), config) as harness:
            parts = await harness.stream("go", "messages", model_name="fake")
    words = [c[0].text for m, c in parts if m == "messages" and isinstance(c[0], AIMessageChunk)]
    assert "".join(words) == "Fine."
    assert len(server.requests) == 2


# ---- the breaker -------------------------------------------------------------------------------


async def test_a_model_that_keeps_failing_is_left_alone_then_tried_once() -> None:
    model = ScriptedChatModel.playing(*[refused(500)] * 3, "Well again.")
    rig = RetryHarness(model, threshold=2, max_attempts=1)
    for _ in range(2):
        await rig.say()
    assert (await rig.say()).text == ENGLISH.model_circuit_open
    assert len(model.prompts) == 2
    rig.now += 61
    assert (await rig.say()).text == ENGLISH.model_server  # the one trial call
    assert (await rig.say()).text == ENGLISH.model_circuit_open
    rig.now += 61
    assert (await rig.say()).text == "Well again."
    assert (await rig.say()).text == "(done)"


async def test_refusals_and_answers_in_between_do_not_count() -> None:
    script: list[Any] = [
        refused(500),
        "Fine.",
        refused(500),
        refused(401),
        refused(500),
        "Still asked.",
    ]
    rig = RetryHarness(ScriptedChatModel.playing(*script), threshold=2, max_attempts=1)
    said = [(await rig.say()).text for _ in script]
    assert ENGLISH.model_circuit_open not in said
    assert said[-1] == "Still asked."


async def test_only_one_call_tries_and_one_that_is_cancelled_blocks_nobody() -> None:
    rig = RetryHarness(ScriptedChatModel.playing(), threshold=1)
    _fail(rig.breakers)
    with rig.breakers.call("first") as trial:
        assert not trial.allowed
    rig.now += 61
    with contextlib.suppress(KeyboardInterrupt), rig.breakers.call("first") as probe:
        assert probe.allowed
        with rig.breakers.call("first") as beside:
            assert not beside.allowed
        raise KeyboardInterrupt
    with rig.breakers.call("first") as next_one:
        assert next_one.allowed
        next_one.succeeded()
    with rig.breakers.call("first") as after:
        assert after.allowed


def test_a_try_that_is_never_settled_ends_by_itself() -> None:
    now = [0.0]
    breakers = CircuitBreakers(lambda: CircuitBreakerConfig(failure_threshold=1), lambda: now[0])
    _fail(breakers)
    now[0] = 61
    hanging = breakers.call("first")
    assert hanging.__enter__().allowed
    with breakers.call("first") as trial:
        assert not trial.allowed
    now[0] = 122
    with breakers.call("first") as trial:
        assert trial.allowed


def test_no_threshold_means_no_breaker() -> None:
    breakers = CircuitBreakers(lambda: CircuitBreakerConfig(failure_threshold=0))
    for _ in range(20):
        _fail(breakers)
    with breakers.call("first") as trial:
        assert trial.allowed


async def test_a_cancelled_call_ends_at_once() -> None:
    model = ScriptedChatModel.playing()
    model.hold()
    rig = RetryHarness(model)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_until_cancelled, rig.say)
        await eventually(lambda: rig.breakers._breakers)
        tasks.cancel_scope.cancel()
    assert rig.waited == []


async def _until_cancelled(work: Callable[[], Awaitable[object]]) -> None:
    await work()
    raise AssertionError("it was not cancelled")


def _fail(breakers: CircuitBreakers) -> None:
    with breakers.call("first") as trial:
        trial.failed()


def _entry(server: FakeModelServer) -> dict[str, Any]:
    return {
        "name": "fake",
        "use": "langchain_openai:ChatOpenAI",
        "model": "fake",
        "api_key": "test",
        "base_url": server.base_url,
        "max_retries": 0,
    }


def _config(**sections: object) -> AgentConfig:
    return AgentConfig.model_validate(sections)


# ---- failures that count -----------------------------------------------------------------------


async def test_answered_requests_are_counted() -> None:
    harness = RetryHarness(GenericFakeChatModel(messages=iter([AIMessage("fine")])))
    await harness.say()
    assert harness.breakers.requests == {("first", "ok"): 1}
