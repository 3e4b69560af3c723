"""Slack's payloads for an app. Pure."""

import re
import secrets
import time
from collections.abc import Mapping
from typing import Any

from gateway.playground.slack.state import SlackMessage

USER, BOT_USER, BOT_ID, TEAM = "U1ANN", "U0PARLEY", "B0PARLEY", "T1TEAM"


def escape(text: str) -> str:
    """Escape a typed text, like Slack."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


_TOKEN = re.compile(r"<([^<>]+)>")


def composed(text: str) -> list[dict[str, Any]]:
    """Return the blocks that Slack's composer makes from a typed text. `text` contains Slack's markup."""
    parts: list[dict[str, Any]] = []
    at = 0
    for match in _TOKEN.finditer(text):
        parts += _typed(text[at : match.start()])
        parts.append(_composed_token(match[1]))
        at = match.end()
    parts += _typed(text[at:])
    section = {"type": "rich_text_section", "elements": parts}
    return [{"type": "rich_text", "block_id": "b1", "elements": [section]}] if parts else []


def _typed(text: str) -> list[dict[str, Any]]:
    words = text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")
    return [{"type": "text", "text": words}] if words else []


def _composed_token(token: str) -> dict[str, Any]:
    target, _, label = token.partition("|")
    match target[:1], target[1:].partition("^")[0]:
        case "@", _:
            return {"type": "user", "user_id": target[1:]}
        case "#", _:
            return {"type": "channel", "channel_id": target[1:]}
        case "!", "subteam":
            return {"type": "usergroup", "usergroup_id": target.partition("^")[2]}
        case "!", kind:
            return {"type": "broadcast", "range": kind}
        case _:
            return {"type": "link", "url": target, **({"text": label} if label else {})}


def trigger() -> str:
    """Return a new trigger id."""
    return f"{time.time():.6f}.{secrets.token_hex(4)}"


def callback(event: Mapping[str, Any]) -> dict[str, Any]:
    """Wrap an event."""
    return {
        "type": "event_callback", "team_id": TEAM, "api_app_id": "A1APP",
        "event_id": f"Ev{secrets.token_hex(6).upper()}", "event_time": int(time.time()), "event": dict(event),
        "authorizations": [{"team_id": TEAM, "user_id": BOT_USER, "is_bot": True, "enterprise_id": None}],
    }  # fmt: skip


def changed(
    message: SlackMessage, before: Mapping[str, Any], *, at: str, kind: str, **more: object
) -> dict[str, Any]:
    """Return the event of an edited message. `more`: further fields of the edited message."""
    now = message.fields() | {"edited": {"user": message.user, "ts": at}} | more
    return {
        "type": "message", "subtype": "message_changed", "channel": message.channel, "hidden": True, "ts": at,
        "message": now, "previous_message": dict(before), "channel_type": kind,
    }  # fmt: skip


def deleted(message: SlackMessage, *, at: str, kind: str) -> dict[str, Any]:
    """Return the event of a deleted message."""
    return {
        "type": "message", "subtype": "message_deleted", "channel": message.channel, "hidden": True, "ts": at,
        "deleted_ts": message.ts, "previous_message": message.fields(), "channel_type": kind,
    }  # fmt: skip


def slash(text: str, *, channel: str, user: str, command: str, response_url: str) -> dict[str, Any]:
    """Return the payload of a typed command."""
    return {
        "command": command, "text": text, "team_id": TEAM, "channel_id": channel, "user_id": user,
        "user_name": user.lower(), "trigger_id": trigger(), "response_url": response_url,
        "api_app_id": "A1APP", "is_enterprise_install": "false",
    }  # fmt: skip


def pressed(
    message: SlackMessage, action: str, value: str, *, user: str, response_url: str
) -> dict[str, Any]:
    """Return the payload of a pressed button."""
    thread = {"thread_ts": message.thread_ts} if message.thread_ts else {}
    container = {
        "type": "message",
        "message_ts": message.ts,
        "channel_id": message.channel,
        **thread,
    }
    name = user.lower()
    return {
        "type": "block_actions", "api_app_id": "A1APP", "team": {"id": TEAM}, "enterprise": None,
        "user": {"id": user, "username": name, "name": name, "team_id": TEAM}, "trigger_id": trigger(),
        "container": container, "channel": {"id": message.channel, "name": "room"},
        "message": message.fields(), "response_url": response_url,
        "actions": [{
            "type": "button", "action_id": action, "block_id": "b1", "value": value,
            "action_ts": f"{time.time():.6f}", "text": {"type": "plain_text", "text": "?"},
        }],
    }  # fmt: skip


def halted(channel: str, thread: str, *, user: str, at: str, streams: list[str]) -> dict[str, Any]:
    """Return the payload of a press of Slack's own stop button."""
    return {
        "type": "agent_session_stopped", "channel": channel, "thread_ts": thread, "user": user,
        "event_ts": at, "streaming_message_ts": streams,
    }  # fmt: skip
