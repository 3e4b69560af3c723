"""Reasoning next to the text is kept with the answer, sent back with it, and never shown as text."""

from pathlib import Path

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, HumanMessage
from pydantic import SecretStr

from agent.config import AgentConfig
from agent.factory import open_agent_factory
from agent.models.answers import REASONING_FIELDS
from agent.models.vllm import VllmChatModel
from agent.services import AgentSetup
from tests.agent.plain_agent import CONFIG
from tests.fakes.model import FakeModelServer, ModelReply, ToolCall


def model_at(server: FakeModelServer) -> VllmChatModel:
    return VllmChatModel(
        base_url=server.base_url, api_key=SecretStr("k"), model="fake", max_retries=0
    )


@pytest.mark.parametrize("field", REASONING_FIELDS)
async def test_streamed_reasoning_is_kept_beside_the_text(field: str) -> None:
    async with FakeModelServer() as server:
        server.reply(ModelReply(text="Four.", reasoning="two and two ", reasoning_field=field))
        whole = AIMessageChunk(content="")
        async for chunk in model_at(server).astream("2+2?"):
            assert isinstance(chunk, AIMessageChunk)
            whole += chunk
    assert whole.text == "Four."
    assert whole.additional_kwargs[field] == "two and two "


@pytest.mark.parametrize("field", REASONING_FIELDS)
async def test_a_whole_answer_keeps_it_and_gives_it_back(field: str) -> None:
    async with FakeModelServer() as server:
        model = model_at(server)
        model.disable_streaming = True
        server.reply(
            ModelReply(text="Four.", reasoning="two and two", reasoning_field=field), "Yes."
        )
        answer = await model.ainvoke("2+2?")
        assert isinstance(answer, AIMessage)
        assert (answer.text, answer.additional_kwargs[field]) == ("Four.", "two and two")
        await model.ainvoke([HumanMessage("2+2?"), answer, HumanMessage("Sure?")])
        sent = server.requests[-1].messages[1]
        assert (sent["role"], sent["content"], sent[field]) == ("assistant", "Four.", "two and two")


async def test_a_turn_with_tools_sends_it_back_and_shows_none_of_it(tmp_path: Path) -> None:
    async with FakeModelServer() as server:
        server.reply(
            ModelReply(
                reasoning="I must look.",
                reasoning_field="reasoning_content",
                calls=(ToolCall("ls", {"path": "/mnt/user-data/workspace"}),),
            ),
            ModelReply(text="It is empty.", reasoning="Nothing there."),
        )
        entry = {
            "name": "deep",
            "use": "agent.models.vllm:VllmChatModel",
            "model": "deep-1",
            "api_key": "k",
            "base_url": server.base_url,
        }
        config = AgentConfig.model_validate({"models": [entry]})
        async with open_agent_factory(AgentSetup(config=config, home=tmp_path)) as agents:
            graph = await agents.graph_for({})
            spoken = ""
            async for part in graph.astream(
                {"messages": [HumanMessage("look")]}, CONFIG, stream_mode="messages"
            ):
                assert isinstance(part, tuple)
                if isinstance(part[0], AIMessageChunk):
                    spoken += part[0].text
    assert spoken == "It is empty."
    sent = server.requests[1].messages[-2]
    assert sent["tool_calls"][0]["function"]["name"] == "ls"
    assert sent["reasoning_content"] == "I must look."
