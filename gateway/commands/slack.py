"""`parley slack manifest`: prints the manifest of the Slack app."""

import argparse
import json
import sys
from urllib.parse import urlsplit

import yaml

from bots.common.webhooks import webhook_path
from bots.slack.manifest import NAME_CHARS, app_manifest, creation_link
from gateway.command_errors import CommandFailed


def run(arguments: argparse.Namespace) -> int:
    """Print the manifest. Does not read the configuration."""
    name = str(arguments.name).strip()
    if not 0 < len(name) <= NAME_CHARS:
        raise CommandFailed(f"--name: a Slack app's name must have 1 to {NAME_CHARS} characters")
    found = app_manifest(name, request_url=_request_url(arguments.http), agent=arguments.agent)
    if arguments.link:
        sys.stdout.write(f"{creation_link(found)}\n")
    elif arguments.json:
        sys.stdout.write(f"{json.dumps(found, indent=2, ensure_ascii=False)}\n")
    else:
        sys.stdout.write(yaml.safe_dump(found, sort_keys=False, allow_unicode=True))
    return 0


def _request_url(base: str | None) -> str | None:
    """Return the URL for Slack's requests. Raises CommandFailed."""
    if base is None:
        return None
    try:
        parts = urlsplit(base)
        right = parts.scheme == "https" and parts.hostname and not (parts.query or parts.fragment)
    except ValueError:
        right = False
    if not right:
        raise CommandFailed(
            f"--http {base}: must be the gateway's public URL, such as https://bot.example.org"
        )
    return f"{base.rstrip('/')}{webhook_path('slack')}"
