"""The bot's language: chosen, configured, reported by the platform, or detected."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from bus.commands import help_text
from bus.config import BusConfig, ChannelPolicy, SessionConfig
from bus.inbound.clean import clean_text
from bus.locales.en import ENGLISH
from bus.locales.zh import CHINESE
from bus.platform import Capabilities
from bus.settings.language import MAX_REMEMBERED, LanguageResolver, language_key
from bus.settings.resolver import SettingsResolver
from store.config import StoreConfig
from store.conversation_settings import ConversationSettingsStore
from store.database import Database
from tests.bus.harness import OPEN, BusHarness, inbound_message, running_bus
from tests.eventually import eventually
from tests.fakes.langgraph import Script
from tests.fakes.platform import FakePlatform

GROUP = {"chat": "g", "is_private": False}


async def last(harness: BusHarness, text: str, **changes: object) -> str:
    """Return the answer to a message."""
    before = len(harness.platform.texts)
    await harness.send(text, **changes)
    await eventually(lambda: len(harness.platform.texts) > before)
    return harness.platform.texts[-1]


@pytest.mark.parametrize(
    ("told", "answer"),
    [("zh-hans", CHINESE), ("zh-TW", CHINESE), ("en", ENGLISH), ("de", ENGLISH), ("", ENGLISH)],
)
async def test_a_command_is_answered_in_the_language_that_the_platform_tells(
    tmp_path: Path, told: str, answer: object
) -> None:
    async with running_bus(tmp_path) as harness:
        words = CHINESE if answer is CHINESE else ENGLISH
        await harness.send("/help", language=told)
        await eventually(lambda: "".join(harness.platform.texts) == help_text(words))
        assert await last(harness, "/stop", language=told) == words.stop_nothing


async def test_without_a_language_of_the_platform_the_written_language_is_used(
    tmp_path: Path,
) -> None:
    async with running_bus(tmp_path) as harness:
        assert await last(harness, "/status") == "No active conversation."
        await last(harness, "你好，请帮我写一首诗")
        assert await last(harness, "/stop") == "当前没有正在运行的任务。"
        assert (await last(harness, "/status")).startswith("当前会话：")
        await last(harness, "thanks, now in English")
        assert await last(harness, "/stop") == "Nothing is running."
        assert await last(harness, "/stop", chat="other") == "Nothing is running."


async def test_the_run_knows_the_language(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        await last(harness, "你好")
        await last(harness, "hello")
        spoken = [run.body["context"]["language"] for run in harness.server.runs]
        assert spoken == ["zh", "en"]


async def test_a_person_chooses_in_private_and_a_group_for_all(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        assert await last(harness, "/language") == (
            "Current language: English (automatic)\nChoose with /language en | zh | auto."
        )
        assert await last(harness, "/language zh") == "好的，之后我在这里使用中文。"
        assert await last(harness, "/language") == (
            "当前语言：中文\n发送 /language en | zh | auto 进行切换。"
        )
        # It applies in all private chats of this person, and in groups without their own setting.
        assert await last(harness, "/stop", chat="c2") == CHINESE.stop_nothing
        assert await last(harness, "/stop", chat="c2", user="other") == ENGLISH.stop_nothing
        assert await last(harness, "/stop", **GROUP) == CHINESE.stop_nothing
        assert (
            await last(harness, "/language English", **GROUP, user="other") == ENGLISH.language_done
        )
        assert await last(harness, "/stop", **GROUP) == ENGLISH.stop_nothing
        assert await last(harness, "/stop") == CHINESE.stop_nothing


async def test_an_unknown_language_is_named_with_those_there_are(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        assert await last(harness, "/language tlh") == (
            "I do not speak “tlh”.\nChoose with /language en | zh | auto."
        )


async def test_a_choice_survives_a_restart_and_auto_undoes_it(tmp_path: Path) -> None:
    async with running_bus(tmp_path) as harness:
        await last(harness, "/language zh")
        await last(harness, "/model qwen")
    async with running_bus(tmp_path) as harness:
        assert await last(harness, "/stop", event="f1") == CHINESE.stop_nothing
        assert (await last(harness, "/model", event="f2")).startswith("当前模型：qwen\n可用模型：")
        assert await last(harness, "/language auto", event="f3") == ENGLISH.language_done_auto
        assert await last(harness, "/stop", event="f4") == ENGLISH.stop_nothing


@pytest.mark.parametrize(
    ("everywhere", "here", "words"),
    [
        ("zh", None, CHINESE),
        ("auto", "zh", CHINESE),
        ("zh", "auto", ENGLISH),
        ("zh", "en-GB", ENGLISH),
    ],
)
async def test_a_configured_language_overrides_the_platforms(
    tmp_path: Path, everywhere: str, here: str | None, words: object
) -> None:
    policy = ChannelPolicy(dm_policy="open", language=here)
    config = BusConfig(drain_s=0.2, language=everywhere)
    async with running_bus(tmp_path, policy=policy, config=config) as harness:
        spoken = CHINESE if words is CHINESE else ENGLISH
        assert await last(harness, "/stop", language="en") == spoken.stop_nothing
        assert await last(harness, "/language zh", language="en") == CHINESE.language_done


def test_a_language_without_texts_is_rejected() -> None:
    with pytest.raises(ValidationError, match="must be one of auto, en, zh"):
        BusConfig(language="klingon")


async def test_a_stranger_is_greeted_in_their_language(tmp_path: Path) -> None:
    async with running_bus(tmp_path, policy=ChannelPolicy(dm_policy="pairing")) as harness:
        assert (await last(harness, "hi", language="zh-CN")).startswith("你好！我还不认识你。")
        assert (await last(harness, "在吗", user="v", chat="d")).startswith("你好！我还不认识你。")


def resolver(database: Database) -> LanguageResolver:
    settings = SettingsResolver(ConversationSettingsStore(database))
    return LanguageResolver(BusConfig(), {}, settings)


async def test_the_number_of_remembered_languages_is_bounded(tmp_path: Path) -> None:
    async with Database.open(StoreConfig(), tmp_path) as database:
        languages = resolver(database)
        for number in range(MAX_REMEMBERED + 2):
            languages.resolve(inbound_message("你好", "e", chat=str(number)))
        assert len(languages._last) == MAX_REMEMBERED
        assert languages.resolve(inbound_message("42", "e", chat=str(number))) == "zh"
        assert languages.resolve(inbound_message("42", "e", chat="0")) == "en"


async def test_a_chosen_language_that_no_longer_exists_is_ignored(tmp_path: Path) -> None:
    async with Database.open(StoreConfig(), tmp_path) as database:
        message = inbound_message("你好", "e")
        languages = resolver(database)
        await languages._settings.update(language_key(message), language="tlh")
        assert languages.resolve(message) == "zh"


async def test_texts_that_replace_an_answer_are_in_the_readers_language(
    tmp_path: Path,
) -> None:
    wrong = [
        ("GraphRecursionError", "spent", CHINESE.failed_steps),
        ("AgentNotFound", "There is no agent named 'poet'.", "⚠️ 没有名为“poet”的智能体。"),
        ("AgentInvalid", "its profile is broken.", "⚠️ its profile is broken. 请用 /agent"),
        ("Whatever", "", CHINESE.failed),
    ]
    policy = OPEN.model_copy(update={"session": SessionConfig(assistant_id="poet")})
    async with running_bus(tmp_path, policy=policy) as harness:
        for error, message, words in wrong:
            failure = {"error": error, "message": message}
            harness.server.scripts.append(Script(words=(), error=failure))
            assert (await last(harness, "写一首诗")).startswith(words)


async def test_an_invalid_agent_name_is_reported_in_the_readers_language(
    tmp_path: Path,
) -> None:
    policy = OPEN.model_copy(update={"session": SessionConfig(assistant_id="a b")})
    async with running_bus(tmp_path, policy=policy) as harness:
        assert await last(harness, "你好") == CHINESE.agent_name_invalid.format(name="a b")


def test_a_cut_message_says_so_in_the_language_it_is_written_in() -> None:
    assert clean_text("很长" * 100_001).endswith(
        "[消息过长已截断：原文共 200,002 个字符，这里只保留前 200,000 个。]"
    )
    assert clean_text("ab" * 100_001).endswith(
        "[This message was truncated: of its 200,002 characters, only the first 200,000 are shown.]"
    )


async def test_commands_are_named_as_they_are_written_there(tmp_path: Path) -> None:
    platform = FakePlatform(
        capabilities=Capabilities(
            streaming=False, send_interval_s=0.0, command_prefix="@{parley} /"
        )
    )
    async with running_bus(tmp_path, platform=platform) as harness:
        await harness.send("/language klingon")
        await harness.expect_replies(
            ENGLISH.language_unknown.format(wanted="klingon", options="en | zh | auto").replace(
                "/language", "@parley /language"
            )
        )
