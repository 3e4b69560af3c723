"""Feishu's webhook: which requests are accepted, the responses, and the channel's health."""

import hashlib
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import anyio
import pytest

from bots.common.webhooks import WebhookEndpoint, WebhookRequest
from bots.feishu.adapter import FeishuAdapter
from bots.feishu.encryption import DecryptionError, decrypt
from bots.feishu.timeouts import FeishuTimeouts
from bus.errors import DeliveryError, IntakeFull
from bus.messages import PressResponse
from bus.platform import ConnectionState, Disposition
from gateway.playground.feishu.server import FakeFeishu
from tests.bots.feishu_rig import QUICK, adapter_for, place_of, running
from tests.eventually import eventually
from tests.fakes.intake import RecordingIntake

FAST = replace(QUICK, check_s=0.02)


def event(feishu: FakeFeishu, text: str = "hello", event_id: str = "ev_1") -> dict[str, object]:
    header = {"event_id": event_id, "event_type": "im.message.receive_v1", "tenant_key": "t"}
    message = {
        "message_id": "om_1", "chat_id": "oc_dm", "chat_type": "p2p", "message_type": "text",
        "content": json.dumps({"text": text}),
    }  # fmt: skip
    sender = {"sender_id": {"open_id": "ou_alice"}, "sender_type": "user"}
    header["token"] = feishu.poster.token
    return {"schema": "2.0", "header": header, "event": {"sender": sender, "message": message}}


def call(feishu: FakeFeishu, told: object, *, ago_s: float = 0.0) -> WebhookRequest:
    """Return a request as the platform sends it."""
    body = feishu.poster.sealed(json.dumps(told).encode())
    return WebhookRequest(headers=signed(feishu, body, ago_s=ago_s), body=body)


def signed(feishu: FakeFeishu, body: bytes, *, ago_s: float = 0.0) -> dict[str, str]:
    made = feishu.poster.signed(body, at=time.time() - ago_s)
    return {name.lower(): value for name, value in made.items()}


@asynccontextmanager
async def listening(
    feishu: FakeFeishu,
    intake: RecordingIntake,
    timeouts: FeishuTimeouts = FAST,
    **settings: str,
) -> AsyncIterator[tuple[FeishuAdapter, WebhookEndpoint]]:
    post = feishu.poster
    keys: dict[str, Any] = {
        "encrypt_key": post.encrypt_key,
        "verification_token": post.token,
        **settings,
    }
    adapter = adapter_for(feishu, timeouts=timeouts, mode="webhook", **keys)
    assert adapter.webhook is not None
    async with running(adapter, intake, link=ConnectionState.CONNECTING):
        await eventually(lambda: "Waiting for Feishu" in adapter.health().detail)
        yield adapter, adapter.webhook


def test_the_documented_example_can_be_decrypted() -> None:
    sealed = "P37w+VZImNgPEO1RBhJ6RtKl7n6zymIbEG1pReEzghk="
    assert decrypt("test key", sealed) == b"hello world"


@pytest.mark.parametrize("sealed", ["", "!", "aGVsbG8=", "A" * 44, "é", "P37w+VZImNgPEO1RBhJ6Rg=="])
def test_data_encrypted_with_another_key_is_an_error(sealed: str) -> None:
    with pytest.raises(DecryptionError):
        decrypt("key", sealed)


async def test_it_is_connected_once_feishu_proved_itself() -> None:
    async with FakeFeishu() as feishu, listening(feishu, RecordingIntake()) as (adapter, door):
        before = adapter.health()
        assert before.state is ConnectionState.CONNECTING
        assert "/webhooks/feishu" in before.detail
        assert (await door.handle(call(feishu, event(feishu)))).status == 200
        after = adapter.health()
        assert (after.state, after.detail) == (ConnectionState.CONNECTED, "")
        assert after.last_event_at is not None


async def test_a_secret_that_is_refused_is_reported_at_the_next_call() -> None:
    never = replace(QUICK, check_s=3600)
    async with (
        FakeFeishu() as feishu,
        listening(feishu, RecordingIntake(), timeouts=never) as (adapter, door),
    ):
        await door.handle(call(feishu, event(feishu)))
        assert adapter.health().state is ConnectionState.CONNECTED
        message = await feishu.dm("hello")
        feishu.revoke_tokens()
        feishu.fail("token", times=1000, status=200, code=10014)
        with pytest.raises(DeliveryError):
            await adapter.send(place_of(message), "an answer", key="k1")
        await eventually(lambda: adapter.health().state is ConnectionState.FAILED)
        assert "app_secret" in adapter.health().detail


