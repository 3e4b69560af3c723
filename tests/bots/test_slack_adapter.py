"""Receiving on Slack: the real Bolt and SDK with the fake Slack."""

import logging
from dataclasses import replace

import anyio
import pytest

from bots.config import SlackConfig
from bots.slack.adapter import SlackAdapter, build
from bus.errors import DeliveryError, IntakeFull, StoreError
from bus.messages import ReplyTarget
from bus.platform import (
    Adapter,
    ConnectionState,
    Disposition,
    SupportsButtons,
    SupportsDeletion,
    SupportsDownloads,
    SupportsEditing,
    SupportsIndicators,
    SupportsMessageLookup,
    SupportsStreaming,
)
from gateway.playground.slack.server import BOT_USER, USER, FakeSlack
from tests.bots.slack_rig import FAST, config, fast_slack, running
from tests.eventually import eventually
from tests.fakes.intake import RecordingIntake


def settled(slack: FakeSlack) -> bool:
    return all(e.acked or e.dropped for e in slack.sockets.envelopes)


async def test_the_slack_adapter_supports_these_protocols() -> None:
    adapter = build("slack", SlackConfig(), [])
    for port in (
        Adapter,
        SupportsButtons,
        SupportsDownloads,
        SupportsEditing,
        SupportsMessageLookup,
        SupportsStreaming,
        SupportsDeletion,
        SupportsIndicators,
    ):
        assert isinstance(adapter, port)
    assert not adapter.capabilities.streaming
    assert build("slack", SlackConfig(streaming=True), []).capabilities.streaming
    assert adapter.name == "slack"
    assert adapter.health().state is ConnectionState.STOPPED
    assert adapter.split("") == [""]
    assert len(adapter.split("word " * 5000)) > 1


async def test_requests_are_checked_against_the_method_table() -> None:
    assert FakeSlack().server.specs["chat.postMessage"]["args"]["required"] == ["token", "channel"]


async def test_a_mention_is_taken_over_then_acknowledged() -> None:
    intake = RecordingIntake()
    async with fast_slack() as slack, running(slack, intake) as adapter:
        asked = slack.mention("what <b>?")
        await slack.wait_for(lambda: settled(slack))
        assert adapter.capabilities.command_prefix == "@parley /"
        assert intake.texts == ["what <b>?"] * 2
        first, second = intake.received
        assert first.event_id != second.event_id
        assert first.message_id == second.message_id == asked.ts
        assert (first.key, first.is_addressed) == (second.key, second.is_addressed)
        assert adapter.health().last_event_at is not None
    assert [(e.attempts, e.acked) for e in slack.sockets.envelopes] == [(1, True)] * 2
    assert slack.violations == []


async def test_envelopes_are_acknowledged_only_after_the_intake_accepted_them() -> None:
    intake = RecordingIntake()
    intake.gate = anyio.Event()
    async with FakeSlack(ack_window_s=3.0) as slack, running(slack, intake):
        slack.dm("hello")
        await slack.wait_for(lambda: intake.offered)
        assert not slack.sockets.envelopes[0].acked
        intake.gate.set()
        await slack.wait_for(lambda: slack.sockets.envelopes[0].acked)
    assert intake.texts == ["hello"]


async def test_a_refused_event_is_delivered_again_with_the_same_id(
    caplog: pytest.LogCaptureFixture,
) -> None:
    intake = RecordingIntake(errors=[IntakeFull(), IntakeFull()])
    async with fast_slack(ack_window_s=1.0) as slack, running(slack, intake):
        slack.dm("hello")
        await slack.wait_for(lambda: slack.sockets.envelopes[0].acked)
        assert slack.sockets.envelopes[0].attempts == 3
    assert intake.texts == ["hello"]
    assert {i.event_id for i in intake.offered} == {intake.received[0].event_id}
    warnings = [r for r in caplog.records if r.levelno >= logging.WARNING]
    assert len(warnings) == 2
    assert all("will send it again" in r.getMessage() for r in warnings)


