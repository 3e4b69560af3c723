"""Receiving on Feishu: connect, hand over, acknowledge, reconnect. Real adapter, fake platform."""

import logging
import ssl
from functools import partial
from pathlib import Path

import anyio
import pytest

from bots.config import FeishuConfig
from bots.feishu.adapter import build
from bots.feishu.timeouts import FeishuTimeouts
from bus.errors import DeliveryError, IntakeClosed, IntakeFull, StoreError
from bus.messages import ReplyTarget
from bus.platform import (
    Adapter,
    CommandInfo,
    ConnectionState,
    Disposition,
    SupportsIndicators,
    SupportsStreaming,
)
from gateway.playground.feishu.server import FakeFeishu
from tests.bots.feishu_rig import adapter_for, place_of, running
from tests.eventually import eventually
from tests.fakes.intake import RecordingIntake
from tests.fakes.nginx import write_certificate


async def test_a_private_message_arrives_and_is_acknowledged() -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, running(adapter_for(feishu), intake):
        message = await feishu.dm("hello")
        event = feishu.event_of(message)
        await feishu.wait_for(lambda: event.acked)
        assert event.codes == [200]
        assert feishu.violations == []
    (inbound,) = intake.received
    assert inbound.text == "hello"
    assert inbound.is_private
    assert inbound.is_addressed
    assert inbound.message_id == message.id
    assert inbound.event_id == event.id
    assert inbound.reply_target == ReplyTarget(chat="oc_dm_ou_alice", reply_to=message.id)


async def test_messages_and_answers_are_encrypted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certificate, intake = write_certificate(tmp_path), RecordingIntake()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, certificate.with_suffix(".key"))
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    async with FakeFeishu(tls=tls) as feishu:
        adapter = adapter_for(feishu)
        async with running(adapter, intake):
            message = await feishu.dm("hello")
            await feishu.wait_for(lambda: feishu.event_of(message).acked)
            await adapter.send(place_of(message), "hello you", key="k")
        assert [answer.text for answer in feishu.answers_to(message)] == ["hello you"]
    assert [inbound.text for inbound in intake.received] == ["hello"]


async def test_a_mention_in_a_group_arrives_without_the_mention() -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, running(adapter_for(feishu), intake):
        message = await feishu.mention("what is up")
        await feishu.wait_for(lambda: feishu.event_of(message).acked)
    (inbound,) = intake.received
    assert (inbound.text, inbound.is_addressed, inbound.is_private) == ("what is up", True, False)
    assert inbound.key.topic == message.id


@pytest.mark.parametrize("error", [IntakeFull(), IntakeClosed(), RuntimeError("disk full")])
async def test_an_event_that_the_intake_refuses_is_delivered_again_unchanged(
    error: Exception,
) -> None:
    intake = RecordingIntake(errors=[error])
    async with FakeFeishu(redeliver_s=0.02) as feishu, running(adapter_for(feishu), intake):
        message = await feishu.dm("keep me")
        event = feishu.event_of(message)
        await feishu.wait_for(lambda: event.acked)
        assert event.codes == [500, 200]
    assert [(inbound.event_id, inbound.message_id) for inbound in intake.received] == [
        (event.id, message.id)
    ]


async def test_an_intake_that_is_too_slow_is_answered_with_500_in_time() -> None:
    intake = RecordingIntake(gates={"slow": anyio.Event()})
    timeouts = FeishuTimeouts(ack_s=0.05)
    async with (
        FakeFeishu(redeliver_s=0.02) as feishu,
        running(adapter_for(feishu, timeouts=timeouts), intake),
    ):
        message = await feishu.dm("slow")
        event = feishu.event_of(message)
        await feishu.wait_for(lambda: event.codes)
        assert event.codes[0] == 500
        intake.gates["slow"].set()
        await feishu.wait_for(lambda: event.acked)
    assert set(intake.texts) == {"slow"}


