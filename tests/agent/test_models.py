"""Chat models built from entries of `models`: thinking, effort, extra keys, and helpful errors."""

from pathlib import Path
from typing import Any

import pytest
from langchain_openai import ChatOpenAI

from agent.config import AgentConfig, ModelConfig
from agent.errors import ModelNotFound, ModelUnusable, ObjectNotImportable
from agent.importer import import_class, import_object
from agent.models.demo import DemoChatModel
from agent.models.factory import create_chat_model, model_arguments
from agent.models.thinking import thinking_settings

CLAUDE_ON = {"thinking": {"type": "enabled", "budget_tokens": 1000}}
BODY_ON = {"extra_body": {"thinking": {"type": "enabled"}, "other": 1}}
TEMPLATE_ON = {"extra_body": {"chat_template_kwargs": {"thinking": True}}}
QWEN_ON = {"extra_body": {"chat_template_kwargs": {"enable_thinking": True}}}


def entry(**keys: object) -> ModelConfig:
    return ModelConfig.model_validate({"name": "m", "use": "x:Y", "model": "m-1", **keys})


@pytest.mark.parametrize(
    ("keys", "enabled", "settings"),
    [
        ({}, True, {}),
        ({}, False, {}),
        ({"when_thinking_enabled": CLAUDE_ON}, True, CLAUDE_ON),
        ({"when_thinking_enabled": CLAUDE_ON}, False, {"thinking": {"type": "disabled"}}),
        ({"thinking": CLAUDE_ON["thinking"]}, True, CLAUDE_ON),
        ({"thinking": CLAUDE_ON["thinking"]}, False, {"thinking": {"type": "disabled"}}),
        ({"when_thinking_enabled": BODY_ON}, True, BODY_ON),
        (
            {"when_thinking_enabled": BODY_ON},
            False,
            {"extra_body": {"thinking": {"type": "disabled"}}, "reasoning_effort": "minimal"},
        ),
        (
            {"when_thinking_enabled": TEMPLATE_ON},
            False,
            {"extra_body": {"chat_template_kwargs": {"thinking": False}}},
        ),
        (
            {"when_thinking_enabled": QWEN_ON},
            False,
            {"extra_body": {"chat_template_kwargs": {"enable_thinking": False}}},
        ),
        (
            {"when_thinking_enabled": {"extra_body": {"enable_thinking": True}}},
            False,
            {"extra_body": {"enable_thinking": False}},
        ),
        ({"when_thinking_enabled": {"temperature": 1}}, False, {}),
        ({"when_thinking_enabled": CLAUDE_ON, "when_thinking_disabled": {}}, False, {}),
        (
            {"when_thinking_enabled": CLAUDE_ON, "when_thinking_disabled": {"top_p": 1}},
            False,
            {"top_p": 1},
        ),
        (
            {"when_thinking_enabled": {"thinking": {"a": 1}}, "thinking": {"b": 2}},
            True,
            {"thinking": {"a": 1, "b": 2}},
        ),
    ],
)
def test_thinking_switches(keys: dict[str, Any], enabled: bool, settings: dict[str, Any]) -> None:
    assert thinking_settings(entry(**keys), enabled=enabled) == settings


def test_settings_are_merged_deeply_and_the_entry_is_not_changed() -> None:
    given = entry(
        extra_body={"top_k": 5, "thinking": {"keep": 1}},
        when_thinking_enabled=BODY_ON,
        supports_thinking=True,
    )
    merged = model_arguments(given, thinking_enabled=True, reasoning_effort=None)
    body = {"top_k": 5, "thinking": {"keep": 1, "type": "enabled"}, "other": 1}
    assert merged == {"model": "m-1", "extra_body": body}
    assert given.extra_keys() == {"extra_body": {"top_k": 5, "thinking": {"keep": 1}}}


@pytest.mark.parametrize(
    ("keys", "effort", "sent"),
    [
        ({"supports_reasoning_effort": True}, "low", "low"),
        ({"supports_reasoning_effort": True, "reasoning_effort": "high"}, "low", "low"),
        ({"supports_reasoning_effort": True, "reasoning_effort": "high"}, None, "high"),
        ({"supports_reasoning_effort": True, "when_thinking_enabled": BODY_ON}, None, "minimal"),
        ({"when_thinking_enabled": BODY_ON}, None, None),
        ({"reasoning_effort": "high"}, "low", None),
    ],
)
def test_reasoning_effort_is_sent_where_it_is_supported(
    keys: dict[str, Any], effort: str | None, sent: str | None
) -> None:
    settings = model_arguments(entry(**keys), thinking_enabled=False, reasoning_effort=effort)
    assert settings.get("reasoning_effort") == sent


def test_thinking_without_support_is_an_error_here() -> None:
    with pytest.raises(ModelUnusable, match="does not support thinking"):
        model_arguments(entry(), thinking_enabled=True, reasoning_effort=None)


