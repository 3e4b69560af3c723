"""Slack's capabilities and limits, with their sources."""

from dataclasses import replace

from bus.platform import Capabilities

SLACK = Capabilities(
    streaming=False,
    # Streams share 100 appends per minute (tier 4). This leaves room for a few messages in parallel.
    stream_interval_s=1.0,
    # chat.postMessage: about one message per second in each channel, with short bursts
    # (docs.slack.dev/apis/web-api/rate-limits, "special tier").
    send_interval_s=1.0,
    # Slack has no idempotency key. Sent messages are looked up by their metadata instead.
    idempotent_send_s=0.0,
    # An agent's status disappears after 2 minutes (assistant.threads.setStatus). A reaction stays.
    indicator_refresh_s=90.0,
    # 1 GB per file (slack.com/help, "Add files to Slack").
    max_file_bytes=1_000_000_000,
    # "Reply" opens a thread, in which messages do not say what they reply to (docs.slack.dev/messaging).
    has_replies=False,
    progress_notice_after_s=8.0,
)
"""Capabilities if only final answers are sent."""

STREAMING = replace(SLACK, streaming=True)
"""Capabilities if answers grow (`channels.slack.streaming`)."""

REACTIONS_ADDED_A_MINUTE = 50
"""Rate limit of `reactions.add`: tier 3 (docs.slack.dev/apis/web-api/rate-limits)."""

REACTIONS_REMOVED_A_MINUTE = 20
"""Rate limit of `reactions.remove`: tier 2."""

BOT_SCOPES = (
    "app_mentions:read",
    "channels:history",
    "channels:read",
    "chat:write",
    "commands",
    "files:read",
    "files:write",
    "groups:history",
    "groups:read",
    "im:history",
    "im:read",
    "im:write",
    "mpim:history",
    "reactions:write",
    "usergroups:read",
    "users:read",
)
"""Scopes of the bot token. The app-level token needs `connections:write`."""

AGENT_SCOPES = ("assistant:write",)
"""Additional scopes of an app that is declared an agent."""

BOT_EVENTS = (
    "app_mention",
    "app_uninstalled",
    "message.channels",
    "message.groups",
    "message.im",
    "message.mpim",
    "tokens_revoked",
)
"""Events that the app subscribes to."""

AGENT_EVENTS = ("agent_session_stopped", "app_home_opened", "assistant_thread_started")
"""Additional events of an agent."""