async def test_a_slow_message_delays_only_its_own_chat_and_keeps_the_order_there() -> None:
    intake = RecordingIntake(gates={"first": anyio.Event()})
    async with FakeFeishu() as feishu, running(adapter_for(feishu), intake):
        first = await feishu.dm("first")
        await feishu.wait_for(lambda: feishu.event_of(first).pushes)
        second = await feishu.dm("second")
        other = await feishu.dm("other", user="ou_bob")
        await feishu.wait_for(lambda: feishu.event_of(other).acked)
        assert not feishu.event_of(second).acked
        intake.gates["first"].set()
        await feishu.wait_for(lambda: feishu.event_of(second).acked)
    assert intake.texts == ["other", "first", "second"]


async def test_an_event_in_parts_is_joined() -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, running(adapter_for(feishu), intake):
        message = await feishu.say("part " * 1000, chat="oc_dm", private=True, parts=5)
        await feishu.wait_for(lambda: feishu.event_of(message).acked)
        assert feishu.violations == []
    assert intake.texts == [("part " * 1000).strip()]


@pytest.mark.parametrize(
    "event_type",
    [
        "im.message.message_read_v1",
        "im.message.recalled_v1",
        "im.message.reaction.created_v1",
        "im.chat.member.bot.added_v1",
        "im.chat.access_event.bot_p2p_chat_entered_v1",
        "application.bot.menu_v6",
        "card.action.trigger",
    ],
)
async def test_other_events_are_acknowledged_and_counted(event_type: str) -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, running(adapter_for(feishu), intake):
        event = await feishu.push(event_type, {"operator": {"open_id": "ou_alice"}})
        await feishu.wait_for(lambda: event.acked)
        assert event.codes == [200]
    assert intake.ignored == [(Disposition.UNSUPPORTED, event_type)]


async def test_other_bots_are_ignored() -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, running(adapter_for(feishu), intake):
        message = await feishu.say("beep", chat="oc_room", user="ou_robot", sender_type="app")
        await feishu.wait_for(lambda: feishu.event_of(message).acked)
    assert intake.received == []
    assert [reason for reason, _ in intake.ignored] == [Disposition.FROM_BOT]


async def test_hostile_payloads_harm_nothing() -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu, running(adapter_for(feishu), intake):
        for raw in (b"\xff\xfe", b"[" * 50_000, b"null", b'{"header": 7, "event": []}', b"{}"):
            event = await feishu.push_raw(raw)
            await eventually(partial(getattr, event, "acked"))
        await feishu.pusher.send_garbage(b"\xff\xff\xff not a frame")
        message = await feishu.dm("\ud800 \x00 \x1b[31m" + "x" * 1_000_000)
        await feishu.wait_for(lambda: feishu.event_of(message).acked)
        assert len(feishu.past_connections) == 0
    (inbound,) = intake.received
    assert inbound.text.encode()
    assert len(inbound.text) > 1_000_000


async def test_several_connections_live_in_one_process() -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu:
        async with running(adapter_for(feishu), intake), running(adapter_for(feishu), intake):
            assert len(feishu.connections) == 2
            for number in range(8):
                await feishu.dm(f"m{number}", user=f"ou_{number}")
            await feishu.wait_for(lambda: all(event.acked for event in feishu.state.events))
        assert feishu.violations == []
    assert sorted(intake.texts) == [f"m{number}" for number in range(8)]


async def test_a_cut_connection_is_opened_again() -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu)
        async with running(adapter, intake):
            feishu.refuse_connects(1)
            feishu.disconnect_all()
            await eventually(lambda: adapter.health().state is ConnectionState.RECONNECTING)
            assert "code 1" in adapter.health().detail or "closed" in adapter.health().detail
            await feishu.wait_for(lambda: len(feishu.calls("endpoint")) >= 4)
            message = await feishu.dm("while away")
            feishu.refuse_connects(0)
            await feishu.wait_for(lambda: feishu.event_of(message).acked)
            assert adapter.health().state is ConnectionState.CONNECTED
            assert adapter.health().detail == ""
    assert intake.texts == ["while away"]


