"""A conversation in the console: what caused each message that no person wrote, and the transcripts of speech."""

import json
from pathlib import Path

import httpx

from tests.browser import BrowserPage, needs_chromium, open_browser
from tests.fakes.model import FakeModelServer
from tests.fakes.speech import FakeSpeechServer, SpeechAnswer
from tests.hook_senders import SECRET, signed_by_github
from tests.journeys.console_views import sign_in_as_admin
from tests.journeys.service import serving
from tests.journeys.test_voice import answer, says, with_voice
from tests.people.platforms import PlatformServers
from tests.people.slack import SlackDirectUser

pytestmark = needs_chromium

TIMELINE = "main table[aria-label='Conversation']"


async def test_the_timeline_shows_causes_and_speech(tmp_path: Path) -> None:
    async with (
        PlatformServers() as platforms,
        FakeModelServer(answer=answer) as model,
        FakeSpeechServer() as speech,
    ):
        ann = SlackDirectUser(platforms.slack)
        speech.answer(SpeechAnswer(text="Call me at five."))
        config = with_voice(platforms, model, speech.config)
        config["channels"] = {"slack": config["channels"]["slack"]}
        hook = {"secret": SECRET, "channel": "slack", "chat": ann.chat, "form": "github"}
        config["hooks"] = {"pushes": {**hook, "prompt": "{event}"}}
        async with serving(tmp_path, config, "slack") as service, open_browser(tmp_path) as page:
            await says(platforms, ann)
            await ann.wait_for_message("Heard:", "Call me at five.")
            async with service.client() as client:
                await _others_cause_messages(client, ann)
                rows = (await client.get("/api/messages")).json()["rows"]
                thread = next(row["thread_id"] for row in rows if row["thread_id"])
                chinese = {"Accept-Language": "zh-CN"}
                url = f"/api/conversations/{thread}/timeline"
                found = (await client.get(url, headers=chinese)).json()["rows"]
            causes = [row["cause"] for row in found]
            assert causes[0] == "通过 API 发送，键 backup-7"
            assert causes[1].startswith("定时任务“Daily news”（由 ")
            assert causes[2:] == ["由 webhook pushes 触发 · 事件 push · 投递 ID d-1", ""]
            assert found[-1]["speech"] == [
                {
                    "text": "Call me at five.",
                    "language": "english",
                    "source": "whisper-1",
                    "duration_s": 1.5,
                }
            ]
            await page.open(service.url)
            await sign_in_as_admin(page, service)
            await _the_page_shows_all(page, thread)
            assert page.errors == []


async def _others_cause_messages(client: httpx.AsyncClient, ann: SlackDirectUser) -> None:
    """Let a hook, a schedule and a client of the API write in a chat, one after the other."""
    headers, body = signed_by_github({}, "d-1")
    told = await client.post("/hooks/pushes", content=body, headers=headers)
    assert told.is_success
    await ann.wait_for_message("Heard:", "push")
    asked = {
        "channel": "slack", "chat": ann.chat, "name": "Daily news", "prompt": "the news",
        "kind": "cron", "expression": "0 9 * * *", "timezone": "Asia/Shanghai",
    }  # fmt: skip
    made = await client.post("/api/schedules", json=asked)
    assert made.is_success, made.text
    assert (await client.post(f"/api/schedules/{made.json()['id']}/run")).is_success
    await ann.wait_for_message("Heard:", "the news")
    sent = {"chat": ann.chat, "text": "Backup failed", "key": "backup-7"}
    assert (await client.post("/api/channels/slack/messages", json=sent)).is_success
    await ann.wait_for_message("Backup failed")


async def _the_page_shows_all(page: BrowserPage, thread: str) -> None:
    await page.evaluate(f"location.hash = {json.dumps(f'conversation/{thread}')}")
    shown = await page.wait_for_text("Backup failed", TIMELINE)
    assert "sent through the API, key backup-7" in shown
    assert "schedule “Daily news”, set up by " in shown
    assert " · due " in shown
    assert "webhook pushes · event push · delivery d-1" in shown
    assert "🎤 Call me at five." in shown
    assert "whisper-1 english" in shown
    links = (
        f"[...document.querySelectorAll({json.dumps(f'{TIMELINE} .files a')})].map(one => one.href)"
    )
    [recording] = await page.evaluate(links)
    assert recording.endswith(".ogg")
