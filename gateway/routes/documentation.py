"""GET /docs: the documentation as a site, where it was built (`make docs`; wheels contain it)."""

from pathlib import Path

from fastapi import FastAPI, HTTPException
from starlette.responses import RedirectResponse
from starlette.staticfiles import StaticFiles

from gateway.auth import DOCUMENTATION_PREFIX

SITE = Path(__file__).parents[1] / "docs_site"
NOT_BUILT = "The documentation was not built here: run `make docs`, or read the folder docs/."


def mount_documentation(app: FastAPI, site: Path = SITE) -> None:
    """Serve the site under /docs without the admin token. Where it was not built, each page is a 404 that says so."""
    if site.is_dir():
        app.get(DOCUMENTATION_PREFIX, include_in_schema=False)(_open_start_page)
        app.mount(f"{DOCUMENTATION_PREFIX}/", StaticFiles(directory=site, html=True))
    else:
        app.get(f"{DOCUMENTATION_PREFIX}{{page:path}}", include_in_schema=False)(_not_built)


async def _open_start_page() -> RedirectResponse:
    """Redirect to the folder, so that relative links work."""
    return RedirectResponse(f"{DOCUMENTATION_PREFIX}/")


async def _not_built() -> None:
    raise HTTPException(404, NOT_BUILT)
