"""Webhooks of runs, as configured."""

from agent.network.url_guard import UrlGuard
from gateway.config import WEBHOOK_KEY_FILE, Config
from gateway.runtime.webhooks import RunWebhooks, webhook_key


def build_webhooks(config: Config) -> RunWebhooks:
    """Return the webhook sender. It creates the key when it sends the first webhook."""
    guard = UrlGuard(allow_private_hosts=config.gateway.webhook_hosts)
    return RunWebhooks(guard, lambda: webhook_key(config.files / WEBHOOK_KEY_FILE))
