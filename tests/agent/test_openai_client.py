"""DirectCompletions sends and streams the same as the OpenAI package."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import openai
import pytest
from aiohttp import web
from langchain_core.messages import AIMessageChunk
from langchain_core.messages.ai import add_ai_message_chunks
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from agent.config import AgentConfig
from agent.models.factory import create_chat_model
from agent.models.http_client import ModelHttpClient
from agent.models.openai_client import READ_BYTES
from tests.fakes.model import FakeModelServer, ModelReply, ToolCall

WORDS = " ".join(f"word{number}" for number in range(5_000))


@tool
def search(query: str, limit: int = 5) -> str:
    """Search for something."""
    return f"{query}{limit}"


@pytest.fixture
async def client() -> AsyncIterator[ModelHttpClient]:
    http_client = ModelHttpClient()
    yield http_client
    await http_client.aclose()


def model_of(url: str, client: ModelHttpClient, **extra: object) -> ChatOpenAI:
    entry = {
        "name": "m",
        "use": "langchain_openai:ChatOpenAI",
        "model": "fake",
        "api_key": "sk-test",
        "base_url": url,
        "max_retries": 0,
        **extra,
    }
    model = create_chat_model(AgentConfig.model_validate({"models": [entry]}), http_client=client)
    assert isinstance(model, ChatOpenAI)
    return model


async def test_the_request_is_the_one_that_the_package_sends(client: ModelHttpClient) -> None:
    conversation = [("system", "Be brief."), ("human", "Hi"), ("ai", "Hello"), ("human", "你好 😀")]
    async with FakeModelServer() as server:
        for model in (
            model_of(server.base_url, client, extra_body={"top_k": 5}, temperature=0.5),
            ChatOpenAI(
                model="fake", api_key=SecretStr("sk-test"), base_url=server.base_url, stream_usage=True,
                extra_body={"top_k": 5}, temperature=0.5, use_responses_api=False,
            ),
        ):  # fmt: skip
            bound = model.bind_tools([search])
            assert [chunk async for chunk in bound.astream(conversation)]
            await bound.ainvoke(conversation)
        ours, theirs = server.requests[:2], server.requests[2:]
    assert [request.body for request in ours] == [request.body for request in theirs]
    assert ours[0].body["top_k"] == 5
    assert ours[0].tool_names == ["search"]


async def test_text_calls_and_usage_arrive_whole(client: ModelHttpClient) -> None:
    calls = (
        ToolCall("search", {"query": "a", "limit": 1}, "c1"),
        ToolCall("search", {"query": "b"}, "c2"),
    )
    async with FakeModelServer() as server:
        server.reply(ModelReply(text=WORDS, calls=calls))
        model = model_of(server.base_url, client).bind_tools([search])
        chunks = [chunk async for chunk in model.astream("hi")]
    whole = add_ai_message_chunks(*(chunk for chunk in chunks if isinstance(chunk, AIMessageChunk)))
    assert whole.text == WORDS
    assert [(call["name"], call["args"], call["id"]) for call in whole.tool_calls] == [
        ("search", {"query": "a", "limit": 1}, "c1"),
        ("search", {"query": "b"}, "c2"),
    ]
    assert whole.usage_metadata is not None


async def test_deltas_that_arrive_together_are_one_chunk(client: ModelHttpClient) -> None:
    event = 'data: {"id":"c","choices":[{"index":0,"delta":{"content":"%s "},"finish_reason":null}]}\n\n'
    content = "".join(event % word for word in WORDS.split())
    async with answering(content.encode() + b"data: [DONE]\n\n") as url:
        chunks = [chunk.text async for chunk in model_of(url, client).astream("hi")]
    assert "".join(chunks) == f"{WORDS} "
    assert len(chunks) < 50
    # Other tasks wait while a chunk is parsed, so arrived data is split into several chunks.
    assert max(len(chunk.split()) for chunk in chunks) <= READ_BYTES // len(event) + 1


ANSWERS = {
    "several lines": (
        b'data: {"id":"c","choices":[{"index":0,\r\ndata: "delta":{"content":"a"},"finish_reason":null}]}\r\n\r\n'
        b": a comment\n\ndata: [DONE]\n\n",
        "a",
    ),
    "half an emoji in each delta": (
        b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"\\ud83d"},"finish_reason":null}]}\n\n'
        b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"\\ude00"},"finish_reason":null}]}\n\n'
        b"data: [DONE]\n\n",
        "\U0001f600",
    ),
    "no last newline": (
        b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}\n\n'
        b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"b"},"finish_reason":"stop"}]}',
        "ab",
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
async def test_unusual_event_streams_are_read(client: ModelHttpClient, name: str) -> None:
    content, text = ANSWERS[name]
    async with answering(content) as url:
        chunks = [chunk.text async for chunk in model_of(url, client).astream("hi")]
    assert "".join(chunks) == text


@pytest.mark.parametrize(
    "content",
    [b'data: {"error": {"message": "no room", "code": "server_error"}}\n\n', b'data: "?"\n\n'],
)
async def test_an_error_in_the_stream_is_the_package_s_error(
    client: ModelHttpClient, content: bytes
) -> None:
    async with answering(content) as url:
        with pytest.raises(openai.APIError):
            [chunk async for chunk in model_of(url, client).astream("hi")]


async def test_a_server_that_hangs_up_is_no_timeout(client: ModelHttpClient) -> None:
    async with FakeModelServer() as server:
        server.reply(ModelReply(text="one two three", drop_after=0))
        with pytest.raises(openai.APIConnectionError) as caught:
            [chunk async for chunk in model_of(server.base_url, client).astream("hi")]
    assert not isinstance(caught.value, openai.APITimeoutError)


async def test_a_server_that_cannot_be_reached_is_a_connection_error(
    client: ModelHttpClient,
) -> None:
    with pytest.raises(openai.APIConnectionError) as caught:
        await model_of("http://127.0.0.1:9/v1", client).ainvoke("hi")
    assert not isinstance(caught.value, openai.APITimeoutError)


@asynccontextmanager
async def answering(content: bytes) -> AsyncIterator[str]:
    """Run a server that answers every request with these bytes as an event stream; yield its URL."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=content, content_type="text/event-stream")

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
    finally:
        await runner.cleanup()
