"""The console's files: served without the token, protected from other pages, and free of the service's data."""

from pathlib import Path

import pytest

from gateway.routes.console import PAGE
from tests.gateway.composed import TOKEN, composed

MAX_PAGE_BYTES = 200_000


async def test_the_page_needs_no_token_and_contains_none(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        for path in ("/", "/console"):
            moved = await service.stranger.get(path)
            # Relative, so that it also works below a proxy's path.
            assert (moved.status_code, moved.headers["location"]) == (307, "console/")
        files = sorted(f.relative_to(PAGE).as_posix() for f in PAGE.rglob("*") if f.is_file())
        assert {"index.html", "console.mjs", "kit/api.mjs", "views/overview.mjs"} <= set(files)
        assert sum((PAGE / name).stat().st_size for name in files) <= MAX_PAGE_BYTES
        for name in ("", *files):
            response = await service.stranger.get(f"/console/{name}")
            assert response.status_code == 200
            assert TOKEN not in response.text


async def test_the_page_is_compressed(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        packed = await service.stranger.get("/console/console.mjs")
        plain = await service.stranger.get(
            "/console/console.mjs", headers={"Accept-Encoding": "identity"}
        )
        again = await service.stranger.get(
            "/console/console.mjs", headers={"If-None-Match": packed.headers["etag"]}
        )
        answer = await service.stranger.get("/health")
    assert packed.headers["content-encoding"] == "gzip"
    assert packed.headers["vary"] == "Accept-Encoding"
    assert packed.headers["x-content-type-options"] == "nosniff"
    assert packed.content == plain.content == (PAGE / "console.mjs").read_bytes()
    assert 0 < int(packed.headers["content-length"]) < len(packed.content) / 2
    assert "content-encoding" not in plain.headers
    assert again.status_code == 304
    assert "content-encoding" not in answer.headers


async def test_only_its_own_scripts_run_and_nobody_frames_it(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        page = await service.stranger.get("/console/")
    policy = dict(
        part.split(" ", 1) for part in page.headers["content-security-policy"].split("; ")
    )
    assert policy["default-src"] == "'self'"
    assert "script-src" not in policy
    assert policy["frame-ancestors"] == policy["base-uri"] == policy["form-action"] == "'none'"
    assert page.headers["referrer-policy"] == "no-referrer"
    assert page.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/console/", 401),
        ("POST", "/", 401),
        ("GET", "/consolex", 401),
        ("GET", "/console/../api/channels", 401),
        ("GET", "/console/%2e%2e/auth.py", 404),
        ("GET", "/console/nothing.mjs", 404),
    ],
)
async def test_nothing_else_is_open(tmp_path: Path, method: str, path: str, status: int) -> None:
    async with composed(tmp_path) as service:
        assert (await service.stranger.request(method, path)).status_code == status
