"""The agent's messages are complete, translated, and in the language of the run."""

import re
from dataclasses import asdict
from pathlib import Path
from typing import get_args

import pytest
from langchain_core.messages import HumanMessage

from agent.client.options import TurnSettings
from agent.locales import LANGUAGES, AgentMessages
from agent.locales.en import ENGLISH
from agent.locales.zh import CHINESE
from agent.models.failures import FailureReason
from agent.paths import WORKSPACE
from tests.agent.agent_harness import open_agent
from tests.agent.plain_agent import THREAD
from tests.fakes.model import ModelReply, ToolCall
from tests.fakes.scripted import ScriptedChatModel

OTHERS = [(code, words) for code, words in LANGUAGES.items() if words is not ENGLISH]


class KeyRefused(Exception):
    """As a provider raises it."""

    status_code = 401


@pytest.mark.parametrize(("code", "words"), OTHERS)
def test_no_english_text_is_left(code: str, words: AgentMessages) -> None:
    copied = {name for name, text in asdict(ENGLISH).items() if asdict(words)[name] == text}
    assert not copied, code


def test_chinese_texts_are_chinese() -> None:
    assert all(re.search(r"[一-鿿]", text) for text in asdict(CHINESE).values())


@pytest.mark.parametrize("words", LANGUAGES.values())
def test_every_model_failure_has_a_message(words: AgentMessages) -> None:
    assert all(words.model(reason).startswith("⚠️") for reason in get_args(FailureReason))


async def test_model_failures_use_the_language_of_the_run(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing(KeyRefused("no"), KeyRefused("no"))
    async with open_agent(tmp_path, model) as harness:
        assert (await harness.say("你好", language="zh"))[-1].text == CHINESE.model_auth
        assert (await harness.say("hello", language="fr"))[-1].text == ENGLISH.model_auth


async def test_the_language_can_be_set_in_configurable(tmp_path: Path) -> None:
    look = ToolCall(name="ls", args={"path": WORKSPACE}, id="c")
    async with open_agent(
        tmp_path, ScriptedChatModel.playing(ModelReply(calls=(look,)))
    ) as harness:
        options = {"thread_id": THREAD, "language": "zh-CN"}
        graph = await harness.factory.graph_for({"configurable": options})
        said = {"messages": [HumanMessage("看看")]}
        state = await graph.ainvoke(said, {"configurable": options, "recursion_limit": 2})
        assert state["messages"][-1].text == CHINESE.step_limit_reached


def test_embedded_clients_can_set_the_language() -> None:
    assert TurnSettings(language="zh").config("t1")["configurable"]["language"] == "zh"
    assert "language" not in TurnSettings().config("t1")["configurable"]


async def test_empty_questions_use_the_language_of_the_run(tmp_path: Path) -> None:
    asks = ToolCall(name="ask_clarification", args={"question": " "}, id="c")
    async with open_agent(
        tmp_path, ScriptedChatModel.playing(ModelReply(calls=(asks,)))
    ) as harness:
        assert (await harness.say("做点什么", language="zh"))[-1].text == "❓ 接下来我该怎么做？"
