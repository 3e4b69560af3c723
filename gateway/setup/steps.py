"""Platforms, model providers and the speech service that `parley init` sets up, with their questions."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bots.slack.manifest import app_manifest, creation_link


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupField:
    """One value that a setup step needs.

    Attributes:
        key: Key in the configuration section or model entry.
        variable: Environment variable that may hold the value. A secret is stored in `.env` under this name.
        prompt: The question.
        secret: Whether the value is stored in `.env` and hidden while you type.
        default: Value for an empty answer; None = an answer is required.
        aliases: Accepted short answers and their values.
    """

    key: str
    variable: str
    prompt: str
    secret: bool = True
    default: str | None = None
    aliases: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupStep:
    """The setup of a platform or a model provider.

    Attributes:
        instructions: Where to find the values. Shown before the questions.
        next_steps: Instructions for after the service has started.
        entry: Keys of a model entry that need no question.
        package: Python package that the provider needs, if Parley does not include it.
        base_url: The address of a provider's API, which lists its models; "" = the user enters the address, or it has
            none.
        base_url_variable: Environment variable that replaces the address, as for the provider's class.
    """

    title: str
    fields: tuple[SetupField, ...]
    instructions: str = ""
    next_steps: str = ""
    entry: Mapping[str, Any] | None = None
    package: str | None = None
    base_url: str = ""
    base_url_variable: str = ""


PLATFORMS: Mapping[str, SetupStep] = {
    "slack": SetupStep(
        title="Slack",
        instructions="Open this link, choose your workspace and select Create:\n"
        f"  {creation_link(app_manifest())}\n"
        "Then select Install App > Install to Workspace. Under Basic Information > App-Level Tokens,"
        " generate a token with connections:write.",
        fields=(
            SetupField(
                key="bot_token",
                variable="SLACK_BOT_TOKEN",
                prompt="Bot User OAuth Token (xoxb-...)",
            ),
            SetupField(
                key="app_token", variable="SLACK_APP_TOKEN", prompt="App-level token (xapp-...)"
            ),
        ),
        next_steps="Slack: message the app under Apps, or /invite it to a channel and mention it.",
    ),
    "telegram": SetupStep(
        title="Telegram",
        instructions="In Telegram, send /newbot to @BotFather; it replies with a token.",
        fields=(
            SetupField(
                key="bot_token", variable="TELEGRAM_BOT_TOKEN", prompt="Bot token (123456:ABC...)"
            ),
        ),
        next_steps="Telegram: message the bot; it replies with a code for `parley pairing approve CODE`.",
    ),
    "feishu": SetupStep(
        title="Feishu or Lark",
        instructions="Create a custom app at https://open.feishu.cn/app (Lark: https://open.larksuite.com/app) with the"
        " Bot feature\nand the permissions listed in docs/howto/connect-feishu.md. Credentials & Basic Info shows"
        " the App ID and App Secret.",
        fields=(
            SetupField(
                key="domain",
                variable="FEISHU_DOMAIN",
                prompt="feishu or lark",
                secret=False,
                default="https://open.feishu.cn",
                aliases={"feishu": "https://open.feishu.cn", "lark": "https://open.larksuite.com"},
            ),
            SetupField(key="app_id", variable="FEISHU_APP_ID", prompt="App ID (cli_...)"),
            SetupField(key="app_secret", variable="FEISHU_APP_SECRET", prompt="App Secret"),
        ),
        next_steps="Feishu: while the service is running, subscribe to the event im.message.receive_v1 and the callback"
        " card.action.trigger, then publish a version (docs/howto/connect-feishu.md, step 3).",
    ),
}

SPEECH = SetupStep(
    title="Speech service: OpenAI, or a server with its /audio/transcriptions",
    fields=(
        SetupField(
            key="base_url",
            variable="SPEECH_BASE_URL",
            prompt="Base URL",
            secret=False,
            default="https://api.openai.com/v1",
        ),
        SetupField(
            key="model",
            variable="SPEECH_MODEL",
            prompt="Model",
            secret=False,
            default="whisper-1",
        ),
        SetupField(
            key="api_key", variable="SPEECH_API_KEY", prompt="API key", default="none-needed"
        ),
    ),
)
"""The `voice` section."""

MODELS: Mapping[str, SetupStep] = {
    "openai": SetupStep(
        title="OpenAI",
        fields=(
            SetupField(key="api_key", variable="OPENAI_API_KEY", prompt="API key (sk-...)"),
            SetupField(
                key="model", variable="OPENAI_MODEL", prompt="Model", secret=False, default="gpt-5"
            ),
        ),
        base_url="https://api.openai.com/v1",
        base_url_variable="OPENAI_BASE_URL",
        entry={
            "name": "gpt",
            "display_name": "GPT",
            "use": "langchain_openai:ChatOpenAI",
            "supports_vision": True,
        },
    ),
    "anthropic": SetupStep(
        title="Anthropic",
        fields=(
            SetupField(key="api_key", variable="ANTHROPIC_API_KEY", prompt="API key (sk-ant-...)"),
            SetupField(
                key="model",
                variable="ANTHROPIC_MODEL",
                prompt="Model",
                secret=False,
                default="claude-sonnet-4-5",
            ),
        ),
        base_url="https://api.anthropic.com/v1",
        entry={
            "name": "claude",
            "display_name": "Claude",
            "use": "langchain_anthropic:ChatAnthropic",
            "max_tokens": 8192,
            "supports_vision": True,
        },
        package="langchain_anthropic",
    ),
    "server": SetupStep(
        title="OpenAI-compatible server (vLLM, Ollama, LM Studio, a gateway)",
        fields=(
            SetupField(
                key="base_url",
                variable="MODEL_BASE_URL",
                prompt="Base URL (http://127.0.0.1:8000/v1)",
                secret=False,
            ),
            SetupField(
                key="api_key", variable="MODEL_API_KEY", prompt="API key", default="none-needed"
            ),
            SetupField(key="model", variable="MODEL_NAME", prompt="Model", secret=False),
        ),
        entry={"name": "server", "use": "langchain_openai:ChatOpenAI"},
    ),
}