async def test_an_unexpected_error_is_no_acknowledgement_either(
    caplog: pytest.LogCaptureFixture,
) -> None:
    intake = RecordingIntake(errors=[RuntimeError("a defect")])
    async with fast_slack(ack_window_s=1.0) as slack, running(slack, intake):
        slack.dm("hello")
        await slack.wait_for(lambda: slack.sockets.envelopes[0].acked)
        assert slack.sockets.envelopes[0].attempts == 2
    assert intake.texts == ["hello"]
    assert any(record.exc_info for record in caplog.records)


async def test_a_slash_command_comes_in_and_is_acknowledged_with_nothing() -> None:
    intake = RecordingIntake()
    async with fast_slack() as slack, running(slack, intake):
        envelope = slack.slash("status")
        await slack.wait_for(lambda: envelope.acked)
        assert envelope.answer is None
    assert intake.texts == ["/status"]
    assert intake.received[0].reply_target.response_url
    assert slack.violations == []


async def test_a_slash_command_that_was_refused_is_not_acknowledged() -> None:
    intake = RecordingIntake(errors=[IntakeFull()])
    async with fast_slack(ack_window_s=0.1) as slack, running(slack, intake):
        envelope = slack.slash("status")
        await slack.wait_for(lambda: envelope.dropped)
    assert not envelope.acked


async def test_ignored_events_are_acknowledged_and_counted() -> None:
    intake = RecordingIntake()
    async with fast_slack() as slack, running(slack, intake) as adapter:
        said = slack.say("just talking")
        slack.bot_says("ping")
        slack.preview(said)
        slack.send_event({"type": "app_home_opened", "user": USER, "tab": "messages"})
        slack.send_event({"type": "tokens_revoked", "tokens": {"bot": [BOT_USER]}})
        slack.send_event({"type": "brand_new_event"})
        await adapter.send(ReplyTarget(chat="C1"), "own words", key="k")
        await slack.wait_for(lambda: len(slack.sockets.envelopes) == 7 and settled(slack))
    assert [e.attempts for e in slack.sockets.envelopes] == [1] * 7
    assert [i.is_addressed for i in intake.received] == [False]
    reasons = [reason for reason, _ in intake.ignored]
    assert (
        reasons.count(Disposition.FROM_BOT) == 1
    )  # Its own words are dropped before they are counted.
    assert reasons.count(Disposition.UNSUPPORTED) == 3
    assert slack.violations == []


@pytest.mark.parametrize("text", ["\ud800 \x00 broken", "x" * 900_000, "<!channel> <@U0PARLEY"])
async def test_hostile_texts_are_received(text: str) -> None:
    intake = RecordingIntake()
    async with fast_slack() as slack, running(slack, intake):
        slack.dm(text)
        await slack.wait_for(lambda: settled(slack))
    assert len(intake.received) == 1


async def test_frames_that_are_no_envelopes_do_no_harm() -> None:
    intake = RecordingIntake()
    async with fast_slack() as slack, running(slack, intake):
        poison = '{"envelope_id":"x","type":"events_api","payload":'
        for frame in (
            "not json",
            "[" * 100_000,
            "[1]",
            "{}",
            f'{poison}"text"}}',
            f'{poison}{{"team":7}}}}',
            f'{poison}{{"event":"text"}}}}',
        ):
            await slack.sockets.open[0].send_str(frame)
        slack.dm("hello")
        await slack.wait_for(lambda: settled(slack))
    assert intake.texts == ["hello"]


@pytest.mark.parametrize("actions", [[], None, {}, ["text"], [{}]], ids=str)
async def test_an_interaction_without_a_usable_action_does_no_harm(actions: object) -> None:
    intake = RecordingIntake()
    async with fast_slack(ack_window_s=0.3) as slack, running(slack, intake) as adapter:
        body = {"type": "block_actions", "user": {"id": "U1"}, "team": {"id": "T1TEAM"}}
        envelope = slack.interact({**body, "actions": actions})
        await slack.wait_for(lambda: envelope.acked or envelope.dropped)
        slack.dm("hello")
        await slack.wait_for(lambda: settled(slack))
        assert slack.sockets.connects == 1
        assert adapter.health().state is ConnectionState.CONNECTED
    assert set(intake.texts) == {"hello"}  # may repeat, if the acknowledgement was slow
    assert intake.pressed == []