async def test_an_event_cut_off_before_its_acknowledgement_is_delivered_again() -> None:
    intake = RecordingIntake(gates={"cut": anyio.Event()})
    async with (
        FakeFeishu(ack_s=0.1, redeliver_s=0.02) as feishu,
        running(adapter_for(feishu), intake),
    ):
        message = await feishu.dm("cut")
        event = feishu.event_of(message)
        await feishu.wait_for(lambda: event.pushes)
        feishu.disconnect_all()
        intake.gates["cut"].set()
        await feishu.wait_for(lambda: event.acked)
    assert {inbound.event_id for inbound in intake.received} == {event.id}


async def test_pings_follow_the_interval_of_the_platform() -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu:
        feishu.pusher.ping_s = 0.02
        adapter = adapter_for(feishu)
        async with running(adapter, intake):
            await feishu.wait_for(lambda: feishu.connections[0].pings >= 3)
            assert adapter.health().last_event_at is not None
            assert feishu.violations == []
            assert len(feishu.past_connections) == 0


async def test_a_connection_that_went_silent_is_replaced() -> None:
    async with FakeFeishu() as feishu:
        feishu.pusher.ping_s = 0.02
        feishu.mute()
        async with running(adapter_for(feishu), RecordingIntake()):
            await feishu.wait_for(lambda: feishu.past_connections)
            feishu.mute(muted=False)
            message = await feishu.dm("again")
            await feishu.wait_for(lambda: feishu.event_of(message).acked)


async def test_stopping_closes_the_connection_cleanly() -> None:
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu)
        async with running(adapter, RecordingIntake()):
            assert len(feishu.connections) == 1
        await feishu.wait_for(lambda: feishu.past_connections)
        assert [connection.close_code for connection in feishu.past_connections] == [1000]
        assert adapter.health().state is ConnectionState.STOPPED


async def test_stopping_while_an_event_is_handled_leaves_it_unacknowledged() -> None:
    intake = RecordingIntake(gates={"late": anyio.Event()})
    async with FakeFeishu(ack_s=2.0, redeliver_s=0.02) as feishu:
        async with running(adapter_for(feishu), intake):
            message = await feishu.dm("late")
            await feishu.wait_for(lambda: feishu.event_of(message).pushes)
        event = feishu.event_of(message)
        await feishu.wait_for(lambda: event.codes)
        assert event.codes == [0]
        assert intake.received == []
        intake.gates.clear()
        async with running(adapter_for(feishu), intake):
            await feishu.wait_for(lambda: event.acked)
    assert intake.texts == ["late"]


async def test_a_wrong_secret_is_reported_and_tried_again_slowly(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu, app_secret="not-the-right-one")
        async with running(adapter, RecordingIntake(), link=ConnectionState.FAILED):
            detail = adapter.health().detail
            assert "channels.feishu.app_id, app_secret" in detail
            await feishu.wait_for(lambda: len(feishu.calls("token")) >= 3)
    assert "not-the-right-one" not in caplog.text + detail


@pytest.mark.parametrize(
    ("code", "link"), [(1000040344, ConnectionState.FAILED), (1, ConnectionState.CONNECTING)]
)
async def test_a_refusing_endpoint_is_distinguished_from_a_busy_one(
    code: int, link: ConnectionState
) -> None:
    async with FakeFeishu() as feishu:
        feishu.refuse_connects(code)
        adapter = adapter_for(feishu)
        async with running(adapter, RecordingIntake(), link=link):
            await eventually(lambda: f"code {code}" in adapter.health().detail)
            feishu.refuse_connects(0)
            await eventually(lambda: adapter.health().state is ConnectionState.CONNECTED)


@pytest.mark.parametrize("refused", ["everywhere", "for tokens only"])
async def test_a_secret_that_is_refused_while_it_runs_is_reported_until_it_is_taken_again(
    refused: str,
) -> None:
    async with FakeFeishu() as feishu:
        adapter, intake = adapter_for(feishu), RecordingIntake()
        async with running(adapter, intake):
            message = await feishu.dm("hello")
            feishu.revoke_tokens()
            feishu.fail("token", status=200, code=10014)
            if refused == "everywhere":
                feishu.refuse_connects(10014)
            else:
                feishu.fail("token", status=200, code=10014)  # of the next connection, too
            with pytest.raises(DeliveryError):
                await adapter.send(place_of(message), "an answer", key="k1")
            await eventually(lambda: adapter.health().state is ConnectionState.FAILED)
            assert "channels.feishu.app_id, app_secret" in adapter.health().detail
            feishu.refuse_connects(0)
            await eventually(lambda: adapter.health().state is ConnectionState.CONNECTED)
            await adapter.send(place_of(message), "an answer", key="k1")
            assert len(feishu.answers_to(message)) == 1


