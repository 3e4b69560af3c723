"""The platforms' sections of `channels`. Secrets are strings here; the gateway resolves `$NAME` before."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from bus.config import ChannelPolicy, DmPolicy, RateOverride


class SlackConfig(ChannelPolicy):
    """`channels.slack`. Whoever writes is a member of the workspace, so direct messages are open.

    `signing_secret` proves requests in mode http, which needs no `app_token`.
    """

    bot_token: str = ""
    app_token: str = ""
    signing_secret: str | None = None
    mode: Literal["socket", "http"] = "socket"
    base_url: str = "https://slack.com/api/"
    streaming: bool = False
    dm_policy: DmPolicy | None = "open"


class TelegramConfig(ChannelPolicy):
    """`channels.telegram`. Anyone in the world can write to a bot, so strangers are paired first.

    `rich_messages` is off because apps from before June 2026 show a notice to update in place of a rich message.
    `webhook_url` is the public address of `/webhooks/telegram`, `webhook_secret` proves deliveries; mode webhook
    needs both.
    """

    bot_token: str = ""
    mode: Literal["polling", "webhook"] = "polling"
    webhook_url: str = ""
    webhook_secret: str = ""
    base_url: str = "https://api.telegram.org/bot"
    base_file_url: str = "https://api.telegram.org/file/bot"
    streaming: bool = False
    rich_messages: Literal["off", "auto"] = "off"
    dm_policy: DmPolicy | None = "pairing"

    @field_validator("rich_messages", mode="before")
    @classmethod
    def _plain_words(cls, value: object) -> object:
        """Take YAML's `off` for what it says: to YAML it is the word for false."""
        return {False: "off", True: "auto"}.get(value, value) if isinstance(value, bool) else value


class FeishuConfig(ChannelPolicy):
    """`channels.feishu`. `domain` is https://open.feishu.cn or https://open.larksuite.com.

    `encrypt_key` and `verification_token` prove deliveries; mode webhook needs both.
    """

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

    enabled: bool = True
    dm_policy: DmPolicy | None = "open"
    admin_users: list[str] = Field(default_factory=lambda: ["local"])
    rate_limit: RateOverride = RateOverride(messages=0)


class BotsConfig(BaseModel):
    """The platform sections of `channels`, all optional."""

    model_config = ConfigDict(extra="allow", frozen=True)

    slack: SlackConfig = Field(default_factory=SlackConfig)
    telegram: TelegramConfig = Field(default_factory=TelegramConfig)
    feishu: FeishuConfig = Field(default_factory=FeishuConfig)
    terminal: TerminalConfig = Field(default_factory=TerminalConfig)
