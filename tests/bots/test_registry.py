"""The adapters that a configuration enables."""

from pathlib import Path
from typing import get_args

import pytest
from pydantic import ValidationError

from bots.config import (
    BotsConfig,
    FeishuConfig,
    SlackConfig,
    TelegramConfig,
    TerminalConfig,
    find_shared_accounts,
)
from bots.registry import build_adapters


def test_with_nothing_enabled_only_the_terminal_is_built(tmp_path: Path) -> None:
    built = build_adapters(BotsConfig(), (), files=tmp_path)
    assert list(built.adapters) == ["terminal"]
    assert built.terminal is built.adapters["terminal"]
    assert built.faults == {}
    off = build_adapters(BotsConfig(terminal=TerminalConfig(enabled=False)), (), files=tmp_path)
    assert (off.adapters, off.terminal) == ({}, None)


def test_missing_tokens_name_their_keys_and_harm_no_other(tmp_path: Path) -> None:
    config = BotsConfig(
        slack=SlackConfig(enabled=True, bot_token="xoxb-1"),
        telegram=TelegramConfig(enabled=True),
        feishu=FeishuConfig(enabled=True),
    )
    built = build_adapters(config, (), files=tmp_path)
    assert list(built.adapters) == ["terminal"]
    assert built.faults == {
        "slack": "channels.slack.app_token is not set",
        "telegram": "channels.telegram.bot_token is not set",
        "feishu": "channels.feishu.app_id and channels.feishu.app_secret are not set",
    }


def test_several_instances_of_one_platform(tmp_path: Path) -> None:
    config = BotsConfig.model_validate(
        {
            "telegram": {"enabled": True, "bot_token": "1:a"},
            "telegram-support": {
                "platform": "telegram",
                "enabled": True,
                "bot_token": "2:b",
                "mode": "webhook",
                "webhook_url": "https://bot.example.com/webhooks/telegram-support",
                "webhook_secret": "sixteen-characters",
            },
            "sales": {"platform": "slack", "enabled": True},
            "off": {"platform": "feishu"},
        }
    )
    built = build_adapters(config, (), files=tmp_path)
    assert {name: adapter.name for name, adapter in built.adapters.items()} == {
        name: name for name in ("telegram", "telegram-support", "terminal")
    }
    assert set(built.webhooks) == {"telegram-support"}
    assert built.faults == {
        "sales": "channels.sales.bot_token and channels.sales.app_token are not set"
    }


@pytest.mark.parametrize(
    ("name", "section", "words"),
    [
        ("support", {"platform": "telegramm"}, "slack, telegram or feishu"),
        ("Support Desk", {"platform": "slack"}, "lower-case"),
        ("slack", {"platform": "telegram"}, "'slack'"),
    ],
)
def test_wrong_instances_are_refused(name: str, section: dict[str, str], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        BotsConfig.model_validate({name: section})


def test_one_account_in_two_sections_is_found() -> None:
    token = {"platform": "telegram", "enabled": True, "bot_token": "1:a"}
    config = BotsConfig.model_validate(
        {"one": token, "two": token, "off": {**token, "enabled": False}}
    )
    assert list(find_shared_accounts(config)) == [("channels.two.bot_token", "one")]


def test_every_mode_has_its_required_keys() -> None:
    for section in BotsConfig().platforms.values():
        fields = type(section).model_fields
        assert set(section.required_keys) == set(get_args(fields["mode"].annotation))
        keys = {key for keys in section.required_keys.values() for key in keys}
        assert {*keys, section.account_key} <= set(fields)


def test_webhook_mode_has_keys_of_its_own_and_a_route(tmp_path: Path) -> None:
    slack = SlackConfig(enabled=True, bot_token="xoxb-1", mode="http")
    telegram = TelegramConfig(enabled=True, bot_token="1:a", mode="webhook")
    built = build_adapters(BotsConfig(slack=slack, telegram=telegram), (), files=tmp_path)
    assert built.faults == {
        "slack": "channels.slack.signing_secret is not set",
        "telegram": "channels.telegram.webhook_url and channels.telegram.webhook_secret are not set",
    }
    signed = slack.model_copy(update={"signing_secret": "s"})
    polls = TelegramConfig(enabled=True, bot_token="1:a")
    built = build_adapters(BotsConfig(slack=signed, telegram=polls), (), files=tmp_path)
    assert set(built.adapters) == {"slack", "telegram", "terminal"}
    assert set(built.webhooks) == {"slack"}
