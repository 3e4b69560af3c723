"""The bots' sections of `channels`, one for each instance. The gateway resolves `$NAME` before they get here."""

import re
from collections.abc import Iterator, Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from bus.config import ChannelPolicy, DmPolicy, GroupPolicy, RateOverride


class SlackConfig(ChannelPolicy):
    """A section with `platform: slack`. Whoever writes is a member of the workspace, so direct messages are open.

    `signing_secret` proves requests in mode http, which needs no `app_token`.
    """

    platform: Literal["slack"] = "slack"
    bot_token: str = ""
    app_token: str = ""
    signing_secret: str | None = None
    mode: Literal["socket", "http"] = "socket"
    base_url: str = "https://slack.com/api/"
    streaming: bool = False
    dm_policy: DmPolicy | None = "open"


class TelegramConfig(ChannelPolicy):
    """A section with `platform: telegram`. Anyone in the world can write to a bot, so strangers are paired first.

    `rich_messages` is off because apps from before June 2026 show a notice to update in place of a rich message.
    `webhook_url` is the public URL of `/webhooks/<name>`, `webhook_secret` proves deliveries; mode webhook
    needs both.
    """

    platform: Literal["telegram"] = "telegram"
    bot_token: str = ""
    mode: Literal["polling", "webhook"] = "polling"
    webhook_url: str = ""
    webhook_secret: str = ""
    base_url: str = "https://api.telegram.org/bot"
    base_file_url: str = "https://api.telegram.org/file/bot"
    streaming: bool = False
    rich_messages: Literal["off", "auto"] = "off"
    dm_policy: DmPolicy | None = "pairing"
    group_policy: GroupPolicy = "pairing"

    @field_validator("rich_messages", mode="before")
    @classmethod
    def _plain_words(cls, value: object) -> object:
        """Take YAML's `off` for what it says: to YAML it is the word for false."""
        return {False: "off", True: "auto"}.get(value, value) if isinstance(value, bool) else value


class FeishuConfig(ChannelPolicy):
    """A section with `platform: feishu`. `domain` is https://open.feishu.cn or https://open.larksuite.com.

    `encrypt_key` and `verification_token` prove deliveries; mode webhook needs both.
    """

    platform: Literal["feishu"] = "feishu"
    app_id: str = ""
    app_secret: str = ""
    mode: Literal["websocket", "webhook"] = "websocket"
    encrypt_key: str = ""
    verification_token: str = ""
    domain: str = "https://open.feishu.cn"
    streaming: bool | Literal["auto"] = "auto"
    dm_policy: DmPolicy | None = "open"


class TerminalConfig(ChannelPolicy):
    """`channels.terminal`: the chat in this machine's terminals, guarded by the admin token."""

    platform: Literal["terminal"] = "terminal"
    enabled: bool = True
    dm_policy: DmPolicy | None = "open"
    admin_users: list[str] = Field(default_factory=lambda: ["local"])
    rate_limit: RateOverride = RateOverride(messages=0)


PLATFORM_CONFIGS: Mapping[str, type[ChannelPolicy]] = {
    "slack": SlackConfig,
    "telegram": TelegramConfig,
    "feishu": FeishuConfig,
}
"""Value of `platform` -> class of the section."""

_IDENTITY_KEYS: Mapping[str, str] = {
    "slack": "bot_token",
    "telegram": "bot_token",
    "feishu": "app_id",
}
"""The key that names the bot account: two instances with one account would take each other's messages."""

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")


class BotsConfig(BaseModel):
    """The sections of `channels` that are bots, by instance name.

    A platform's first bot has the platform's name. Further instances have their own names and `platform`:

    >>> support = {"platform": "telegram", "enabled": True}
    >>> BotsConfig.model_validate({"telegram-support": support}).sections["telegram-support"].enabled
    True
    """

    model_config = ConfigDict(extra="allow", frozen=True)

    slack: SlackConfig = Field(default_factory=SlackConfig)
    telegram: TelegramConfig = Field(default_factory=TelegramConfig)
    feishu: FeishuConfig = Field(default_factory=FeishuConfig)
    terminal: TerminalConfig = Field(default_factory=TerminalConfig)

    @model_validator(mode="before")
    @classmethod
    def _parse_instances(cls, data: object) -> object:
        if not isinstance(data, Mapping):
            return data
        return {
            name: section
            if name in cls.model_fields or not (model := section_model(name, section))
            else model.model_validate(section)
            for name, section in data.items()
        }

    @property
    def sections(self) -> Mapping[str, ChannelPolicy]:
        """Every section, disabled ones too: the platforms' own first, then the further instances."""
        named = {name: getattr(self, name) for name in type(self).model_fields}
        extra = self.model_extra or {}
        return {**named, **{n: s for n, s in extra.items() if isinstance(s, ChannelPolicy)}}

    @property
    def platforms(self) -> Mapping[str, ChannelPolicy]:
        """The sections of chat platforms: all but the terminal's."""
        return {name: section for name, section in self.sections.items() if name != "terminal"}


def platform_of(section: ChannelPolicy) -> str:
    """Return the platform of a section."""
    return str(getattr(section, "platform", ""))


def is_instance(section: object) -> bool:
    """Return whether an additional section of `channels` is a bot: it says its `platform`."""
    return isinstance(section, Mapping) and "platform" in section


def section_model(name: str, section: object) -> type[ChannelPolicy] | None:
    """Return the class of a further instance's section; None if it is none.

    >>> section_model("support", {"platform": "slack"}).__name__, section_model("slak", {"enabled": True})
    ('SlackConfig', None)

    Raises:
        ValueError: It names a platform that does not exist, or its own name cannot be used.
    """
    if not isinstance(section, Mapping) or not is_instance(section):
        return None
    if not _NAME.fullmatch(name):
        raise ValueError(
            "a channel's name has 1 to 40 lower-case letters, digits, dashes and underscores"
        )
    model = PLATFORM_CONFIGS.get(str(section["platform"]))
    if model is None:
        *others, last = PLATFORM_CONFIGS
        raise ValueError(f"platform must be {', '.join(others)} or {last}")
    return model


def find_shared_accounts(config: BotsConfig) -> Iterator[tuple[str, str]]:
    """Yield (key, name of the other section) for enabled sections that use the same bot account."""
    seen: dict[tuple[str, str], str] = {}
    for name, section in config.platforms.items():
        platform = platform_of(section)
        key = _IDENTITY_KEYS.get(platform, "")
        account = getattr(section, key, "")
        if not section.enabled or not account:
            continue
        other = seen.setdefault((platform, account), name)
        if other != name:
            yield f"channels.{name}.{key}", other
