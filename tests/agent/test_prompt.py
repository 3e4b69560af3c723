"""The system prompt: written in each language, short, the same in each turn, and true for the agent that gets it."""

import re
from dataclasses import asdict
from pathlib import Path
from string import Formatter

import pytest
from langchain_core.messages import HumanMessage

from agent.locales import LANGUAGES, PROMPTS, PromptTexts
from agent.locales.prompt_en import ENGLISH_PROMPT
from agent.options import RunOptions
from agent.prompt import system_prompt
from agent.token_estimate import estimate_tokens
from tests.agent.agent_harness import open_agent
from tests.agent.cached_conversation import TITLED, say_first
from tests.agent.test_speakers import said
from tests.fakes.model import FakeModelServer, ModelRequest
from tests.fakes.scripted import ScriptedChatModel

MAX_PROMPT_TOKENS = 1_200
"""Maximum tokens of the prompt of a chat without skills and memory."""

MAX_REQUEST_TOKENS = 3_500
"""Maximum tokens of the first request of a plain chat."""

SLACK = {**TITLED, "platform": "slack"}


def placeholders(text: str) -> set[str | None]:
    return {name for _, name, _, _ in Formatter().parse(text) if name is not None}


def flat(texts: PromptTexts) -> dict[str, str]:
    """Return the texts by name. Those of a mapping are named `field.key`."""
    found: dict[str, str] = {}
    for name, value in asdict(texts).items():
        pairs = value.items() if isinstance(value, dict) else [("", value)]
        found |= {f"{name}.{key}": text for key, text in pairs}
    return found


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_language_has_the_same_texts_and_placeholders(language: str) -> None:
    english, texts = flat(ENGLISH_PROMPT), flat(PROMPTS[language])
    assert texts.keys() == english.keys()
    for name, text in texts.items():
        assert placeholders(text) == placeholders(english[name]), name
        assert re.findall(r"</?\w+>", text) == re.findall(r"</?\w+>", english[name]), name


def test_chinese_prompts_are_chinese() -> None:
    named = {"platforms.slack", "platforms.telegram", "group_named.", "on_platform."}
    texts = {name: text for name, text in flat(PROMPTS["zh"]).items() if name not in named}
    assert not [name for name, text in texts.items() if not re.search(r"[一-鿿]", text)]


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("platform", ["slack", "telegram", "feishu", "terminal"])
async def test_prompt_and_first_request_are_short(
    tmp_path: Path, language: str, platform: str
) -> None:
    """With commands, web tools and delegation, in a group with a title and a topic."""
    async with FakeModelServer() as server:
        requests = await first_requests(tmp_path, server, language, platform)
    prompts = [str(request.messages[0]["content"]) for request in requests]
    assert all(name in prompts[-1] for name in ("<shell>", "<sources>", "<delegation>", "<chat>"))
    assert estimate_tokens(prompts[-1]) <= MAX_PROMPT_TOKENS
    assert requests[0].tokens <= MAX_REQUEST_TOKENS


async def first_requests(
    home: Path, server: FakeModelServer, language: str, platform: str
) -> list[ModelRequest]:
    """Return the first request of a plain chat, and of one with web tools and delegation, but without skills."""
    web = {"name": "web_search", "group": "web", "use": "agent.tools.web:ddgs_search"}
    full = {"tools": [web], "skills": {"path": str(home / "none")}}
    for sections in ({}, full):
        await say_first(home, server, language=language, platform=platform, sections=sections)
    return server.requests


async def test_the_prompt_is_in_the_language_of_the_conversation(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing("好", "好", "hi")
    async with open_agent(tmp_path, model) as harness:
        await harness.say(said("你好", "U1", "王"), chat=SLACK, language="zh-Hans")
        await harness.say(said("Hello", "U2", "Ann"), chat=SLACK, language="en")
        await harness.say(said("Hello", "U2", "Ann"), thread="2" * 8, chat=SLACK, language="en")
    first, second, other = (prompt[0].text for prompt in model.prompts)
    assert first.startswith("你是 Parley")
    assert "这是 Slack 上的群聊“Release team”，话题是“Offers”。" in first
    # Providers cache it, so it must be the same for every speaker.
    assert second == first
    assert other.startswith("You are Parley")
    assert "<speaker> line" in other


def test_the_prompt_says_only_what_holds_for_the_agent() -> None:
    plain = system_prompt(RunOptions())
    assert not [name for name in ("shell", "sources", "delegation") if f"<{name}>" in plain]
    online = system_prompt(RunOptions(), has_bash=True, has_web=True)
    assert "<shell>" in online
    assert "[title](URL)" in online


async def test_the_first_request_of_a_run_without_a_chat_has_no_chat(tmp_path: Path) -> None:
    model = ScriptedChatModel.playing("hi")
    async with open_agent(tmp_path, model) as harness:
        await harness.say(HumanMessage("hi", id="1"))
    assert "<chat>" not in model.prompts[0][0].text
