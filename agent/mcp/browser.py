"""The preset `playwright`: a browser through Playwright's MCP server, without private networks.

The server's own lists of allowed origins do not cover redirects, as its help says. So the browser sends all requests
through a proxy that applies the rules of web_fetch (`agent/network/guarded_proxy.py`).
"""

import json
import os
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread

from agent.mcp.process import StderrTail, run_server_process
from agent.mcp.server_config import McpServerConfig
from agent.network.guarded_proxy import guarded_proxy
from agent.network.url_guard import UrlGuard

PACKAGE = "@playwright/mcp@0.0.83"

HIDDEN_TOOLS = frozenset({"browser_run_code_unsafe", "browser_file_upload", "browser_drop"})
"""Tools that the model does not get. The first runs code in the server's process, the others send its files."""

_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@asynccontextmanager
async def run_browser_process(
    config: McpServerConfig, stderr: StderrTail
) -> AsyncIterator[tuple[Any, Any]]:
    """Start the browser's server in an empty folder, behind a proxy; see `run_server_process`.

    Raises:
        OSError: It cannot be started.
    """
    guard = UrlGuard(allow_private_hosts=config.allow_private_hosts)
    async with (
        anyio.TemporaryDirectory(prefix="parley-browser-") as folder,
        guarded_proxy(guard) as proxy,
    ):
        file = Path(folder, "config.json")
        content = await anyio.to_thread.run_sync(_settings, folder, proxy)
        await anyio.Path(file).write_text(json.dumps(content))
        started = config.model_copy(
            update={
                "command": config.command or "npx",
                "args": (*(config.args or ("--yes", PACKAGE)), "--config", str(file)),
            }
        )
        async with run_server_process(started, stderr, cwd=folder) as streams:
            yield streams


def _settings(folder: str, proxy: str) -> dict[str, Any]:
    """Return the server's configuration. Blocking: searches PATH for a browser, and falls back to Playwright's own."""
    program = next(filter(None, map(shutil.which, _BROWSERS)), None)
    launch = {
        "headless": True,
        "chromiumSandbox": os.geteuid() != 0,  # Chromium has no sandbox as root
        "proxy": {"server": proxy},
        # Only WebRTC would not use the proxy by default.
        "args": ["--force-webrtc-ip-handling-policy=disable_non_proxied_udp"],
        **({"executablePath": program} if program else {}),
    }
    return {
        "browser": {
            "browserName": "chromium",
            "isolated": True,
            "launchOptions": launch,
            "contextOptions": {"serviceWorkers": "block"},
        },
        "outputDir": folder,
    }
