"""GET /console/: the console, a page for administrators. It is static and contains no data of the service.

The page gets its data from the REST API with the token that the person enters. Browsers request the page without one.
"""

from pathlib import Path

from fastapi import FastAPI
from starlette.middleware.gzip import GZipMiddleware
from starlette.responses import RedirectResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope
from typing_extensions import override

from gateway.auth import CONSOLE_PREFIX

PAGE = Path(__file__).parents[1] / "console_page"

HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": (
        "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""The page loads only its own files, no other page can frame it, and its HTML contains no scripts."""


class ConsoleFiles(StaticFiles):
    """The files of the page, with security headers."""

    @override
    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers.update(HEADERS)
        return response


def mount_console(app: FastAPI) -> None:
    """Serve the console under /console/ without a token, compressed, and redirect / to it."""
    app.get("/", include_in_schema=False)(_open_console)
    app.get(CONSOLE_PREFIX, include_in_schema=False)(_open_console)
    app.mount(f"{CONSOLE_PREFIX}/", GZipMiddleware(ConsoleFiles(directory=PAGE, html=True)))


async def _open_console() -> RedirectResponse:
    """Redirect to the folder with a relative address, because a proxy may publish the gateway below a path."""
    return RedirectResponse(CONSOLE_PREFIX.removeprefix("/") + "/")