async def test_messages_of_one_chat_stay_in_order() -> None:
    intake = RecordingIntake()
    async with fast_slack() as slack, running(slack, intake):
        for number in range(50):
            slack.dm(str(number))
        await slack.wait_for(lambda: settled(slack))
    assert intake.texts == [str(number) for number in range(50)]


@pytest.mark.parametrize("reason", ["refresh_requested", "warning", "too_many_websockets"])
async def test_slack_asks_for_a_new_connection(reason: str) -> None:
    intake = RecordingIntake()
    async with fast_slack() as slack, running(slack, intake) as adapter:
        await slack.disconnect_all(reason)
        await slack.wait_for(lambda: slack.sockets.connects == 2)
        await slack.wait_for(lambda: adapter.health().state is ConnectionState.CONNECTED)
        slack.dm("hello")
        await slack.wait_for(lambda: settled(slack))
        assert len(slack.asked("apps.connections.open")) == 2
    assert intake.texts == ["hello"]
    assert slack.violations == []


@pytest.mark.parametrize("reason", ["warning", "refresh_requested"])
async def test_next_connection_is_open_before_the_old_one_closes(reason: str) -> None:
    intake = RecordingIntake()
    async with fast_slack(ack_window_s=1.0) as slack, running(slack, intake) as adapter:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(slack.disconnect_all, reason)
            await slack.wait_for(lambda: len(slack.sockets.open) == 2)
            # Slack sends commands and presses once, over any of the connections.
            for number in range(6):
                slack.slash(f"status {number}")
                slack.dm(f"message {number}")
            await slack.wait_for(lambda: settled(slack))
            assert adapter.health().state is ConnectionState.CONNECTED
        await slack.wait_for(lambda: len(slack.sockets.open) == 1)
        assert (slack.sockets.connects, slack.sockets.gaps) == (2, 0)
    assert all(e.acked and e.attempts == 1 for e in slack.sockets.envelopes)
    assert len(set(intake.texts)) == len(intake.texts) == 12
    assert slack.violations == []


async def test_old_connection_receives_while_the_next_one_cannot_be_opened() -> None:
    intake = RecordingIntake()
    async with fast_slack() as slack, running(slack, intake) as adapter:
        slack.sockets.grace_s = 5.0
        slack.fail("apps.connections.open", status=503, times=3)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(slack.disconnect_all, "warning")
            await slack.wait_for(lambda: len(slack.asked("apps.connections.open")) >= 3)
            slack.slash("status")
            await slack.wait_for(lambda: intake.texts == ["/status"])
            assert adapter.health().state is ConnectionState.CONNECTED
            await slack.wait_for(lambda: slack.sockets.connects == 2)
        assert slack.sockets.gaps == 0


async def test_retired_connection_that_slack_never_closes_is_closed() -> None:
    timeouts = replace(FAST, overlap_s=0.1)
    async with fast_slack() as slack, running(slack, timeouts=timeouts):
        slack.sockets.grace_s = 60.0
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(slack.disconnect_all, "warning")
            await slack.wait_for(lambda: slack.sockets.connects == 2)
            await slack.wait_for(lambda: len(slack.sockets.open) == 1)


async def test_events_in_progress_are_acknowledged_before_the_connection_closes() -> None:
    intake = RecordingIntake()
    intake.gate = anyio.Event()
    async with FakeSlack(ack_window_s=3.0) as slack, running(slack, intake):
        slack.dm("hello")
        await slack.wait_for(lambda: intake.offered)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(slack.disconnect_all)
            await slack.wait_for(lambda: slack.sockets.connects == 2)
            intake.gate.set()
        await slack.wait_for(lambda: settled(slack))
        assert slack.sockets.envelopes[0].attempts == 1


async def test_a_broken_connection_is_replaced_and_nothing_is_lost() -> None:
    intake = RecordingIntake()
    async with fast_slack(ack_window_s=1.0) as slack, running(slack, intake) as adapter:
        slack.cut_all()
        slack.dm("hello")
        await slack.wait_for(lambda: settled(slack))
        assert adapter.health().state is ConnectionState.CONNECTED
    assert intake.texts == ["hello"]


async def test_a_silent_connection_is_replaced() -> None:
    timeouts = replace(FAST, ping_s=0.05, drain_s=0.1)
    async with fast_slack() as slack:
        slack.sockets.deaf = True
        async with running(slack, timeouts=timeouts):
            await slack.wait_for(lambda: slack.sockets.connects >= 2)


