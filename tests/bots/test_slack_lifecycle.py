"""Health shows when a Slack app is disabled, uninstalled, out of connections, missing permissions or restarted."""

import anyio
import pytest

from bots.slack.adapter import SlackAdapter
from bus.errors import DeliveryError
from bus.platform import ConnectionState
from gateway.playground.slack.server import BOT_USER, USER
from tests.bots.slack_rig import FAST, config, fast_slack, running
from tests.bots.test_slack_outbound import place_of
from tests.fakes.intake import RecordingIntake


async def test_socket_mode_that_is_switched_off_needs_a_person() -> None:
    async with fast_slack() as slack, running(slack) as adapter:
        slack.sockets.disabled = True
        await slack.disconnect_all("link_disabled")
        await slack.wait_for(lambda: adapter.health().state is ConnectionState.FAILED)
        assert "Socket Mode" in adapter.health().detail
        assert "turn it on" in adapter.health().detail
        slack.sockets.disabled = False
        await slack.wait_for(lambda: adapter.health().state is ConnectionState.CONNECTED)
        assert adapter.health().detail == ""
    assert slack.violations == []


async def test_socket_mode_that_was_off_from_the_start() -> None:
    async with fast_slack() as slack:
        slack.sockets.disabled = True
        async with running(slack, connected=False) as adapter:
            await slack.wait_for(lambda: adapter.health().state is ConnectionState.FAILED)
            assert "turn it on" in adapter.health().detail
            slack.sockets.disabled = False
            await slack.wait_for(lambda: adapter.health().state is ConnectionState.CONNECTED)


async def test_too_many_connections_are_reported_and_tried_again() -> None:
    intake = RecordingIntake()
    details: list[str] = []
    async with fast_slack() as slack, running(slack, intake) as adapter:

        def crowded() -> bool:
            details.append(adapter.health().detail)
            return slack.sockets.connects == 2

        await slack.disconnect_all("too_many_websockets")
        await slack.wait_for(crowded)
        await slack.wait_for(lambda: adapter.health().state is ConnectionState.CONNECTED)
        slack.dm("hello")
        await slack.wait_for(lambda: intake.texts == ["hello"])
    assert any("too many connections" in detail for detail in details)


async def test_an_uninstalled_app_says_so_and_comes_back_when_it_is_installed_again() -> None:
    async with fast_slack() as slack, running(slack) as adapter:
        good, slack.server.bot_token = slack.bot_token, "xoxb-another"
        slack.server.refusal = "account_inactive"
        envelope = slack.send_event({"type": "app_uninstalled"})
        await slack.wait_for(lambda: adapter.health().state is ConnectionState.FAILED)
        assert envelope.acked
        assert envelope.attempts == 1
        assert "account_inactive" in adapter.health().detail
        assert "reinstalling it" in adapter.health().detail
        slack.server.bot_token = good
        await slack.wait_for(lambda: adapter.health().state is ConnectionState.CONNECTED)


async def test_revoked_tokens_are_looked_at() -> None:
    async with fast_slack() as slack, running(slack) as adapter:
        slack.server.bot_token = "xoxb-another"
        slack.server.refusal = "token_revoked"
        slack.send_event({"type": "tokens_revoked", "tokens": {"oauth": [], "bot": [BOT_USER]}})
        await slack.wait_for(lambda: adapter.health().state is ConnectionState.FAILED)
        assert "token_revoked" in adapter.health().detail


@pytest.mark.parametrize(
    "tokens", [{"oauth": [USER], "bot": ["U2OTHER"]}, {"oauth": [USER]}], ids=["others", "a user's"]
)
async def test_a_token_that_is_still_good_disturbs_nothing(tokens: dict[str, list[str]]) -> None:
    async with fast_slack() as slack, running(slack) as adapter:
        envelope = slack.send_event({"type": "tokens_revoked", "tokens": tokens})
        await slack.wait_for(lambda: envelope.acked)
        slack.dm("hello")
        await slack.wait_for(lambda: all(e.acked for e in slack.sockets.envelopes))
        assert adapter.health().state is ConnectionState.CONNECTED
        assert slack.sockets.connects == 1


async def test_permissions_that_are_missing_show_while_all_else_works() -> None:
    intake = RecordingIntake()
    async with fast_slack() as slack:
        slack.server.scopes -= {"reactions:write"}
        async with running(slack, intake) as adapter:
            assert adapter.health().state is ConnectionState.CONNECTED
            assert "reactions:write" in adapter.health().detail
            assert "parley slack manifest" in adapter.health().detail
            slack.dm("hello")
            await slack.wait_for(lambda: intake.texts == ["hello"])
            slack.server.scopes |= {"reactions:write"}
            await slack.disconnect_all()
            await slack.wait_for(lambda: slack.sockets.connects == 2)
            await slack.wait_for(lambda: adapter.health().detail == "")


@pytest.mark.parametrize("error", ["is_archived", "not_in_channel", "channel_not_found"])
async def test_a_missing_channel_is_reported_after_one_request(error: str) -> None:
    async with fast_slack() as slack, running(slack) as adapter:
        asked = slack.mention("hi")
        slack.fail("chat.postMessage", error=error, times=5)
        with pytest.raises(DeliveryError) as caught:
            await adapter.send(place_of(asked), "answer", key="k")
        assert not caught.value.retryable
        assert not caught.value.ambiguous
        assert "hannel" in caught.value.user_message
        assert len(slack.asked("chat.postMessage")) == 1
        assert adapter.health().state is ConnectionState.CONNECTED


async def test_an_adapter_that_runs_again_listens_once() -> None:
    intake = RecordingIntake()
    async with fast_slack() as slack:
        adapter = SlackAdapter(config(slack), timeouts=FAST)
        for number in range(3):
            async with anyio.create_task_group() as tasks:
                await tasks.start(lambda task_status: adapter.run(intake, task_status=task_status))
                await slack.wait_for(lambda: adapter.health().state is ConnectionState.CONNECTED)
                assert len(slack.sockets.open) == 1
                asked = slack.dm(str(number))
                await slack.wait_for(lambda: all(e.acked for e in slack.sockets.envelopes))
                await adapter.show_working(place_of(asked))
                tasks.cancel_scope.cancel()
            assert adapter.health().state is ConnectionState.STOPPED
            await slack.wait_for(lambda: not slack.sockets.open)
    assert intake.texts == ["0", "1", "2"]
    assert all(envelope.attempts == 1 for envelope in slack.sockets.envelopes)


async def test_a_limit_of_slacks_is_a_pause_and_no_failure() -> None:
    async with fast_slack() as slack, running(slack) as adapter:
        asked = slack.dm("hi")

        async def too_much() -> None:
            for number in range(100):
                await adapter.send(place_of(asked), f"{number}", key=f"{number}")

        with pytest.raises(DeliveryError) as caught:
            await too_much()
        assert caught.value.retryable
        assert 0 < (caught.value.retry_after_s or 0) <= 61
