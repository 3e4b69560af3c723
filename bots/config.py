"""Configuration of the bots: one section of `channels` for each instance. The gateway resolves `$NAME` first."""

import re
from collections.abc import Iterator, Mapping
from typing import ClassVar, Literal
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from typing_extensions import override

from bus.config import ChannelPolicy, DmPolicy, GroupPolicy, RateOverride


class PlatformConfig(ChannelPolicy):
    """The keys that the sections of all platforms share.

    Attributes:
        platform: The platform. Required if the section's name is not a platform's.
        mode: How events arrive, for platforms that offer several ways.
        required_keys: The keys that the bot needs to connect, by mode.
        account_key: The key that identifies the bot account. Two instances of one account would receive each other's
            messages.
    """

    platform: str
    mode: str = ""
    required_keys: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    account_key: ClassVar[str] = ""

    def missing_keys(self) -> list[str]:
        """Return the required keys that are not set."""
        return [key for key in self.required_keys.get(self.mode, ()) if not getattr(self, key)]


class SlackConfig(PlatformConfig):
    """A section with `platform: slack`. Direct messages are open by default, because senders belong to the workspace.

    `signing_secret` verifies requests in mode http, which needs no `app_token`. With `client_id` and `client_secret`,
    workspaces install the app at `/slack/<name>/install`, and `bot_token` is optional.
    """

    required_keys: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "socket": ("bot_token", "app_token"),
        "http": ("bot_token", "signing_secret"),
    }
    account_key: ClassVar[str] = "bot_token"

    platform: Literal["slack"] = "slack"
    bot_token: str = ""
    app_token: str = ""
    signing_secret: str | None = None
    client_id: str = ""
    client_secret: str = ""
    allowed_workspaces: list[str] = Field(default_factory=list)
    mode: Literal["socket", "http"] = "socket"
    base_url: str = "https://slack.com/api/"
    streaming: bool = False
    dm_policy: DmPolicy | None = "open"

    @override
    def missing_keys(self) -> list[str]:
        """Return the required keys that are not set. With OAuth, no bot token is required."""
        has_oauth = bool(self.client_id and self.client_secret)
        return [key for key in super().missing_keys() if not (has_oauth and key == "bot_token")]


class TelegramConfig(PlatformConfig):
    """A section with `platform: telegram`. By default, strangers must pair first, because anyone can write to a bot.

    `rich_messages` is off by default, because apps released before June 2026 show an update notice instead of a rich
    message. `webhook_url` is the public URL of `/webhooks/<name>`, and `webhook_secret` verifies deliveries. Mode
    webhook needs both.
    """

    required_keys: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "polling": ("bot_token",),
        "webhook": ("bot_token", "webhook_url", "webhook_secret"),
    }
    account_key: ClassVar[str] = "bot_token"

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

    @field_validator("webhook_url")
    @classmethod
    def _is_url(cls, url: str) -> str:
        urlsplit(url)
        return url

    @field_validator("rich_messages", mode="before")
    @classmethod
    def _plain_words(cls, value: object) -> object:
        """Convert False to "off", because YAML reads `off` as false."""
        return {False: "off", True: "auto"}.get(value, value) if isinstance(value, bool) else value


class FeishuConfig(PlatformConfig):
    """A section with `platform: feishu`. `domain` is https://open.feishu.cn or https://open.larksuite.com.

    `encrypt_key` and `verification_token` verify deliveries. Mode webhook needs both.
    """

    required_keys: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "websocket": ("app_id", "app_secret"),
        "webhook": ("app_id", "app_secret", "encrypt_key", "verification_token"),
    }
    account_key: ClassVar[str] = "app_id"

    platform: Literal["feishu"] = "feishu"
    app_id: str = ""
    app_secret: str = ""
    mode: Literal["websocket", "webhook"] = "websocket"
    encrypt_key: str = ""
    verification_token: str = ""
    domain: str = "https://open.feishu.cn"
    streaming: bool | Literal["auto"] = "auto"
    dm_policy: DmPolicy | None = "open"


class TerminalConfig(PlatformConfig):
    """`channels.terminal`: the chat in this machine's terminals, protected by the admin token."""

    platform: Literal["terminal"] = "terminal"
    enabled: bool = True
    dm_policy: DmPolicy | None = "open"
    admin_users: list[str] = Field(default_factory=lambda: ["local"])
    rate_limit: RateOverride = RateOverride(messages=0)


_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}")


class BotsConfig(BaseModel):
    """The sections of `channels` that are bots, by instance name.

    A platform's first bot has the platform's name. Additional instances have names of their own and set `platform`:

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
    def sections(self) -> Mapping[str, PlatformConfig]:
        """All sections, including disabled ones. Sections named after a platform come before additional instances."""
        named = {name: getattr(self, name) for name in type(self).model_fields}
        extra = self.model_extra or {}
        return {**named, **{n: s for n, s in extra.items() if isinstance(s, PlatformConfig)}}

    @property
    def platforms(self) -> Mapping[str, PlatformConfig]:
        """The sections of chat platforms, without the terminal's."""
        return {name: section for name, section in self.sections.items() if name != "terminal"}


def is_instance(section: object) -> bool:
    """Return whether an additional section of `channels` is a bot, that is, sets its `platform`."""
    return isinstance(section, Mapping) and "platform" in section


def section_model(name: str, section: object) -> type[PlatformConfig] | None:
    """Return the model of an additional instance's section; None if the section is not a bot.

    >>> section_model("support", {"platform": "slack"}).__name__, section_model("slak", {"enabled": True})
    ('SlackConfig', None)

    Raises:
        ValueError: The platform does not exist, or the name is not valid.
    """
    if not isinstance(section, Mapping) or not is_instance(section):
        return None
    if not _NAME.fullmatch(name):
        raise ValueError(
            "a channel's name has 1 to 40 lower-case letters, digits, dashes and underscores"
        )
    models = {
        key: field.annotation for key, field in BotsConfig.model_fields.items() if key != "terminal"
    }
    model = models.get(str(section["platform"]))
    if isinstance(model, type) and issubclass(model, PlatformConfig):
        return model
    *others, last = models
    raise ValueError(f"platform must be {', '.join(others)} or {last}")


def find_shared_accounts(config: BotsConfig) -> Iterator[tuple[str, str]]:
    """Yield (key, name of the other section) for enabled sections that use the same bot account."""
    seen: dict[tuple[str, str], str] = {}
    for name, section in config.platforms.items():
        account = str(getattr(section, section.account_key, ""))
        if not section.enabled or not account:
            continue
        other = seen.setdefault((section.platform, account), name)
        if other != name:
            yield f"channels.{name}.{section.account_key}", other
