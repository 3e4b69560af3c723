"""The REST API of the running service."""

import os
import struct
import time
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from uuid import uuid4

import anyio
import httpx
import pytest

from agent.zip_limits import MAX_ENTRIES
from bots.terminal.adapter import TerminalAdapter
from bots.terminal.session import TerminalEvent, TerminalMessage
from bus.messages import OutboundText, ReplyTarget, encode_outbound
from gateway.routes.artifacts import is_active
from gateway.terminal.local_client import is_session_idle
from gateway.terminal.session_events import SessionIdle, stream_session_events
from store.conversations import ConversationKey
from store.outbox import NewOutboxRow
from store.pairings import Pairing
from tests.asgi import StreamingASGITransport
from tests.eventually import eventually
from tests.gateway.composed import ComposedService, composed

KEY = ConversationKey(channel="terminal", workspace="local", chat="s1")
END = struct.Struct("<4s4H2LH")


async def test_health_reports_it(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        answer = await service.stranger.get("/health")
        assert answer.json() == {"status": "healthy", "service": "parley"}


async def test_models_without_keys_and_addresses(tmp_path: Path) -> None:
    text = """
models:
  - {name: big, display_name: Big, use: "agent.models.demo:DemoChatModel", model: demo,
     api_key: hush-hush-key, base_url: "http://inside.example", supports_vision: true}
  - {name: small, use: "agent.models.demo:DemoChatModel", model: demo}
"""
    async with composed(tmp_path, text) as service:
        answer = await service.client.get("/api/models")
        assert [model["name"] for model in answer.json()["models"]] == ["big", "small"]
        one = await service.client.get("/api/models/big")
        assert one.json()["display_name"] == "Big"
        assert one.json()["supports_vision"] is True
        for text in (answer.text, one.text):
            assert "hush-hush" not in text
            assert "inside.example" not in text
        assert (await service.client.get("/api/models/none")).status_code == 404


async def test_memory_is_an_empty_document(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        document = (await service.client.get("/api/memory")).json()
        assert document["facts"] == []
        assert set(document["user"]) == {"workContext", "personalContext", "topOfMind"}


async def test_channels_report_their_true_state(tmp_path: Path) -> None:
    text = "channels: {slack: {enabled: true, bot_token: xoxb-1-literal}}"
    async with composed(tmp_path, text) as service:
        answer = await service.client.get("/api/channels")
        slash = await service.client.get("/api/channels/")
        assert slash.status_code == 200
        assert slash.json().keys() == answer.json().keys()
        body = answer.json()
        assert body["service_running"] is True
        assert list(body["channels"]) == ["slack", "telegram", "feishu", "terminal"]
        slack, telegram = body["channels"]["slack"], body["channels"]["telegram"]
        assert (slack["enabled"], slack["running"], slack["state"]) == (True, False, "failed")
        assert "channels.slack.app_token is not set" in slack["detail"]
        assert (telegram["enabled"], telegram["running"]) == (False, False)
        assert telegram["state"] == "disabled"
        assert body["channels"]["terminal"]["enabled"] is True

        async def terminal_runs() -> bool:
            channels = (await service.client.get("/api/channels")).json()["channels"]
            return channels["terminal"]["running"] is True

        await eventually(terminal_runs)
        assert "xoxb" not in answer.text


async def test_restart_reports_what_it_did(tmp_path: Path) -> None:
    text = "channels: {feishu: {enabled: true}}"
    async with composed(tmp_path, text) as service:
        done = await service.client.post("/api/channels/terminal/restart")
        assert done.json()["success"] is True
        off = await service.client.post("/api/channels/slack/restart")
        assert off.json()["success"] is False
        assert "channels.slack.enabled" in off.json()["message"]
        faulty = await service.client.post("/api/channels/feishu/restart")
        assert faulty.json()["success"] is False
        assert (await service.client.post("/api/channels/irc/restart")).status_code == 404


async def test_an_answer_leaves_its_traces(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        with terminal(service).attach("s1") as session:
            await session.say("hello")
            shown = await until_rest(service, "s1", session.events())
        assert "hello" in shown[-1].text
        (conversation,) = (await service.client.get("/api/channels/conversations")).json()["rows"]
        assert (conversation["channel"], conversation["chat"]) == ("terminal", "s1")
        (message,) = (await service.client.get("/api/channels/inbox")).json()["rows"]
        assert (message["state"], message["preview"]) == ("done", "hello")
        assert message["thread_id"] == conversation["thread_id"]
        found = await service.client.post("/api/threads/search", json={})
        assert [thread["thread_id"] for thread in found.json()] == [conversation["thread_id"]]
        rows = (await service.client.get("/api/channels/outbox")).json()["rows"]
        assert {row["state"] for row in rows} == {"delivered"}
        none = await service.client.get("/api/channels/outbox", params={"state": "failed"})
        assert none.json()["rows"] == []
        wrong = await service.client.get("/api/channels/outbox", params={"state": "lost"})
        assert wrong.status_code == 422


async def test_a_failed_delivery_is_sent_again_or_forgotten(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        outbox = service.services.bus.outbox if service.services.bus else None
        assert outbox is not None
        body = OutboundText(
            channel="terminal", reply_target=ReplyTarget(chat="s1"), markdown="late"
        )
        new = NewOutboxRow(key="t:1", conversation=KEY, body=encode_outbound(body))
        with terminal(service).attach("s1") as session:
            (row,) = await outbox.enqueue([new])
            await outbox.mark_failed(row.id, error="the platform was away", now=time.time())
            listed = await service.client.get("/api/channels/outbox", params={"state": "failed"})
            assert listed.json()["rows"][0]["error"] == "the platform was away"
            again = await service.client.post(f"/api/channels/outbox/{row.id}/resend")
            assert again.json()["success"] is True
            shown = await until_rest(service, "s1", session.events())
            assert shown == [TerminalMessage(id="t:1", text="late", final=True)]
            assert (await outbox.get(row.id)).state == "delivered"
        conflict = await service.client.post(f"/api/channels/outbox/{row.id}/resend")
        assert conflict.status_code == 409
        assert (await service.client.delete(f"/api/channels/outbox/{row.id}")).status_code == 204
        assert (await service.client.delete(f"/api/channels/outbox/{row.id}")).status_code == 404


async def test_damaged_rows_are_listed_for_the_administrator(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        bus = service.services.bus
        assert bus is not None
        await bus.outbox.enqueue([NewOutboxRow(key="bad", conversation=KEY, body="{")])
        listed = await service.client.get("/api/channels/outbox")
        assert [(row["kind"], row["preview"]) for row in listed.json()["rows"]] == [
            ("undecodable", "{")
        ]


async def test_pairings_can_be_approved_over_rest(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        bus = service.services.bus
        assert bus is not None
        asked = Pairing(
            code="ABCD2345",
            channel="telegram",
            workspace="1",
            user_id="42",
            user_name="Ann",
            chat="42",
            created_at=time.time(),
            approved_at=None,
        )
        await bus.pairings.request(asked)
        (row,) = (await service.client.get("/api/channels/pairings")).json()["rows"]
        assert (row["code"], row["user_name"], row["approved_at"]) == ("ABCD2345", "Ann", None)
        unknown = await service.client.post("/api/channels/pairings/ZZZZ9999/approve")
        assert unknown.status_code == 404
        done = await service.client.post("/api/channels/pairings/abcd2345/approve")
        assert done.status_code == 200
        assert done.json()["approved_at"]
        assert await bus.pairings.is_paired("telegram", "1", "42")
        path = "/api/channels/pairings/telegram/42"
        assert (await service.client.delete(path)).status_code == 204
        assert (await service.client.delete(path)).status_code == 404


async def test_before_and_after_the_bus_channels_are_not_running(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        app, client = service.app, service.client
        assert (await client.get("/api/channels")).json()["service_running"] is True
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://parley.internal") as late:
        body = (await late.get("/api/channels")).json()
        assert body["service_running"] is False
        assert not any(state["running"] for state in body["channels"].values())
        assert (await late.get("/api/channels/inbox")).status_code == 503


@pytest.mark.parametrize("prefix", ["/api", "/api/langgraph"])
async def test_a_deleted_thread_leaves_no_file(tmp_path: Path, prefix: str) -> None:
    async with composed(tmp_path) as service:
        made = await service.client.post(f"{prefix}/threads", json={})
        thread_id = made.json()["thread_id"]
        folder = service.services.agent_services.folders.folders(thread_id)
        folder.create()
        (folder.outputs / "a.txt").write_text("x")
        assert (await service.client.delete(f"{prefix}/threads/{thread_id}")).status_code == 204
        assert not folder.root.exists()
        gone = await service.client.get(f"{prefix}/threads/{thread_id}")
        assert gone.status_code == 404
        again = await service.client.delete(f"{prefix}/threads/{thread_id}")
        assert again.status_code == 404
        assert (await service.client.delete(f"{prefix}/threads/not-a-uuid")).status_code == 422


def files_of_a_thread(service: ComposedService) -> tuple[str, Path]:
    thread_id = str(uuid4())
    folder = service.services.agent_services.folders.folders(thread_id)
    folder.create()
    return thread_id, folder.outputs


@pytest.mark.parametrize(
    ("name", "mime", "disposition"),
    [
        ("notes.txt", "text/plain; charset=utf-8", "inline"),
        ("data.csv", "text/csv; charset=utf-8", "inline"),
        ("page.html", "text/html; charset=utf-8", "attachment"),
        ("page.xhtml", "application/xhtml+xml", "attachment"),
        ("drawing.svg", "image/svg+xml", "attachment"),
        ("mail.eml", "message/rfc822", "attachment"),
        ("picture.png", "image/png", "inline"),
        ("unknown.zzz9", "application/octet-stream", "inline"),
        ("Übersicht 你好.txt", "text/plain; charset=utf-8", "inline"),
    ],
)
async def test_artifacts_are_served_inertly(
    tmp_path: Path, name: str, mime: str, disposition: str
) -> None:
    async with composed(tmp_path) as service:
        thread_id, outputs = files_of_a_thread(service)
        (outputs / name).write_bytes(b"content " * 100_000)
        base = f"/api/threads/{thread_id}/artifacts/mnt/user-data/outputs"
        answer = await service.client.get(f"{base}/{name}")
        assert answer.status_code == 200
        assert answer.content == b"content " * 100_000
        assert answer.headers["content-type"] == mime
        assert answer.headers["content-disposition"].startswith(disposition)
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["content-security-policy"] == "default-src 'none'; sandbox"
        download = await service.client.get(f"{base}/{name}", params={"download": "true"})
        assert download.headers["content-disposition"].startswith("attachment")


def test_types_that_a_browser_may_run_are_known() -> None:
    assert all(map(is_active, ["text/html", "text/javascript", "application/rss+xml", "text/xsl"]))
    assert not any(map(is_active, ["text/plain", "application/pdf", "application/json"]))


async def test_parts_of_a_skill_file(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        thread_id, outputs = files_of_a_thread(service)
        with zipfile.ZipFile(outputs / "mine.skill", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("mine/SKILL.md", "# Mine")
            archive.writestr("mine/page.html", "<script>")
            archive.writestr("mine/large.bin", bytes(16 * 1024 * 1024 + 1))
        (outputs / "broken.skill").write_bytes(b"PK, but no archive")
        (outputs / "folder.skill").mkdir()
        (outputs / "folder.skill" / "SKILL.md").write_text("# Unpacked")
        base = f"/api/threads/{thread_id}/artifacts/mnt/user-data/outputs"
        for path in ("mine.skill/SKILL.md", "mine.skill/mine/SKILL.md"):
            answer = await service.client.get(f"{base}/{path}")
            assert (answer.status_code, answer.text) == (200, "# Mine")
            assert answer.headers["content-type"] == "text/markdown; charset=utf-8"
            assert answer.headers["content-disposition"].startswith("inline")
        page = await service.client.get(f"{base}/mine.skill/page.html")
        assert page.headers["content-disposition"].startswith("attachment")
        assert page.headers["x-content-type-options"] == "nosniff"
        whole = await service.client.get(f"{base}/mine.skill")
        assert whole.content == (outputs / "mine.skill").read_bytes()
        assert (await service.client.get(f"{base}/folder.skill/SKILL.md")).text == "# Unpacked"
        for path, status in [
            ("mine.skill/large.bin", 413),
            ("mine.skill/none.md", 404),
            ("mine.skill/mine", 404),
            ("mine.skill/..%2f..%2fx", 403),
            ("broken.skill/SKILL.md", 404),
            ("none.skill/SKILL.md", 404),
        ]:
            assert (await service.client.get(f"{base}/{path}")).status_code == status, path


async def test_the_directory_of_a_skill_file_is_limited(tmp_path: Path) -> None:
    """Python reads the zip directory whole: without a limit, 50 MB took 13 s and 400 MB of memory."""
    async with composed(tmp_path) as service:
        thread_id, outputs = files_of_a_thread(service)
        with zipfile.ZipFile(outputs / "many.skill", "w") as archive:
            for number in range(MAX_ENTRIES):
                archive.writestr(f"{number}", "")
            archive.writestr("SKILL.md", "# Mine")
        whole = (outputs / "many.skill").read_bytes()
        directory, end = whole[: -END.size], END.unpack(whole[-END.size :])
        real = struct.pack("<4sQ2H2L4Q", b"PK\6\6", 44, 45, 45, 0, 0, *([end[4]] * 2), *end[5:7])
        locator = struct.pack("<4sLQL", b"PK\6\7", 0, len(directory), 1)
        posed = END.pack(b"PK\5\6", 0, 0, 1, 1, 46, *end[6:])
        (outputs / "posed.skill").write_bytes(directory + real + locator + posed)
        for name in ("many", "posed"):
            path = f"/api/threads/{thread_id}/artifacts/mnt/user-data/outputs/{name}.skill/SKILL.md"
            answer = await service.client.get(path)
            assert answer.status_code == 413, name


async def test_a_text_is_served_with_its_charset(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        thread_id, outputs = files_of_a_thread(service)
        (outputs / "notes.txt").write_text("Grüße", "utf-16")
        base = f"/api/threads/{thread_id}/artifacts/mnt/user-data/outputs"
        answer = await service.client.get(f"{base}/notes.txt")
        assert answer.headers["content-type"] == "text/plain; charset=utf-16"
        assert answer.text == "Grüße"


async def test_no_path_leads_out_of_a_thread(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("hush-hush")
    async with composed(tmp_path) as service:
        thread_id, outputs = files_of_a_thread(service)
        other_id, other = files_of_a_thread(service)
        (other / "other.txt").write_text("hush-hush")
        (outputs / "link.txt").symlink_to(tmp_path / "secret.txt")
        (outputs / "folder").symlink_to(tmp_path)
        (outputs / "inner").mkdir()
        os.mkfifo(outputs / "pipe")
        table: list[tuple[str, int]] = [
            ("mnt/user-data/outputs/link.txt", 404),
            ("mnt/user-data/outputs/folder/secret.txt", 404),
            ("mnt/user-data/outputs/inner", 400),
            ("mnt/user-data/outputs/pipe", 400),
            ("mnt/user-data", 400),
            ("mnt/user-data/outputs/none.txt", 404),
            ("mnt/user-data/outputs/%2e%2e/%2e%2e/%2e%2e/%2e%2e/secret.txt", 403),
            ("mnt/user-data/outputs/..%2f..%2fx", 403),
            (f"mnt/user-data/outputs/%2e%2e/%2e%2e/%2e%2e/{other_id}/user-data/outputs/other.txt", 403),
            ("mnt/skills/x", 403),
            ("etc/passwd", 403),
            ("%2fetc/passwd", 403),
            ("mnt/user-data2/x", 403),
            ("mnt/user-data/outputs/a%00b", 403),
            ("mnt/user-data/outputs\\x", 403),
        ]  # fmt: skip
        for path, status in table:
            answer = await service.client.get(f"/api/threads/{thread_id}/artifacts/{path}")
            assert answer.status_code == status, path
            assert "hush-hush" not in answer.text
            assert str(tmp_path) not in answer.text
        bad = await service.client.get("/api/threads/a%2eb/artifacts/mnt/user-data/outputs/x")
        assert bad.status_code == 422


async def test_a_choice_below_a_terminals_question_is_made_over_http(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        http, url = service.client, "/api/channels/terminal"
        with terminal(service).attach("s1") as session:
            await http.post(f"{url}/s1/messages", json={"text": "ask me something"})
            events = session.events()
            while not (isinstance(event := await anext(events), TerminalMessage) and event.buttons):
                pass
            red, green = (button.token for button in event.buttons[:2])
            body = {"token": green, "message": event.id, "id": "p1"}
            pressed = await http.post(f"{url}/s1/presses", json=body)
            assert (pressed.status_code, pressed.json()) == (200, {"text": ""})
            while not (
                isinstance(event := await anext(events), TerminalMessage) and "Green" in event.text
            ):
                pass
            body = {**body, "token": red, "id": "p2"}
            assert (await http.post(f"{url}/s1/presses", json=body)).json()["text"]
        (found,) = (await http.get(url)).json()["sessions"]
        assert found["name"] == "s1"


async def test_a_terminal_can_chat_over_http(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        transport = StreamingASGITransport(service.app)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://parley.internal"
        ) as http:
            async with http.stream("GET", "/api/channels/terminal/s1/events") as events:
                lines = events.aiter_lines()
                with anyio.fail_after(20):
                    assert await anext(lines) == ": attached"
                    body = {"text": "/help", "id": "once"}
                    for expected in ("accepted", "duplicate"):
                        said = await http.post("/api/channels/terminal/s1/messages", json=body)
                        assert said.json() == {"result": expected}
                    joined, line, again, shown, idle = [await anext_data(lines) for _ in range(5)]
            assert '"kind":"joined"' in joined
            assert line == again == '{"kind":"line","id":"once","text":"/help"}'
            assert '"kind":"shown"' in shown
            assert "Available commands:" in shown
            assert idle == '{"kind":"idle"}'
            bad = await http.post("/api/channels/terminal/a%20b/messages", json={"text": "x"})
            assert bad.status_code == 422


async def test_a_file_is_attached_to_a_line_over_http(tmp_path: Path) -> None:
    async with composed(tmp_path) as service:
        http, url = service.client, "/api/channels/terminal/s1"
        kept = await http.post(f"{url}/files", params={"name": "a.txt"}, content=b"hello")
        assert kept.status_code == 201
        said = await http.post(
            f"{url}/messages", json={"text": "x", "files": [kept.json()["file"]]}
        )
        assert said.json() == {"result": "accepted"}
        missing = await http.post(f"{url}/messages", json={"text": "x", "files": ["0" * 32]})
        assert (missing.status_code, "no longer exists" in missing.json()["detail"]) == (404, True)
        large = await http.post(f"{url}/files", params={"name": "b"}, content=b"x" * 50_000_001)
        assert (large.status_code, large.json()["detail"]) == (413, "it is larger than 50 MB")


async def anext_data(lines: AsyncIterator[str]) -> str:
    async for line in lines:
        if line.startswith("data: "):
            return str(line.removeprefix("data: "))
    raise AssertionError("the stream ended")


def terminal(service: ComposedService) -> TerminalAdapter:
    assert service.services.terminal is not None
    return service.services.terminal


async def until_rest(
    service: ComposedService, session: str, events: AsyncIterator[TerminalEvent]
) -> list[TerminalMessage]:
    """Return the finished messages until the session is idle."""
    bus = service.services.bus
    assert bus is not None
    shown: list[TerminalMessage] = []
    with anyio.fail_after(20):
        async for item in stream_session_events(events, lambda: is_session_idle(bus, session)):
            if isinstance(item, SessionIdle):
                return shown
            if isinstance(item, TerminalMessage) and item.final:
                shown.append(item)
    raise AssertionError("the stream ended")
