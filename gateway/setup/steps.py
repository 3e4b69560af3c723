"""What `parley init` can set up, and what it has to be told for that."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bots.slack.manifest import app_manifest, creation_link


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupField:
    """One thing that has to be told.

    Attributes:
        key: Of the configuration's section or entry.
        variable: Where it may be found in the environment; a secret is kept in `.env` under this name.
        prompt: The question.
        secret: It stands in `.env`, and is not shown while it is typed.
        default: What is meant by saying nothing; None = something has to be said.
        aliases: What may be said instead of a value, and the value it stands for.
    """

    key: str
    variable: str
    prompt: str
    secret: bool = True
    default: str | None = None
    aliases: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetupStep:
    """A platform, or a provider of models.

    Attributes:
        instructions: Where to get what is asked for, told before.
        next_steps: What to do when the service runs.
        entry: Of a model: the keys of its entry that nobody has to be asked for.
        package: What has to be installed for it, if it is not part of Parley.
    """

    title: str
    fields: tuple[SetupField, ...]
    instructions: str = ""
    next_steps: str = ""
    entry: Mapping[str, Any] | None = None
    package: str | None = None


PLATFORMS: Mapping[str, SetupStep] = {
    "slack": SetupStep(
        title="Slack",
        instructions="Open this address, choose the workspace, press Create:\n"
        f"  {creation_link(app_manifest())}\n"
        "Then Install App, Install to Workspace; and Basic Information, App-Level Tokens: generate one"
        " with connections:write.",
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
        next_steps="Slack: write to the app under Apps, or /invite it into a channel and mention it.",
    ),
    "telegram": SetupStep(
        title="Telegram",
        instructions="Send /newbot to @BotFather in Telegram; it answers with a token.",
        fields=(
            SetupField(
                key="bot_token", variable="TELEGRAM_BOT_TOKEN", prompt="Bot token (123456:ABC...)"
            ),
        ),
        next_steps="Telegram: write to the bot; it answers with a code for `parley pairing approve CODE`.",
    ),
    "feishu": SetupStep(
        title="Feishu or Lark",
        instructions="Make a custom app at https://open.feishu.cn/app (Lark: https://open.larksuite.com/app), with the"
        " feature Bot\nand the permissions of docs/howto/connect-feishu.md; Credentials & Basic Info shows both.",
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
        next_steps="Feishu: with the service running, subscribe to the event im.message.receive_v1 and the callback"
        " card.action.trigger, and publish a version (docs/howto/connect-feishu.md, step 3).",
    ),
}

MODELS: Mapping[str, SetupStep] = {
    "openai": SetupStep(
        title="OpenAI",
        fields=(
            SetupField(
                key="model", variable="OPENAI_MODEL", prompt="Model", secret=False, default="gpt-5"
            ),
            SetupField(key="api_key", variable="OPENAI_API_KEY", prompt="API key (sk-...)"),
        ),
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
            SetupField(
                key="model",
                variable="ANTHROPIC_MODEL",
                prompt="Model",
                secret=False,
                default="claude-sonnet-4-5",
            ),
            SetupField(key="api_key", variable="ANTHROPIC_API_KEY", prompt="API key (sk-ant-...)"),
        ),
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
        title="a server that speaks OpenAI's API (vLLM, Ollama, LM Studio, a gateway)",
        fields=(
            SetupField(
                key="base_url",
                variable="MODEL_BASE_URL",
                prompt="Its address (http://127.0.0.1:8000/v1)",
                secret=False,
            ),
            SetupField(key="model", variable="MODEL_NAME", prompt="Model", secret=False),
            SetupField(
                key="api_key", variable="MODEL_API_KEY", prompt="API key", default="none-needed"
            ),
        ),
        entry={"name": "server", "use": "langchain_openai:ChatOpenAI"},
    ),
}