@pytest.mark.parametrize("is_sealed", [True, False])
@pytest.mark.parametrize("is_signed", [True, False])
async def test_the_consoles_question_is_answered(is_sealed: bool, is_signed: bool) -> None:
    async with FakeFeishu() as feishu, listening(feishu, RecordingIntake()) as (_, door):
        asked = {"type": "url_verification", "token": feishu.poster.token, "challenge": "c-1"}
        plain = json.dumps(asked).encode()
        body = feishu.poster.sealed(plain) if is_sealed else plain
        headers = signed(feishu, body) if is_signed else {}
        answer = await door.handle(WebhookRequest(headers=headers, body=body))
        if is_signed and not is_sealed:  # With a key set, Feishu encrypts what it signs.
            assert answer.status == 401
        else:
            assert (answer.status, json.loads(answer.body)) == (200, {"challenge": "c-1"})


@pytest.mark.parametrize("token", ["", "wrong", "é", None, 7, ["x"]])
async def test_a_question_without_the_token_is_refused(token: object) -> None:
    async with FakeFeishu() as feishu, listening(feishu, RecordingIntake()) as (_, door):
        asked = {"type": "url_verification", "token": token, "challenge": "c-1"}
        plain = json.dumps(asked).encode()
        for body in (plain, feishu.poster.sealed(plain)):
            answer = await door.handle(WebhookRequest(headers={}, body=body))
            assert (answer.status, answer.body) == (401, b'{"detail": "Refused."}')


def unsigned(feishu: FakeFeishu) -> dict[str, bytes]:
    """Return unsigned bodies that must all get the same response."""
    told = json.dumps(event(feishu)).encode()
    sealed = feishu.poster.sealed(told)
    asked = {"type": "url_verification", "token": feishu.poster.token, "challenge": "x" * 5000}
    return {
        "an event": told,
        "a sealed event": sealed,
        "a broken seal": sealed[:-10] + b'AAAAAAA="}',
        "a seal over no JSON": feishu.poster.sealed(b"{"),
        "not JSON": b"{",
        "nothing": b"",
        "deep": b"[" * 4000,
        "a long question": json.dumps(asked).encode(),
    }


async def test_unsigned_requests_are_refused_without_a_reason() -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, listening(feishu, intake) as (_, door):
        for name, body in unsigned(feishu).items():
            answer = await door.handle(WebhookRequest(headers={}, body=body))
            assert (answer.status, answer.body) == (401, b'{"detail": "Refused."}'), name
    assert (intake.received, intake.ignored) == ([], [])


def wrong_headers(feishu: FakeFeishu, body: bytes) -> dict[str, dict[str, str]]:
    good = signed(feishu, body)
    stamp, nonce, proof = (
        f"x-lark-{name}" for name in ("request-timestamp", "request-nonce", "signature")
    )
    keyless = hashlib.sha256((good[stamp] + good[nonce]).encode() + body).hexdigest()
    return {
        "blank": {stamp: "", nonce: "", proof: ""},
        "no nonce": good | {nonce: ""},
        "another nonce": good | {nonce: "n"},
        "another time": good | {stamp: str(int(good[stamp]) - 1)},
        "another body": signed(feishu, body + b" "),
        "without the key": good | {proof: keyless},
        "five minutes old": signed(feishu, body, ago_s=301),
        "from the future": signed(feishu, body, ago_s=-360),
        "not a time": good | {stamp: "yesterday"},
        "not ASCII": good | {proof: "é\u2603", nonce: "é"},
    }


async def test_a_wrong_signature_is_refused_before_anything_is_read() -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, listening(feishu, intake) as (adapter, door):
        for body in (feishu.poster.sealed(json.dumps(event(feishu)).encode()), b"{not json", b""):
            for name, headers in wrong_headers(feishu, body).items():
                answer = await door.handle(WebhookRequest(headers=headers, body=body))
                assert (answer.status, answer.body) == (401, b'{"detail": "Refused."}'), name
        assert adapter.health().state is ConnectionState.CONNECTING
        assert "The last request was rejected" in adapter.health().detail
        assert adapter.health().last_event_at is None
    assert (intake.received, intake.ignored) == ([], [])


async def test_a_signed_event_must_be_encrypted_and_carry_the_token() -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, listening(feishu, intake) as (adapter, door):
        plain = json.dumps(event(feishu)).encode()
        answer = await door.handle(WebhookRequest(headers=signed(feishu, plain), body=plain))
        assert answer.status == 401
        assert "not encrypted" in adapter.health().detail
        for token in ("", "wrong", None):
            told = event(feishu)
            told["header"] = {"event_type": "im.message.receive_v1", "token": token}
            assert (await door.handle(call(feishu, told))).status == 401
            assert (await door.handle(call(feishu, {"token": token}))).status == 401
        assert "channels.feishu.verification_token" in adapter.health().detail
    assert (intake.received, intake.ignored) == ([], [])


