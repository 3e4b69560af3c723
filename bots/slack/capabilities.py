"""What Slack can do, with its numbers and where they come from."""

from bus.ports import Capabilities

SLACK = Capabilities(
    patches=False,
    # chat.postMessage: about one message a second and channel, short bursts tolerated
    # (docs.slack.dev/apis/web-api/rate-limits, "special tier").
    send_interval_s=1.0,
    # No key makes a repeated send harmless; messages are looked up by their metadata instead.
    idempotent_send_s=0.0,
    # A reaction stays until it is taken away.
    sign_refresh_s=0.0,
    # 1 GB a file (slack.com/help, "Add files to Slack").
    max_file_bytes=1_000_000_000,
)

BOT_SCOPES = (
    "app_mentions:read",
    "channels:history",
    "chat:write",
    "commands",
    "files:read",
    "files:write",
    "groups:history",
    "im:history",
    "im:read",
    "im:write",
    "mpim:history",
    "reactions:write",
    "users:read",
)
"""What the bot token must be allowed. The app-level token needs `connections:write`."""

BOT_EVENTS = (
    "app_mention",
    "message.channels",
    "message.groups",
    "message.im",
    "message.mpim",
)
"""What the app subscribes to."""
