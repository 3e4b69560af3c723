"""GET /api/audit: who changed what, including rotated files."""

import csv
import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from gateway.audit import AuditEntry, AuditFilter, AuditLog, read_entries
from tests.gateway.composed import ComposedService, composed


def entry(number: int) -> AuditEntry:
    return AuditEntry(
        time=f"2026-01-01T00:00:{number:02}.000+00:00",
        who="token ci",
        address="127.0.0.1",
        request_id=f"r{number}",
        action="POST /api/tokens",
        target=f"/api/tokens?n={number}",
        status=200 if number % 2 else 409,
        detail="",
    )


async def rows(service: ComposedService, query: str = "") -> list[dict[str, Any]]:
    response = await service.client.get(f"/api/audit{query}")
    assert response.status_code == 200, response.text
    return list(response.json()["rows"])


async def test_pages_go_on_in_rotated_files_and_survive_a_rotation(tmp_path: Path) -> None:
    file = tmp_path / "audit.log"
    audit = AuditLog(file, max_bytes=1000)
    for number in range(15):
        await audit.append(entry(number))
    assert file.with_name("audit.log.2").exists()
    seen: list[AuditEntry] = []
    before: str | None = ""
    while before is not None:
        page, before = read_entries(file, AuditFilter(), before=before, limit=4)
        seen += page
        if len(seen) == 4:
            for number in range(20, 24):  # It rotates once more.
                await audit.append(entry(number))
    assert seen == [entry(number) for number in range(14, -1, -1)]


async def test_damaged_lines_are_left_out(tmp_path: Path) -> None:
    file = tmp_path / "audit.log"
    await AuditLog(file).append(entry(1))
    file.write_bytes(b'{"time": 1}\nnot json\n' + file.read_bytes() + b'{"cut')
    assert read_entries(file, AuditFilter()) == ([entry(1)], None)
    assert read_entries(tmp_path / "none", AuditFilter()) == ([], None)


async def test_entries_are_filtered_and_tokens_have_names(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        await service.client.post("/api/tokens", json={"name": "ci", "scope": "operator"})
        await service.client.post("/api/tokens", json={"name": "ci", "scope": "operator"})
        token = (await service.client.post("/api/tokens/ci/rotate")).json()["token"]
        headers = {"X-Api-Key": token}
        await service.stranger.post("/api/channels/none/restart", headers=headers)
        await service.stranger.post("/api/channels/none/restart", headers={"X-Api-Key": "wrong"})
        found = await rows(service)
        assert [row["who"] for row in found] == [
            "(wrong token)", "token ci", "admin token", "admin token", "admin token",
        ]  # fmt: skip
        assert [row["status"] for row in await rows(service, "?outcome=refused")] == [401, 404, 409]
        assert len(await rows(service, "?outcome=done&who=admin+token")) == 2
        assert len(await rows(service, "?q=ROTATE")) == 1
        assert await rows(service, "?since=2999-01-01T00:00:00Z") == []
        page = (await service.client.get("/api/audit?limit=3")).json()
        assert [*page["rows"], *await rows(service, f"?before={page['next']}")] == found
        for before in ("../etc", "1.10000001", "1.999999999999", "99.1.1", "1.-1", "-1.1"):
            refused = await service.client.get("/api/audit", params={"before": before})
            assert refused.status_code == 422, before
        refused = await service.stranger.get("/api/audit", headers=headers)
        assert refused.status_code == 403


async def test_downloads_hold_everything_and_no_formulas(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        log = AuditLog(service.services.config.audit_file)
        await log.append(replace(entry(1), target="=HYPERLINK()", detail="<b>, 'x'"))
        await log.append(entry(2))
        lines = (await service.client.get("/api/audit?format=jsonl")).text.splitlines()
        assert [json.loads(line)["request_id"] for line in lines] == ["r2", "r1"]
        response = await service.client.get("/api/audit?format=csv&q=hyperlink")
        (row,) = csv.DictReader(io.StringIO(response.text))
        assert (row["target"], row["detail"]) == ("'=HYPERLINK()", "<b>, 'x'")
        assert "attachment" in response.headers["content-disposition"]


async def test_a_token_knows_when_it_was_last_used(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        created = await service.client.post("/api/tokens", json={"name": "ci", "scope": "read"})
        headers = {"X-Api-Key": created.json()["token"]}

        async def used() -> str | None:
            (token,) = (await service.client.get("/api/tokens")).json()["rows"]
            return str(token["last_used_at"]) if token["last_used_at"] else None

        assert await used() is None
        assert (await service.stranger.get("/api/channels", headers=headers)).status_code == 200
        assert await used() is not None
