"""The documentation site: built without dead links, and served without the token."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from gateway.routes.documentation import NOT_BUILT, mount_documentation
from tests.gateway.composed import composed

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site like `make docs`. Fails for a dead link or an unlinked page."""
    folder = tmp_path_factory.mktemp("site")
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    done = subprocess.run(build, cwd=ROOT, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_of_the_repository_is_on_the_site(site: Path) -> None:
    pages = [path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md")]
    built = {path.relative_to(site).with_suffix("") for path in site.rglob("*.html")}
    assert len(pages) > 50
    missing = {page.with_suffix("") for page in pages} - built
    assert missing == {Path("decisions/README")}  # is decisions/index.html
    assert {Path("CONTRIBUTING"), Path("SECURITY"), Path("decisions/index")} <= built


def test_the_site_loads_nothing_from_elsewhere(site: Path) -> None:
    start = (site / "index.html").read_text("utf-8")
    assert 'href="http' not in start.replace('href="https://squidfunk.github.io', "")
    assert 'src="http' not in start


def test_a_picture_opens_alone_and_the_copy_button_leaves_the_prompt_out(site: Path) -> None:
    page = (site / "explanation/message-path.html").read_text("utf-8")
    assert re.search(r'<a href="(\.\./pictures/[\w-]+\.svg)"><img [^>]*src="\1"', page)
    assert '<span class="gp">$ </span>' in (site / "howto/install.html").read_text("utf-8")
    assert 'href="../site.css"' in page
    assert "[data-md-copying] .gp" in (site / "site.css").read_text("utf-8")


def test_the_site_is_served_and_relative_links_work(site: Path) -> None:
    app = FastAPI(docs_url=None)
    mount_documentation(app, site)
    with TestClient(app) as client:
        start = client.get("/docs")
        assert (start.status_code, start.url.path) == (200, "/docs/")
        assert "try it in a minute" in start.text
        assert client.get("/docs/howto/install.html").status_code == 200
        assert client.get("/docs/../config.yaml").status_code == 404


def test_the_page_for_a_missing_one_has_its_style_and_working_links(site: Path) -> None:
    app = FastAPI(docs_url=None)
    mount_documentation(app, site)
    with TestClient(app, root_path="/parley") as client:
        missing = client.get("/parley/docs/howto/no-such-page.html")
        assert missing.status_code == 404
        assert '"base": "/parley/docs/"' in missing.text
        links = set(re.findall(r'(?:href|src)="(/[^"#]*)', missing.text))
        assert "/parley/docs/site.css" in links
        assert any("stylesheets" in link for link in links)
        assert {link: client.get(link).status_code for link in links} == dict.fromkeys(links, 200)


def test_a_site_that_is_built_while_the_service_runs_is_served_at_once(
    site: Path, tmp_path: Path
) -> None:
    app = FastAPI(docs_url=None)
    mount_documentation(app, tmp_path / "site")
    with TestClient(app) as client:
        assert client.get("/docs").json() == {"detail": NOT_BUILT}
        (tmp_path / "site").symlink_to(site)
        assert "try it in a minute" in client.get("/docs").text


async def test_a_missing_documentation_site_is_reported_without_a_token(tmp_path: Path) -> None:
    app = FastAPI(docs_url=None)
    mount_documentation(app, tmp_path / "none")
    with TestClient(app) as client:
        for path in ("/docs", "/docs/howto/install.html"):
            assert client.get(path).json() == {"detail": NOT_BUILT}
    async with composed(tmp_path) as service:
        for path in ("/docs", "/docs/", "/docs/index.html"):
            assert (await service.stranger.get(path)).status_code in (200, 307, 404)
        for path in ("/docsx", "/api/docs"):
            assert (await service.stranger.get(path)).status_code == 401
        assert (await service.stranger.post("/docs/index.html")).status_code == 401
