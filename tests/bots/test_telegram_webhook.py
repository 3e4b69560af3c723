"""Telegram's webhook: its registration, which requests are accepted, and the channel's health."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from bots.common.webhooks import WebhookEndpoint, WebhookRequest
from bots.config import TelegramConfig
from bots.telegram.adapter import TelegramAdapter
from bots.telegram.api import ALLOWED_UPDATES
from bus.errors import IntakeFull
from bus.messages import Button, ReplyTarget
from bus.platform import ConnectionState, Disposition
from gateway.playground.telegram.server import TelegramServer
from tests.bots.telegram_rig import COMMANDS, FAST, config_for, linked, running
from tests.contracts.webhook_rig import WebhookApp
from tests.eventually import eventually
from tests.fakes.intake import RecordingIntake

SECRET = "a-secret-of-16-chars-at-least"
URL = "http://localhost/webhooks/telegram"
GOOD = {"x-telegram-bot-api-secret-token": SECRET}
QUICK = replace(FAST, check_s=0.02)


def section(telegram: TelegramServer, **settings: str) -> TelegramConfig:
    given = {"mode": "webhook", "webhook_url": URL, "webhook_secret": SECRET, **settings}
    return config_for(telegram).model_copy(update=given)


def adapter_for(telegram: TelegramServer, **settings: str) -> TelegramAdapter:
    return TelegramAdapter(section(telegram, **settings), COMMANDS, timeouts=QUICK)


def update(text: str = "hello", number: int = 1) -> bytes:
    person = {"id": 1001, "is_bot": False, "first_name": "Ann"}
    said = {
        "message_id": number, "date": 1_700_000_000, "chat": {"id": 1001, "type": "private"},
        "from": person, "text": text,
    }  # fmt: skip
    return json.dumps({"update_id": number, "message": said}).encode()


@asynccontextmanager
async def listening(
    telegram: TelegramServer, recorder: RecordingIntake
) -> AsyncIterator[tuple[TelegramAdapter, WebhookEndpoint]]:
    """Run an adapter that gets no deliveries unless the test makes them."""
    telegram.pusher.caller.away = True
    adapter = adapter_for(telegram)
    assert adapter.webhook is not None
    async with running(adapter, recorder):
        await linked(adapter, ConnectionState.CONNECTED)
        yield adapter, adapter.webhook


async def test_it_is_registered_with_its_secret_and_drops_nothing() -> None:
    doors, recorder = WebhookApp(), RecordingIntake()
    async with TelegramServer() as telegram:
        telegram.pusher.caller.transport = doors.transport
        telegram.dm("written before the start")
        adapter = adapter_for(telegram)
        doors.mount(adapter)
        async with running(adapter, recorder):
            await eventually(lambda: recorder.texts == ["written before the start"])
            await linked(adapter, ConnectionState.CONNECTED)
            await eventually(lambda: telegram.commands)
        (called,) = telegram.calls("setWebhook")
        assert called.arguments["url"] == URL
        assert called.arguments["secret_token"] == SECRET
        assert json.loads(called.arguments["allowed_updates"]) == list(ALLOWED_UPDATES)
        assert called.arguments["max_connections"] == "40"
        assert [command["command"] for command in telegram.commands] == ["help", "new"]
        assert telegram.calls("getUpdates") == []
        assert telegram.webhook == URL  # It stays: new updates wait at Telegram.
        assert telegram.violations == []


async def test_back_to_polling_removes_it_and_loses_nothing() -> None:
    recorder = RecordingIntake()
    async with TelegramServer() as telegram:
        async with listening(telegram, RecordingIntake()):
            telegram.dm("while the webhook is set")
        adapter = TelegramAdapter(config_for(telegram), COMMANDS, timeouts=FAST)
        assert adapter.webhook is None
        async with running(adapter, recorder):
            await eventually(lambda: recorder.texts == ["while the webhook is set"])
        assert telegram.webhook == ""


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-telegram-bot-api-secret-token": ""},
        {"x-telegram-bot-api-secret-token": SECRET[:-1]},
        {"x-telegram-bot-api-secret-token": SECRET + " "},
        {"x-telegram-bot-api-secret-token": "é\u2603"},
        {"authorization": f"Bearer {SECRET}"},
    ],
)
async def test_requests_without_telegrams_secret_are_refused_before_they_are_read(
    headers: dict[str, str],
) -> None:
    recorder = RecordingIntake()
    async with TelegramServer() as telegram, listening(telegram, recorder) as (adapter, door):
        for body in (update(), b"{not json"):
            answer = await door.handle(WebhookRequest(headers=headers, body=body))
            assert (answer.status, answer.body) == (401, b'{"detail": "Refused."}')
        assert adapter.health().last_event_at is None
    assert (recorder.offered_ids, recorder.ignored) == ([], [])


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"[]", 400),
        (b"\xff", 400),
        (b"[" * 9000, 400),
        (b"{}", 200),
        (b'{"update_id": "1"}', 200),
        (b'{"update_id": 5, "message": 7}', 200),
        (b'{"update_id": 5, "message": {"chat": 1}}', 200),
        (b'{"update_id": 5, "message": {"message_id": 1, "date": 1e99, "chat": {"id": {}}}}', 200),
    ],
)
async def test_an_unreadable_request_does_not_block_others(body: bytes, status: int) -> None:
    recorder = RecordingIntake()
    async with TelegramServer() as telegram, listening(telegram, recorder) as (_, door):
        assert (await door.handle(WebhookRequest(headers=GOOD, body=body))).status == status
        assert (await door.handle(WebhookRequest(headers=GOOD, body=update()))).status == 200
    assert recorder.texts == ["hello"]
    assert all(reason is Disposition.UNSUPPORTED for reason, _ in recorder.ignored)


async def test_updates_that_are_not_stored_are_requested_again_and_shown_in_the_health() -> None:
    recorder = RecordingIntake()
    recorder.errors = [IntakeFull(), RuntimeError("a defect")]
    async with TelegramServer() as telegram, listening(telegram, recorder) as (adapter, door):
        call = WebhookRequest(headers=GOOD, body=update())
        assert (await door.handle(call)).status == 503
        assert "not accepted now (IntakeFull)" in adapter.health().detail
        assert [(await door.handle(call)).status for _ in range(2)] == [503, 200]
        assert (adapter.health().state, adapter.health().detail) == (ConnectionState.CONNECTED, "")
    assert recorder.texts == ["hello"]


async def test_a_webhook_that_another_program_took_away_is_set_again() -> None:
    async with TelegramServer() as telegram, listening(telegram, RecordingIntake()) as (adapter, _):
        telegram.webhook = ""
        await telegram.wait_for(lambda: len(telegram.calls("setWebhook")) > 1)
        await linked(adapter, ConnectionState.CONNECTED)
        assert telegram.webhook == URL


async def test_undeliverable_webhooks_are_shown_with_a_fix() -> None:
    doors = WebhookApp()
    async with TelegramServer() as telegram:
        telegram.pusher.caller.transport = doors.transport
        adapter = adapter_for(telegram)
        async with running(adapter, RecordingIntake()):
            await linked(adapter, ConnectionState.CONNECTED)
            telegram.dm("hello")
            detail = await linked(adapter, ConnectionState.RECONNECTING)
            assert "(1 waiting)" in detail
            assert "404" in detail
            assert "must lead to /webhooks/telegram" in detail
            doors.mount(adapter)
            assert await linked(adapter, ConnectionState.CONNECTED) == ""


async def test_an_address_that_telegram_refuses_shows() -> None:
    async with TelegramServer() as telegram:
        adapter = adapter_for(telegram, webhook_url="http://bot.example.com/webhooks/telegram")
        async with running(adapter, RecordingIntake()):
            detail = await linked(adapter, ConnectionState.FAILED)
    assert "channels.telegram.webhook_url" in detail
    assert "https url must be provided" in detail


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"webhook_url": ""}, "channels.telegram.webhook_url is not set"),
        ({"webhook_url": "ftp://bot.example.com/"}, "channels.telegram.webhook_url must begin"),
        (
            {
                "base_url": "https://api.telegram.org/bot",
                "webhook_url": "http://bot.example.com/webhooks/telegram",
            },
            "channels.telegram.webhook_url must begin with https://",
        ),
        ({"webhook_secret": ""}, "channels.telegram.webhook_secret is not set"),
        ({"webhook_secret": "short"}, "16 to 256 letters"),
        ({"webhook_secret": "sixteen letters and a space"}, "16 to 256 letters"),
    ],
)
async def test_unusable_settings_end_the_run(settings: dict[str, str], told: str) -> None:
    async with TelegramServer() as telegram:
        adapter = adapter_for(telegram, **settings)
        async with running(adapter, RecordingIntake()):
            assert told in await linked(adapter, ConnectionState.FAILED)
        assert adapter.webhook is not None
        assert (await adapter.webhook.handle(WebhookRequest(headers={}, body=b"{}"))).status == 503
        assert telegram.requests == []


async def test_presses_edits_and_moves_come_by_the_webhook_too() -> None:
    recorder = RecordingIntake()
    async with TelegramServer() as telegram, listening(telegram, recorder) as (adapter, door):
        telegram.dm("hello")
        button = Button(label="Yes", token="option:1:0")
        place = ReplyTarget(chat="1001")
        message = await adapter.send_with_buttons(place, "Sure?", [button], key="k")
        chat = {"id": 1001, "type": "private"}
        person = {"id": 1001, "is_bot": False, "first_name": "Ann"}
        shown = {"message_id": int(message), "date": 0, "chat": chat}
        query = {
            "id": "q1",
            "from": person,
            "chat_instance": "1",
            "data": "option:1:0",
            "message": shown,
        }
        said = {"message_id": 1, "date": 1, "chat": chat, "from": person, "text": "better"}
        updates = [
            {"update_id": 1, "callback_query": query},
            {"update_id": 2, "edited_message": said},
            {"update_id": 3, "message": said | {"migrate_to_chat_id": -100}},
        ]
        for body in updates:
            call = WebhookRequest(headers=GOOD, body=json.dumps(body).encode())
            assert (await door.handle(call)).status == 200
        await telegram.wait_for(lambda: telegram.calls("answerCallbackQuery"))
    assert [press.token for press in recorder.pressed] == ["option:1:0"]
    assert [change.message_id for change in recorder.changed] == ["1"]
    assert recorder.migrated == [(str(telegram.bot_id), "1001", "-100")]


async def test_drafts_can_be_stopped_by_the_webhook() -> None:
    async with TelegramServer() as telegram:
        config = section(telegram).model_copy(update={"streaming": True})
        adapter = TelegramAdapter(config, COMMANDS, timeouts=QUICK)
        async with running(adapter, RecordingIntake()):
            await eventually(lambda: bool(telegram.calls("setWebhook")))
        allowed = json.loads(telegram.calls("setWebhook")[0].arguments["allowed_updates"])
    assert allowed == [*ALLOWED_UPDATES, "stopped_message_generation"]
