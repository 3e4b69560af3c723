"""GET /docs: the documentation as a site, if it was built (`make docs`; wheels contain it)."""

import html
from pathlib import Path

import anyio
import httpx
from fastapi import FastAPI, HTTPException
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope
from typing_extensions import override

from gateway.auth import DOCUMENTATION_PREFIX

SITE = Path(__file__).parents[1] / "docs_site"
NOT_BUILT = "The documentation was not built here: run `make docs`, or read the folder docs/."


class DocumentationSite(StaticFiles):
    """The site's files. The page for missing files is built for a host's root, so its links get the prefix here."""

    @override
    async def check_config(self) -> None:
        """Report a site that is not built. Starlette calls it for each request until it succeeds."""
        if not await anyio.Path(str(self.directory)).is_dir():
            raise HTTPException(404, NOT_BUILT)

    @override
    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return a file, or the page for missing files. `make docs` may build the site while the service runs."""
        response = await super().get_response(path, scope)
        if response.status_code != httpx.codes.NOT_FOUND:
            return response
        try:
            page = await anyio.Path(str(self.directory), "404.html").read_text("utf-8")
        except FileNotFoundError:
            raise HTTPException(404, NOT_BUILT) from None
        root = f'"{html.escape(scope["root_path"])}/'
        for link in ('href="/', 'src="/', '"base": "/'):
            page = page.replace(link, f"{link[:-2]}{root}")
        return HTMLResponse(page, response.status_code)


def mount_documentation(app: FastAPI, site: Path = SITE) -> None:
    """Serve the site under /docs without the admin token. While it is not built, answer with a 404 that says so."""
    files = DocumentationSite(directory=site, html=True, check_dir=False)
    app.get(DOCUMENTATION_PREFIX, include_in_schema=False)(_open_start_page)
    app.mount(f"{DOCUMENTATION_PREFIX}/", files)


async def _open_start_page() -> RedirectResponse:
    """Redirect to the folder, so that relative links work."""
    return RedirectResponse(f"{DOCUMENTATION_PREFIX}/")
