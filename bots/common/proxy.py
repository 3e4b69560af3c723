"""Selects the proxy for a URL.

slack_sdk and aiohttp both read HTTPS_PROXY. But slack_sdk ignores NO_PROXY, and aiohttp also reads .netrc, whose
entries conflict with tokens.
"""

from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

_SCHEMES = {"ws": "http", "wss": "https"}


def proxy_url_for(url: str) -> str | None:
    """Return the proxy that the environment names for an http(s) or ws(s) address, or None."""
    parts = urlsplit(url)
    if not parts.hostname or proxy_bypass(parts.hostname):
        return None
    proxies = getproxies()
    return proxies.get(_SCHEMES.get(parts.scheme, parts.scheme)) or proxies.get("all")
