"""/api/channels/{channel}/messages: refused requests, and the rows stored for accepted ones. Journeys test the rest."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.gateway.composed import ComposedService, composed

ROUTE = "/api/channels/telegram/messages"
TELEGRAM = {"enabled": True, "bot_token": "1:x", "base_url": "http://127.0.0.1:1/bot"}
CONFIG = json.dumps({"channels": {"telegram": TELEGRAM}})
MESSAGE = {"chat": "7", "text": "Backup failed", "key": "backup-7"}


async def post(service: ComposedService, **body: object) -> httpx.Response:
    return await service.client.post(ROUTE, json={**MESSAGE, **body})


async def test_a_message_is_stored_while_the_platform_is_away(tmp_path: Path) -> None:
    async with composed(tmp_path, CONFIG) as service:
        sent = await post(service)
        assert sent.status_code == 202
        view = sent.json()
        assert (view["chat"], view["person"], view["topic"]) == ("7", "", "")
        assert (view["is_repeat"], view["state"] in ("pending", "sending")) == (False, True)
        assert [row["key"] for row in view["deliveries"]] == ["notification:telegram:backup-7:0"]
        assert (await post(service)).json()["is_repeat"] is True
        known = (await service.client.get(f"{ROUTE}/backup-7")).json()
        assert (known["key"], known["created_at"]) == ("backup-7", view["created_at"])
        other = await post(service, text="Backup worked")
        assert (other.status_code, other.json()["detail"]) == (
            409,
            "Another message has the key 'backup-7'.",
        )
        person = await post(service, chat="", person="7", key=None)
        assert (person.json()["person"], person.json()["chat"]) == ("7", "")
        assert len(person.json()["key"]) == 32
    log = (tmp_path / "home" / "audit.log").read_text()
    details = [json.loads(line)["detail"] for line in log.splitlines()]
    assert details[:3] == [
        "message backup-7 to chat 7",
        "message backup-7 to chat 7, repeated",
        "",
    ]
    assert details[3].endswith(" to person 7")
    assert "Backup failed" not in log


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"chat": ""}, "give a chat or a person"),
        ({"person": "7"}, "give a chat or a person"),
        ({"chat": "", "person": "7", "topic": "1"}, "a topic needs a chat"),
        ({"text": " \n\x07"}, "neither a text nor a file"),
        ({"text": "x" * 60_001}, "60000 characters"),
        ({"chat": "7\x00"}, "pattern"),
        ({"chat": "7" * 201}, "200 characters"),
        ({"chat": 7}, "valid string"),
        ({"key": "../x"}, "pattern"),
    ],
)
async def test_malformed_messages_are_refused(
    tmp_path: Path, change: dict[str, Any], words: str
) -> None:
    async with composed(tmp_path, CONFIG) as service:
        refused = await post(service, **change)
        assert (refused.status_code, words in refused.text) == (422, True), refused.text


async def test_bodies_that_are_neither_json_nor_a_form_are_refused(tmp_path: Path) -> None:
    async with composed(tmp_path, CONFIG) as service:
        for content in (b"", b"{", b"\xff", b'"text"', b"[]", b"[" * 100_000):
            refused = await service.client.post(ROUTE, content=content)
            assert refused.status_code in (400, 422), content
        headers = {"Content-Type": "multipart/form-data; boundary=x"}
        refused = await service.client.post(ROUTE, content=b"--y\r\n", headers=headers)
        assert refused.status_code == 400


@pytest.mark.parametrize("route", [ROUTE, "/api/channels/broadcast"])
@pytest.mark.parametrize(
    ("charset", "status"),
    [
        *(("undefined", 400), ("punycode", 400)),
        *(("latin-1", 202), ("no-such-charset", 202), ("base64", 202)),
    ],
)
async def test_a_form_is_read_in_any_charset_or_refused(
    tmp_path: Path, route: str, charset: str, status: int
) -> None:
    form = b'--x\r\nContent-Disposition: form-data; name="%s"\r\n\r\n%s\r\n'
    body = form % (b"chat", b"7") + form % (b"text", b"caf\xc3\xa9") + b"--x--\r\n"
    headers = {"Content-Type": f"multipart/form-data; boundary=x; charset={charset}"}
    async with composed(tmp_path, CONFIG) as service:
        sent = await service.client.post(route, content=body, headers=headers)
    assert sent.status_code == (200 if status == 202 and route != ROUTE else status), sent.text


async def test_files_are_stored_once_and_their_limits_hold(tmp_path: Path) -> None:
    async with composed(tmp_path, CONFIG) as service:
        fields = {"chat": "7", "key": "files"}
        report = ("files", ("../\u202ereport.csv", b"a,b\n1,2\n"))
        sent = await service.client.post(ROUTE, data=fields, files=[report, report])
        assert sent.status_code == 202, sent.text
        rows = sent.json()["deliveries"]
        assert [(row["kind"], row["preview"]) for row in rows] == [("file", "report.csv")] * 2
        again = await service.client.post(ROUTE, data=fields, files=[report, report])
        assert again.json()["is_repeat"] is True
        changed = ("files", ("report.csv", b"other"))
        refused = await service.client.post(ROUTE, data=fields, files=[report, changed])
        assert refused.status_code == 409
        for file, status in (
            (("files", ("empty.csv", b"")), 422),
            (("files", ("large.bin", b"x" * 50_000_001)), 413),
            (("files", (None, b"no name")), 400),
        ):
            refused = await service.client.post(ROUTE, data={"chat": "7"}, files=[file])
            assert refused.status_code == status, refused.text
        many = [("files", (f"{n}.txt", b"x")) for n in range(11)]
        refused = await service.client.post(ROUTE, data={"chat": "7"}, files=many)
        assert refused.status_code == 400


async def test_unknown_channels_and_messages_are_not_found(tmp_path: Path) -> None:
    async with composed(tmp_path, CONFIG) as service:
        for channel, status in (("nowhere", 404), ("slack", 404), ("terminal", 409)):
            refused = await service.client.post(f"/api/channels/{channel}/messages", json=MESSAGE)
            assert refused.status_code == status
        assert (await service.client.get(f"{ROUTE}/never")).status_code == 404
        await service.client.post("/api/channels/broadcast", json={"text": "x", "key": "all"})
        assert (await service.client.get(f"{ROUTE}/all")).status_code == 404


async def test_only_a_token_that_may_change_something_sends(tmp_path: Path) -> None:
    async with composed(tmp_path, CONFIG) as service:
        assert (await service.stranger.post(ROUTE, json=MESSAGE)).status_code == 401
        for scope, statuses in (("read", (403, 404)), ("operator", (202, 200))):
            made = await service.client.post("/api/tokens", json={"name": scope, "scope": scope})
            headers = {"X-Api-Key": made.json()["token"]}
            sent = await service.stranger.post(ROUTE, json=MESSAGE, headers=headers)
            found = await service.stranger.get(f"{ROUTE}/backup-7", headers=headers)
            assert (sent.status_code, found.status_code) == statuses