def test_describing_keys_and_nulls_never_reach_the_class() -> None:
    given = entry(display_name="M", description="d", supports_vision=True, base_url=None, top_p=1)
    settings = model_arguments(given, thinking_enabled=False, reasoning_effort=None)
    assert settings == {"model": "m-1", "top_p": 1}


def openai(**keys: object) -> AgentConfig:
    gpt = {
        "name": "gpt",
        "use": "langchain_openai:ChatOpenAI",
        "model": "gpt-4o",
        "api_key": "sk-secret",
    }
    return AgentConfig.model_validate({"models": [{**gpt, **keys}]})


def test_an_openai_compatible_model() -> None:
    model = create_chat_model(openai(base_url="http://127.0.0.1:9/v1", temperature=0.5))
    assert isinstance(model, ChatOpenAI)
    assert (model.model_name, model.temperature) == ("gpt-4o", 0.5)
    assert model.stream_usage is True
    assert model.stream_chunk_timeout is None  # it would lose cancellations


@pytest.mark.parametrize(
    ("keys", "used"),
    [
        ({"base_url": "http://127.0.0.1:1/v1"}, False),
        ({"base_url": "https://api.openai.com/v1"}, None),
        ({}, None),
        ({"base_url": "http://127.0.0.1:1/v1", "use_responses_api": True}, True),
        ({"base_url": "http://127.0.0.1:1/v1", "output_version": "responses/v1"}, True),
    ],
)
def test_servers_that_imitate_openai_are_asked_in_the_older_way(
    keys: dict[str, Any], used: bool | None
) -> None:
    model = create_chat_model(openai(**keys))
    assert isinstance(model, ChatOpenAI)
    assert model.use_responses_api is used


def test_configured_options_are_kept() -> None:
    keys = {"base_url": "http://127.0.0.1:9/v1", "stream_usage": False, "stream_chunk_timeout": 9}
    model = create_chat_model(openai(**keys, use_responses_api=True, output_version="responses/v1"))
    assert isinstance(model, ChatOpenAI)
    assert (model.stream_usage, model.stream_chunk_timeout) == (False, 9)
    assert (model.use_responses_api, model.output_version) == (True, "responses/v1")
    changed = create_chat_model(openai(), overrides={"temperature": 0.1})
    assert isinstance(changed, ChatOpenAI)
    assert changed.temperature == 0.1


def test_the_default_and_the_unknown() -> None:
    assert isinstance(create_chat_model(AgentConfig()), DemoChatModel)
    with pytest.raises(ModelNotFound, match="Model none not found in config"):
        create_chat_model(AgentConfig(), "none")


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"use": "langchain_mistralai:ChatMistralAI"}, "pip install langchain-mistralai"),
        ({"use": "langchain_openai.ChatOpenAI"}, "not of the form module:name"),
        ({"use": "langchain_openai:ChatNothing"}, "has no attribute 'ChatNothing'"),
        ({"use": "pathlib:Path"}, "not a class derived from BaseChatModel"),
        ({"temperature": "hot"}, "gpt: temperature: Input should be a valid number"),
        ({"n": 0}, "gpt: "),
    ],
)
def test_an_entry_that_cannot_be_used_says_why_and_quotes_no_secret(
    keys: dict[str, Any], text: str
) -> None:
    with pytest.raises(ModelUnusable) as caught:
        create_chat_model(openai(**keys))
    assert text in str(caught.value)
    assert "sk-secret" not in str(caught.value)
    assert caught.value.retryable is False


def test_a_class_that_raises_anything_is_unusable() -> None:
    config = openai(use=f"{__name__}:BrokenModel")
    with pytest.raises(ModelUnusable, match="cannot be built: no key at all"):
        create_chat_model(config)


class BrokenModel(DemoChatModel):
    """A provider class that raises its own errors."""

    def __init__(self, **_: object) -> None:
        raise OSError("no key at all\nsecond line")


# ---- reflection --------------------------------------------------------------------------------


def test_resolving() -> None:
    assert import_object("pathlib:Path") is Path
    assert import_class("pathlib:PosixPath", Path).__name__ == "PosixPath"


@pytest.mark.parametrize(
    ("use", "text"),
    [
        *((use, "is not of the form") for use in ("x", "x:", ":x", "")),
        ("no_such_module:x", "Could not import module no_such_module: there is no such module"),
        ("json.no_such:x", "Could not import module json.no_such: there is no such module"),
        ("langchain_groq:ChatGroq", "Missing dependency 'langchain_groq'. Install it with"),
        ("sys:nothing", "has no attribute 'nothing'"),
    ],
)
def test_errors_of_unresolvable_models_say_what_to_do(use: str, text: str) -> None:
    with pytest.raises(ObjectNotImportable) as caught:
        import_object(use)
    assert text in str(caught.value)


def test_a_missing_module_further_down_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "needs_more.py").write_text("import not_installed_anywhere\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        ObjectNotImportable, match="needs the missing module 'not_installed_anywhere'"
    ):
        import_object("needs_more:x")


def test_the_wrong_kind_is_refused() -> None:
    with pytest.raises(ObjectNotImportable, match="is not a class derived from Path"):
        import_class("json:dumps", Path)
