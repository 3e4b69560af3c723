"""The summary of a configuration that `parley serve` and `parley check` print."""

import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from agent.config import DEMO_MODEL_CLASS
from agent.guardrails.factory import find_guardrail_problem
from agent.importer import missing_package_hint
from bots.config import TelegramConfig
from bus.access.policy import effective_dm_policy
from bus.config import ChannelPolicy
from bus.hooks.config import HookConfig
from gateway.auth import LOOPBACK_NAMES
from gateway.config import Config
from gateway.gateway_config import GOOD_TOKEN_CHARS
from gateway.misspelled_keys import find_unknown_model_keys

NAME_WIDTH = 10
DEMO_HINT = "built-in demo; set `models` in config.yaml to use a real model"
SHORT_TOKEN_HINT = (
    f"the admin token has fewer than {GOOD_TOKEN_CHARS} characters and can be guessed: set a longer one, or remove it"
    " to generate one"
)
HOST_BASH_HINT = (
    "sandbox.allow_host_bash: everyone who can use the bot can run any command on this machine, with this user's"
    " permissions"
)
NO_CHANNEL_HINT = "No chat platform yet: parley init"


def summary_lines(config: Config, sandbox: str) -> Iterator[tuple[str, str]]:
    """Yield (name, value) for everything that does not depend on running services.

    Args:
        config: The configuration.
        sandbox: The description of the configured sandbox.
    """
    source = _relative_path(config.source) if config.source else "none found; built-in defaults"
    yield "config", source
    yield "data", _relative_path(config.home)
    yield "model", _model_summary(config)
    yield "sandbox", sandbox
    if config.voice.base_url or config.voice.local_model:
        yield (
            "voice",
            config.voice.local_model or f"{config.voice.model} at {config.voice.base_url}",
        )
    if config.bus.langgraph_url:
        yield "runs", f"on {config.bus.langgraph_url}"
    for name, hook in config.hooks.items():
        yield f"hook {name}", hook_summary(hook)


def _model_summary(config: Config) -> str:
    if "models" in config.dropped:
        return "invalid entries in `models`"
    model = config.agent.chat_models[0]
    is_demo = model.use == DEMO_MODEL_CLASS
    return DEMO_HINT if is_demo else f"{model.display_name or model.name} ({model.model})"


def hook_summary(hook: HookConfig) -> str:
    """Return how a hook's events are signed, and where they go.

    >>> hook_summary(HookConfig(secret="0123456789abcdef", channel="slack", chat="C1", prompt="x"))
    'hmac, into slack C1'
    """
    return f"{hook.form}, into {hook.channel} {hook.chat} {hook.topic}".rstrip()


def channel_lines(states: Mapping[str, Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """Yield (name, state) of each channel."""
    for name, state in states.items():
        if not state["enabled"]:
            yield name, "off"
        else:
            yield name, f"{state['state']}{': ' if state['detail'] else ''}{state['detail']}"


def access_summary(policy: ChannelPolicy) -> str:
    """Return who may use a channel.

    >>> access_summary(TelegramConfig(allowed_users=["7"]))
    'private chats: allowlist, groups: pairing, people from outside: deny'
    """
    return (
        f"private chats: {effective_dm_policy(policy)}, groups: {policy.group_policy},"
        f" people from outside: {policy.external_policy}"
    )


def config_hints(config: Config) -> Iterator[str]:
    """Yield hints about what is missing or wrong."""
    if not has_platform(config):
        yield NO_CHANNEL_HINT
    if 0 < len(config.gateway.admin_token or "") < GOOD_TOKEN_CHARS:
        yield SHORT_TOKEN_HINT
    if config.agent.sandbox.use == "local" and config.agent.sandbox.allow_host_bash:
        yield HOST_BASH_HINT
    yield from _webhook_host_hints(config)
    for name, section in config.bots.platforms.items():
        if section.enabled and section.dm_policy == "allowlist" and not section.allowed_users:
            yield f"channels.{name}.dm_policy is allowlist and allowed_users is empty: nobody gets answers in private"
    yield from config.unknown_keys
    yield from config.warnings


def find_faults(config: Config) -> Iterator[str]:
    """Yield models without a package, their unknown keys, and a guardrail that denies everything. Blocking."""
    if fault := find_guardrail_problem(config.agent.guardrails):
        yield fault
    for model in config.agent.chat_models:
        if fault := missing_package_hint(model.use):
            yield f"the model {model.name} cannot be used: {fault}"
    yield from find_unknown_model_keys(config, imports=False)


def _webhook_host_hints(config: Config) -> Iterator[str]:
    """Yield hosts that `gateway.allowed_hosts` lacks. Telegram's requests to them would be rejected."""
    known = {name.lower() for name in (*LOOPBACK_NAMES, *config.gateway.allowed_hosts)}
    for name, section in config.bots.platforms.items():
        if not (isinstance(section, TelegramConfig) and section.enabled):
            continue
        host = urlsplit(section.webhook_url).hostname
        if section.mode == "webhook" and host is not None and host not in known:
            yield (
                f"channels.{name}.webhook_url uses the host {host}: add it to gateway.allowed_hosts, unless your proxy"
                " changes the Host header"
            )


def has_platform(config: Config) -> bool:
    """Return whether a chat platform other than the terminal is enabled."""
    return any(section.enabled for section in config.bots.platforms.values())


def format_lines(lines: Iterator[tuple[str, str]]) -> str:
    r"""Return lines of name and value, aligned.

    >>> format_lines(iter([("telegram-for-support", "off")]))
    '  telegram-for-support off\n'
    """
    return "".join(f"  {name:<{NAME_WIDTH - 1}} {value}\n" for name, value in lines)


def wrapped(text: str, columns: int) -> str:
    r"""Return a report with its lines wrapped between words, for a terminal of this width.

    >>> wrapped("  token one two\n  - hint\n", 12)
    '  token one\n            two\n  - hint\n'
    """
    rows = (
        textwrap.fill(
            line,
            columns,
            subsequent_indent=" " * (NAME_WIDTH + 2),
            break_long_words=False,
            break_on_hyphens=False,
        )
        for line in text.splitlines()
    )
    return "".join(f"{row}\n" for row in rows)


def _relative_path(path: Path) -> str:
    try:
        return f"./{path.relative_to(Path.cwd())}"
    except ValueError:
        return str(path)