@pytest.mark.parametrize("inside", [b"[]", b"{", b"\xff", b"", b"[" * 9000])
async def test_an_unreadable_signed_request_does_not_affect_others(inside: bytes) -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, listening(feishu, intake) as (_, door):
        body = feishu.poster.sealed(inside)
        answer = await door.handle(WebhookRequest(headers=signed(feishu, body), body=body))
        assert answer.status == 400
        assert (await door.handle(call(feishu, event(feishu)))).status == 200
    assert intake.texts == ["hello"]


async def test_other_events_and_presses_are_acknowledged() -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, listening(feishu, intake) as (_, door):
        header = {"event_type": "card.action.trigger", "token": feishu.poster.token}
        assert (await door.handle(call(feishu, {"header": header, "event": {}}))).status == 200
    assert intake.ignored == [(Disposition.UNSUPPORTED, "card.action.trigger")]


async def test_a_repeated_request_is_a_duplicate_and_a_repeated_event_is_offered_again() -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, listening(feishu, intake) as (_, door):
        once = call(feishu, event(feishu))
        assert [(await door.handle(once)).status for _ in range(3)] == [200, 200, 200]
        assert (await door.handle(call(feishu, event(feishu)))).status == 200
    assert [inbound.event_id for inbound in intake.received] == ["ev_1", "ev_1"]
    assert intake.ignored == [(Disposition.DUPLICATE, "a repeated request")] * 2


async def test_events_that_are_not_stored_in_time_are_requested_again() -> None:
    intake = RecordingIntake(errors=[IntakeFull(), RuntimeError("a defect")])
    async with FakeFeishu() as feishu, listening(feishu, intake) as (_, door):
        once = call(feishu, event(feishu))
        assert [(await door.handle(once)).status for _ in range(3)] == [503, 503, 200]
    hanging = RecordingIntake(gates={"hello": anyio.Event()})
    slow = replace(FAST, ack_s=0.05)
    async with FakeFeishu() as feishu:
        adapter = adapter_for(
            feishu,
            timeouts=slow,
            mode="webhook",
            encrypt_key=feishu.poster.encrypt_key,
            verification_token=feishu.poster.token,
        )
        assert adapter.webhook is not None
        async with running(adapter, hanging, link=ConnectionState.CONNECTING):
            await eventually(lambda: "Waiting" in adapter.health().detail)
            once = call(feishu, event(feishu))
            assert (await adapter.webhook.handle(once)).status == 503
        assert (await adapter.webhook.handle(once)).status == 503
    assert hanging.received == []


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"encrypt_key": ""}, "channels.feishu.encrypt_key is not set"),
        ({"verification_token": " "}, "channels.feishu.verification_token is not set"),
        (
            {"encrypt_key": "", "verification_token": ""},
            "channels.feishu.encrypt_key and channels.feishu.verification_token are not set",
        ),
    ],
)
async def test_without_its_secrets_it_does_not_start(settings: dict[str, str], told: str) -> None:
    async with FakeFeishu() as feishu:
        given: dict[str, Any] = {"encrypt_key": "k", "verification_token": "t", **settings}
        adapter = adapter_for(feishu, mode="webhook", **given)
        async with running(adapter, RecordingIntake(), link=ConnectionState.FAILED):
            assert told in adapter.health().detail
        assert adapter.webhook is not None
        assert (await adapter.webhook.handle(call(feishu, event(feishu)))).status == 503


async def test_a_press_is_answered_with_its_toast() -> None:
    intake = RecordingIntake(response=PressResponse(text="Stopped."))
    async with FakeFeishu() as feishu, listening(feishu, intake) as (_, door):
        header = {"event_id": "ev_9", "event_type": "card.action.trigger", "tenant_key": "t"}
        pressed = {
            "operator": {"open_id": "ou_alice"},
            "token": "c-1",
            "action": {"tag": "button", "value": {"token": "stop:7:0"}},
            "context": {"open_message_id": "om_1", "open_chat_id": "oc_1"},
        }
        told = {
            "schema": "2.0",
            "header": header | {"token": feishu.poster.token},
            "event": pressed,
        }
        answer = await door.handle(call(feishu, told))
        assert answer.status == 200
        assert json.loads(answer.body)["toast"]["content"] == "Stopped."
    assert [press.token for press in intake.pressed] == ["stop:7:0"]