async def test_connected_means_that_slack_sent_hello() -> None:
    timeouts = replace(FAST, hello_s=0.1, drain_s=0.1)
    async with fast_slack() as slack:
        slack.sockets.mute = True
        async with running(slack, timeouts=timeouts, connected=False) as adapter:
            await slack.wait_for(lambda: "hello" in adapter.health().detail)
            assert adapter.health().state is ConnectionState.CONNECTING
            slack.sockets.mute = False
            await slack.wait_for(lambda: adapter.health().state is ConnectionState.CONNECTED)
            assert adapter.health().detail == ""


async def test_an_envelope_counts_as_a_hello() -> None:
    intake = RecordingIntake()
    async with fast_slack() as slack:
        slack.sockets.greets = False
        async with running(slack, intake, connected=False) as adapter:
            await slack.wait_for(lambda: slack.sockets.open)
            slack.dm("no hello")
            await slack.wait_for(lambda: all(e.acked for e in slack.sockets.envelopes))
            assert adapter.health().state is ConnectionState.CONNECTED
    assert intake.texts == ["no hello"]


async def test_slack_is_away_and_comes_back() -> None:
    intake = RecordingIntake()
    async with fast_slack() as slack, running(slack, intake) as adapter:
        await slack.go_offline()
        await slack.wait_for(lambda: "cannot be reached" in adapter.health().detail)
        assert adapter.health().state is ConnectionState.RECONNECTING
        await slack.come_back()
        await slack.wait_for(lambda: adapter.health().state is ConnectionState.CONNECTED)
        slack.dm("hello")
        await slack.wait_for(lambda: settled(slack))
    assert intake.texts == ["hello"]


async def test_slack_is_away_at_the_start() -> None:
    async with fast_slack() as slack:
        await slack.go_offline()
        async with running(slack, connected=False) as adapter:
            await slack.wait_for(lambda: "cannot be reached" in adapter.health().detail)
            assert adapter.health().state is ConnectionState.CONNECTING
            await slack.come_back()
            await slack.wait_for(lambda: adapter.health().state is ConnectionState.CONNECTED)


@pytest.mark.parametrize("method", ["auth.test", "apps.connections.open"])
@pytest.mark.parametrize(
    "trouble", [{"status": 503}, {"body": "<html>"}, {"drop": "before"}, {"error": "fatal_error"}]
)
async def test_trouble_at_the_start_passes(method: str, trouble: dict[str, object]) -> None:
    async with fast_slack() as slack:
        slack.fail(method, times=2, **trouble)  # type: ignore[arg-type]
        async with running(slack):
            assert len(slack.asked(method)) == 3


async def test_a_socket_that_is_refused_is_tried_again_with_a_new_ticket() -> None:
    async with fast_slack() as slack:
        slack.sockets.refuse = True
        async with running(slack, connected=False) as adapter:
            await slack.wait_for(lambda: len(slack.asked("apps.connections.open")) >= 3)
            slack.sockets.refuse = False
            await slack.wait_for(lambda: adapter.health().state is ConnectionState.CONNECTED)
    assert slack.violations == []


