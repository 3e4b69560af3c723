"""The agent's configuration sections: defaults, nulls, names, and secrets that reprs must not show."""

import pytest
from pydantic import ValidationError

from agent.config import DEMO_MODEL_CLASS, AgentConfig, ModelConfig

GPT = {
    "name": "gpt",
    "use": "langchain_openai:ChatOpenAI",
    "model": "gpt-5",
    "api_key": "sk-secret",
}


@pytest.mark.parametrize("data", [{}, None, {"models": None, "sandbox": None, "title": None}])
def test_without_a_configuration_the_demo_model_is_used(data: object) -> None:
    config = AgentConfig.model_validate(data)
    assert [model.use for model in config.chat_models] == [DEMO_MODEL_CLASS]
    assert config.title.max_chars == 60
    assert config.sandbox.allow_host_bash is False
    assert config.memory.enabled


def test_a_null_key_means_its_default() -> None:
    title = {"enabled": None, "max_words": None, "model_name": None}
    assert AgentConfig.model_validate({"title": title}).title.max_words == 6


def test_the_first_model_is_the_default_and_names_are_found() -> None:
    config = AgentConfig.model_validate({"models": [GPT, {**GPT, "name": "other"}]})
    assert config.chat_models[0].name == "gpt"
    found = config.model_named("other")
    assert found is not None
    assert found.extra_keys() == {"api_key": "sk-secret"}
    assert config.model_named("demo") is None


def test_unknown_keys_stay_out_of_reprs() -> None:
    assert "sk-secret" not in repr(ModelConfig.model_validate(GPT))
    assert "sk-secret" not in str(AgentConfig.model_validate({"models": [GPT]}))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ({"models": [GPT, GPT]}, "the name 'gpt' is used twice"),
        ({"title": {"model_name": "none"}}, "there is no model named 'none'"),
        ({"models": [{"name": "x"}]}, "models.0.use"),
        ({"models": "gpt"}, "models"),
        ({"title": {"max_chars": 5}}, "title.max_chars"),
        ({"subagents": {"max_concurrent": 9}}, "subagents.max_concurrent"),
        ({"skills": {"container_path": "relative"}}, "skills.container_path"),
        ({"sandbox": []}, "sandbox"),
    ],
)
def test_mistakes_are_named(data: object, text: str) -> None:
    with pytest.raises(ValidationError) as caught:
        AgentConfig.model_validate(data)
    assert text in str(caught.value)