async def test_too_many_connections_are_named() -> None:
    async with FakeFeishu() as feishu:
        feishu.refuse_handshakes({"handshake-status": "514", "handshake-autherrcode": "1000040350"})
        adapter = adapter_for(feishu)
        async with running(adapter, RecordingIntake(), link=ConnectionState.FAILED):
            assert "50 connections" in adapter.health().detail
            feishu.refuse_handshakes(None)
            await eventually(lambda: adapter.health().state is ConnectionState.CONNECTED)


async def test_an_unreachable_platform_is_tried_until_it_is_there() -> None:
    async with FakeFeishu() as gone:
        settings = gone.settings
    adapter_settings = FeishuConfig.model_validate(settings)
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu, domain=adapter_settings.domain)
        async with running(adapter, RecordingIntake(), link=ConnectionState.CONNECTING):
            await eventually(lambda: "cannot be reached" in adapter.health().detail)
            assert adapter.health().state is ConnectionState.CONNECTING


@pytest.mark.parametrize("domain", ["", "open.feishu.cn", "http://[::", "ftp://open.feishu.cn"])
async def test_a_domain_that_is_no_address_is_named(domain: str) -> None:
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu, domain=domain)
        async with running(adapter, RecordingIntake(), link=ConnectionState.FAILED):
            assert "channels.feishu.domain" in adapter.health().detail
        with pytest.raises(DeliveryError) as caught:
            await adapter.send(ReplyTarget(chat="oc_1"), "hi", key="k1")
        assert not caught.value.ambiguous


async def test_a_stopped_adapter_can_run_again() -> None:
    intake = RecordingIntake()
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu)
        async with running(adapter, intake):
            pass
        async with running(adapter, intake):
            message = await feishu.dm("back")
            await feishu.wait_for(lambda: feishu.event_of(message).acked)
    assert intake.texts == ["back"]


async def test_the_first_answers_may_fail() -> None:
    async with FakeFeishu() as feishu:
        feishu.fail("token", status=503, text="<html>")
        feishu.fail("bot.info", drop="before")
        feishu.fail("bot.info", status=200, text="a login page")
        feishu.fail("endpoint", status=502, text="bad gateway")
        async with running(adapter_for(feishu), RecordingIntake()):
            assert len(feishu.connections) == 1


async def test_no_ticket_or_secret_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with FakeFeishu() as feishu, running(adapter_for(feishu), RecordingIntake()):
        message = await feishu.dm("hello")
        await feishu.wait_for(lambda: feishu.event_of(message).acked)
    for secret in (feishu.app_secret, "ticket-", "t-0000"):
        assert secret not in caplog.text


def test_build_makes_an_adapter_with_cards_and_signs() -> None:
    adapter: Adapter = build(
        "feishu", FeishuConfig(app_id="cli_1", app_secret="s"), [CommandInfo(name="new", help="n")]
    )
    assert adapter.name == "feishu"
    assert isinstance(adapter, SupportsStreaming)
    assert isinstance(adapter, SupportsIndicators)
    assert adapter.capabilities.streaming
    assert adapter.health().state is ConnectionState.STOPPED


async def test_health_shows_that_messages_are_not_accepted_until_they_are() -> None:
    intake = RecordingIntake(errors=[StoreError("disk full")] * 100)
    async with FakeFeishu() as feishu:
        adapter = adapter_for(feishu)
        async with running(adapter, intake):
            before = adapter.health().detail
            await feishu.dm("hello")
            await eventually(lambda: adapter.health().detail, lambda told: "(StoreError)" in told)
            assert adapter.health().state is ConnectionState.CONNECTED
            intake.errors.clear()
            await eventually(lambda: intake.texts, lambda texts: texts == ["hello"])
            await eventually(lambda: adapter.health().detail, lambda told: told == before)