@pytest.mark.parametrize("key", ["bot_token", "app_token"])
async def test_a_wrong_token_is_named_and_tried_again_slowly(
    key: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    async with fast_slack() as slack:
        good = getattr(slack, key)
        setattr(slack.server, key, "another")
        async with running(slack, connected=False, given={key: good}) as adapter:
            await slack.wait_for(lambda: adapter.health().state is ConnectionState.FAILED)
            assert f"channels.slack.{key}" in adapter.health().detail
            assert good not in adapter.health().detail
            setattr(slack.server, key, good)
            await slack.wait_for(lambda: adapter.health().state is ConnectionState.CONNECTED)
    assert good not in caplog.text
    assert "ticket=" not in caplog.text


async def test_swapped_tokens_are_explained() -> None:
    async with fast_slack() as slack:
        swapped = {"bot_token": slack.app_token, "app_token": slack.bot_token}
        async with running(slack, connected=False, given=swapped) as adapter:
            await slack.wait_for(lambda: adapter.health().state is ConnectionState.FAILED)
            assert "xoxb-..." in adapter.health().detail


@pytest.mark.parametrize(
    ("given", "detail"),
    [
        ({"mode": "http"}, "channels.slack.signing_secret is not set"),
        ({"mode": "http", "signing_secret": "  "}, "channels.slack.signing_secret is not set"),
        ({"bot_token": ""}, "channels.slack.bot_token is not set"),
        ({"app_token": ""}, "channels.slack.app_token is not set"),
    ],
)
async def test_unusable_settings_end_the_run(given: dict[str, str], detail: str) -> None:
    async with fast_slack() as slack:
        adapter = SlackAdapter(config(slack, given), timeouts=FAST)
        async with anyio.create_task_group() as tasks:
            await tasks.start(
                lambda task_status: adapter.run(RecordingIntake(), task_status=task_status)
            )
        assert adapter.health().state is ConnectionState.FAILED
        assert detail in adapter.health().detail
        assert slack.server.calls == []


async def test_an_invalid_base_url_is_reported() -> None:
    async with (
        fast_slack() as slack,
        running(slack, connected=False, given={"base_url": "nonsense"}) as adapter,
    ):
        await slack.wait_for(lambda: adapter.health().state is ConnectionState.FAILED)
        assert "base_url" in adapter.health().detail


async def test_a_token_that_is_revoked_while_connected_shows_at_the_next_call() -> None:
    async with fast_slack() as slack, running(slack) as adapter:
        asked = slack.dm("hello")
        good, slack.server.bot_token = slack.bot_token, "another"
        with pytest.raises(DeliveryError, match="invalid_auth"):
            await adapter.send(ReplyTarget(chat=f"D{USER}"), "answer", key="k")
        await slack.wait_for(lambda: adapter.health().state is ConnectionState.FAILED)
        slack.server.bot_token = good
        await slack.wait_for(lambda: adapter.health().state is ConnectionState.CONNECTED)
        assert slack.replies(asked) == []


async def test_stopping_is_quick_also_in_the_middle_of_a_message() -> None:
    intake = RecordingIntake()
    intake.gate = anyio.Event()
    async with fast_slack() as slack:
        with anyio.fail_after(20):
            async with running(slack, intake) as adapter:
                slack.dm("hello")
                await slack.wait_for(lambda: intake.offered)
        assert adapter.health().state is ConnectionState.STOPPED
        await slack.wait_for(lambda: not slack.sockets.open)
        assert intake.received == []


async def test_the_slack_adapter_can_run_again() -> None:
    async with fast_slack() as slack:
        adapter = SlackAdapter(config(slack), timeouts=FAST)
        for _ in range(2):
            async with anyio.create_task_group() as tasks:
                await tasks.start(
                    lambda task_status: adapter.run(RecordingIntake(), task_status=task_status)
                )
                await slack.wait_for(lambda: adapter.health().state is ConnectionState.CONNECTED)
                tasks.cancel_scope.cancel()
            assert adapter.health().state is ConnectionState.STOPPED


async def test_the_environment_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """By itself, the SDK would read tokens, an OAuth mode and a proxy without exceptions from the environment."""
    for name in ("SLACK_CLIENT_ID", "SLACK_CLIENT_SECRET", "SLACK_BOT_TOKEN"):
        monkeypatch.setenv(name, "from the environment")
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    intake = RecordingIntake()
    async with fast_slack() as slack, running(slack, intake) as adapter:
        slack.dm("hello")
        await slack.wait_for(lambda: settled(slack))
        await adapter.send(ReplyTarget(chat=f"D{USER}"), "answer", key="k")
        assert slack.texts(f"D{USER}") == ["answer"]
    assert intake.texts == ["hello"]


async def test_health_shows_that_messages_are_not_accepted_until_they_are() -> None:
    intake = RecordingIntake(errors=[StoreError("disk full")] * 100)
    async with fast_slack() as slack, running(slack, intake) as adapter:
        slack.say("hello")
        await eventually(lambda: adapter.health().detail, lambda told: "(StoreError)" in told)
        assert adapter.health().state is ConnectionState.CONNECTED
        intake.errors.clear()
        slack.say("again")
        await slack.wait_for(lambda: "again" in intake.texts)
        await eventually(lambda: adapter.health().detail, lambda told: told == "")
