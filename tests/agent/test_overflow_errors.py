"""A request that is too long is shortened and repeated, however the server words the error."""

from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig

from agent.config import AgentConfig
from agent.factory import open_agent_factory
from agent.models.failures import classify_error
from agent.services import AgentSetup
from tests.fakes.model import FakeModelServer, ModelReply

TEXTS = (
    "This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens.",
    "Your input exceeds the context window of this model. Please adjust your input and try again.",
    "prompt is too long: 213462 tokens > 200000 maximum",
    "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length",
    "request_too_large: Request exceeds the maximum size",
    "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).",
    "Input is too long for requested model.",
    "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
    "too many tokens: total number of tokens in the prompt cannot exceed 128000",
    "<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 129024]",
    "Invalid request: Your request exceeded model token limit: 131072",
    "Prompt 超长",
    "输入内容过长，请缩短后重试",
    "Total tokens of image and text exceed max message tokens. Request id: 0",
    "prompt tokens too long",
    "invalid params, context window exceeds limit (2013)",
    "Please reduce the length of the messages or completion.",
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 8193. Given: 9000 and 512",
    "Input validation error: `inputs` must have less than 4095 tokens. Given: 5000",
    "This endpoint's maximum context length is 131072 tokens. However, you requested about 140000 tokens",
    "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "The decoder prompt (length 9000) is longer than the maximum model length of 8192.",
    "the request exceeds the available context size, try increasing it",
    "The number of tokens to keep from the initial prompt is greater than the context length.",
    "prompt token count of 130000 exceeds the limit of 128000",
    "prompt too long; exceeded max context length by 512 tokens",
    "The input (40000 tokens) is longer than the model's context length (32768 tokens).",
)


class BadRequestError(Exception):
    """Has the name of the error in the packages of OpenAI and Anthropic."""

    status_code = 400


class APIError(BadRequestError):
    """Has the name of their base class."""


@pytest.mark.parametrize("text", TEXTS)
def test_each_form_of_the_error_is_recognized(text: str) -> None:
    failure = classify_error(APIError(text))
    assert failure is not None
    assert failure.reason == "context"


@pytest.mark.parametrize(
    "text",
    [
        "Invalid value for 'temperature'",
        "max_tokens is too large: 200000. This model supports at most 16384 completion tokens",
        "Invalid 'tools': array too long. Expected an array with maximum length 128",
        "string too long. Expected a string with maximum length 256",
    ],
)
def test_other_errors_are_not_taken_for_it(text: str) -> None:
    failure = classify_error(APIError(text))
    assert failure is not None
    assert failure.reason == "request"


def test_a_limit_of_the_rate_is_not_taken_for_it() -> None:
    error = APIError("Too many tokens: the rate limit of your context window is reached")
    error.status_code = 429
    failure = classify_error(error)
    assert failure is not None
    assert failure.reason == "rate_limit"


@pytest.mark.parametrize(
    "use", ["langchain_openai:ChatOpenAI", "langchain_anthropic:ChatAnthropic"]
)
async def test_the_request_is_repeated_by_itself(tmp_path: Path, use: str) -> None:
    async with FakeModelServer() as server:
        url = server.anthropic_url if "anthropic" in use else server.base_url
        entry = {
            "name": "main",
            "use": use,
            "model": "fake",
            "api_key": "k",
            "base_url": url,
            "streaming": True,
        }
        other = {**entry, "name": "other", "model": "other"}
        config = {"models": [entry, other], "memory": {"enabled": False}}
        setup = AgentSetup(config=AgentConfig.model_validate(config), home=tmp_path)
        server.reply(
            ModelReply(status=400, error_code="invalid_request_error", error_text=TEXTS[2]), "Done."
        )
        async with open_agent_factory(setup) as agents:
            run: RunnableConfig = {"configurable": {"thread_id": "t"}}
            graph: Any = await agents.graph_for(run)
            state = await graph.ainvoke({"messages": [HumanMessage("hi")]}, run)
        assert state["messages"][-1].text == "Done."
        # No fallback model is tried: its window may be smaller, and the conversation is shortened anyway.
        assert [request.body["model"] for request in server.requests] == ["fake", "fake"]
