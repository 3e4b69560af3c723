"""The app manifest: the complete settings of the Slack app. Pure.

Its format: docs.slack.dev/reference/app-manifest.
"""

import json
from typing import Any
from urllib.parse import quote

from bots.slack.capabilities import AGENT_EVENTS, AGENT_SCOPES, BOT_EVENTS, BOT_SCOPES
from bus.locales.en import ENGLISH

NAME = "Parley"
NAME_CHARS = 35
"""Maximum length of an app's name (display_information.name)."""

DESCRIPTION_CHARS = 300
"""Maximum length of an agent's description (features.agent_view.agent_description)."""

COMMAND = "/parley"
_DESCRIPTION = "Answers, searches the web, works with files, runs code, and remembers what matters."
_HINT = "help | new | status | models | memory | stop"
_CREATE = "https://api.slack.com/apps?new_app=1&manifest_json="


def app_manifest(
    name: str = NAME, *, request_url: str | None = None, agent: bool = False
) -> dict[str, Any]:
    """Return the manifest of an app for this adapter.

    Args:
        name: The name that people mention, at most `NAME_CHARS`.
        request_url: The URL to which Slack sends events, commands and button presses; None = Socket Mode.
        agent: Whether to declare the app an agent, which adds Slack's own status, stop button and prompts. This cannot
            be undone, excludes guests, and makes every direct message a thread.

    >>> app_manifest()["settings"]["socket_mode_enabled"]
    True
    >>> app_manifest(request_url="https://bot.example.org/x")["settings"]["interactivity"]["request_url"]
    'https://bot.example.org/x'
    """
    target = {"request_url": request_url} if request_url else {}
    command = {
        "command": COMMAND,
        **({"url": request_url} if request_url else {}),
        "description": "Commands of the bot",
        "usage_hint": _HINT,
        "should_escape": False,
    }
    scopes = [*BOT_SCOPES, *(AGENT_SCOPES if agent else ())]
    events = [*BOT_EVENTS, *(AGENT_EVENTS if agent else ())]
    return {
        "display_information": {"name": name},
        "features": {
            "app_home": {
                "home_tab_enabled": False,
                "messages_tab_enabled": True,
                "messages_tab_read_only_enabled": False,
            },
            "bot_user": {"display_name": name, "always_online": True},
            "slash_commands": [command],
            **({"agent_view": _agent()} if agent else {}),
        },
        "oauth_config": {"scopes": {"bot": sorted(scopes)}},
        "settings": {
            "event_subscriptions": {**target, "bot_events": sorted(events)},
            "interactivity": {"is_enabled": True, **target},
            "org_deploy_enabled": False,
            "socket_mode_enabled": request_url is None,
            "token_rotation_enabled": False,
        },
    }


def _agent() -> dict[str, Any]:
    offers = (ENGLISH.prompt_abilities, ENGLISH.prompt_document, ENGLISH.prompt_search)
    return {
        "agent_description": _DESCRIPTION,
        "suggested_prompts": [{"title": offer, "message": offer} for offer in offers],
    }


def creation_link(manifest: dict[str, Any]) -> str:
    """Return the URL at which Slack offers to create an app from a manifest.

    >>> creation_link({"a": 1})
    'https://api.slack.com/apps?new_app=1&manifest_json=%7B%22a%22%3A1%7D'
    """
    return _CREATE + quote(json.dumps(manifest, separators=(",", ":")), safe="")
