"""Buttons on Slack: shown, pressed over Socket Mode and HTTP, answered; and messages edited and deleted."""

import json
from typing import Any
from urllib.parse import urlencode

import pytest

from bots.common.events import IgnoredEvent
from bots.common.webhooks import WebhookRequest
from bots.slack.buttons import action_blocks, parse_button_press
from bots.slack.payload import SlackIdentity
from bus.errors import DeliveryError, IntakeFull
from bus.messages import Button, ButtonPress, PressResponse, ReplyTarget
from bus.platform import Disposition
from gateway.playground.slack.payloads import pressed
from gateway.playground.slack.server import USER, FakeSlack
from gateway.playground.slack.state import SlackMessage
from tests.bots import test_slack_webhook as http
from tests.bots.slack_rig import fast_slack, running
from tests.bots.test_slack_outbound import place_of
from tests.fakes.intake import RecordingIntake

ME = SlackIdentity(team_id="T1", user_id="UBOT", bot_id="BBOT")
STOP = Button(label="Stop", token="stop:7:0", style="danger")
YES = Button(label="Yes", token="option:7:0", style="primary")
NO = Button(label="No", token="option:7:1")


def message(channel: str = "C1", thread_ts: str = "") -> SlackMessage:
    return SlackMessage(channel=channel, ts="9.1", user="UBOT", text="x", thread_ts=thread_ts)


def payload(said: SlackMessage | None = None, **more: object) -> dict[str, Any]:
    body = pressed(
        said or message(thread_ts="5.1"),
        "parley.0",
        "stop:7:0",
        user="U1",
        response_url="https://r",
    )
    return {**body, **more}


def taken(body: dict[str, Any]) -> ButtonPress:
    found = parse_button_press(body, ME)
    assert isinstance(found, ButtonPress), found
    return found


def test_a_press_in_a_channel_belongs_to_its_thread() -> None:
    found = taken(payload(team={"id": "T9"}))  # Slack Connect: the presser's team, not ours
    assert (found.token, found.message_id, found.sender.user_id) == ("stop:7:0", "9.1", "U1")
    assert (found.key.workspace, found.key.chat, found.key.topic) == ("T1", "C1", "5.1")
    assert found.reply_target == ReplyTarget(
        chat="C1", thread="5.1", response_url="https://r", user="U1"
    )
    assert not found.is_private
    assert taken(payload(message())).key.topic == "9.1"


def test_a_press_in_private_belongs_to_the_one_conversation() -> None:
    found = taken(payload(message(channel="D1")))
    assert found.is_private
    assert found.key.topic == ""
    assert found.reply_target.thread == ""


def test_two_presses_count_twice_and_a_repeated_delivery_counts_once() -> None:
    one = payload()
    assert taken(one).event_id == taken(one).event_id != taken(payload()).event_id


@pytest.mark.parametrize(
    "broken",
    [
        {"actions": []},
        {"actions": None},
        {"actions": ["x"]},
        {"actions": [{"action_id": "another.app", "value": "stop:7:0"}]},
        {"actions": [{"action_id": "parley.0", "value": ""}]},
        {"user": {}},
        {"channel": {}, "container": {}},
        {"message": {}, "container": {}},
    ],
)
def test_presses_of_nothing_of_ours(broken: dict[str, Any]) -> None:
    found = parse_button_press({**payload(), **broken}, ME)
    assert isinstance(found, IgnoredEvent)
    assert found.reason is Disposition.UNSUPPORTED


def test_a_press_on_an_ephemeral_message_is_read() -> None:
    container = {"message_ts": "9.1", "channel_id": "C1", "thread_ts": "5.1", "is_ephemeral": True}
    found = taken({**payload(), "message": None, "channel": None, "container": container})
    assert (found.message_id, found.key.topic) == ("9.1", "5.1")


def test_labels_fit_and_many_buttons_are_several_blocks() -> None:
    blocks = action_blocks(
        [Button(label="é" * 80 if n else "  ", token=f"t{n}") for n in range(26)]
    )
    assert [len(block["elements"]) for block in blocks] == [25, 1]
    labels = [e["text"]["text"] for block in blocks for e in block["elements"]]
    assert all(1 <= len(label) <= 75 for label in labels)
    ids = [e["action_id"] for block in blocks for e in block["elements"]]
    assert len(set(ids)) == 26


async def test_a_press_is_kept_before_slack_is_acknowledged_and_answered_unseen_by_others() -> None:
    intake = RecordingIntake()
    async with fast_slack() as slack, running(slack, intake) as adapter:
        asked = slack.mention("hi")
        await adapter.send_with_buttons(place_of(asked), "Which?", (YES, NO), key="k")
        (question,) = slack.replies(asked)
        assert question.buttons == {"Yes": "option:7:0", "No": "option:7:1"}
        envelope = slack.press(question, "No")
        await slack.wait_for(lambda: envelope.acked and slack.asked("response_url"))
        (found,) = intake.pressed
        assert (found.token, found.message_id) == ("option:7:1", question.ts)
        whisper = slack.messages("C1", viewer=USER)[-1]
        assert (whisper.words, whisper.only_for) == ("pressed", USER)
        assert question in slack.messages("C1")
    assert slack.violations == []


async def test_a_press_without_a_response_shows_nothing() -> None:
    intake = RecordingIntake()
    intake.response = PressResponse(text="")
    async with fast_slack() as slack, running(slack, intake) as adapter:
        asked = slack.dm("hi")
        await adapter.send_with_buttons(place_of(asked), "…", (STOP,), key="k")
        envelope = slack.press(slack.replies(asked)[0], "Stop")
        await slack.wait_for(lambda: envelope.acked)
        slack.dm("later")
        await slack.wait_for(lambda: len(intake.received) == 2)
        assert slack.asked("response_url") == []


async def test_an_answer_that_slack_does_not_take_harms_nothing() -> None:
    intake = RecordingIntake()
    async with fast_slack() as slack, running(slack, intake) as adapter:
        asked = slack.dm("hi")
        await adapter.send_with_buttons(place_of(asked), "…", (STOP,), key="k")
        slack.fail("response_url", status=404)
        slack.press(slack.replies(asked)[0], "Stop")
        await slack.wait_for(lambda: slack.asked("response_url"))
        envelope = slack.press(slack.replies(asked)[0], "Stop")
        await slack.wait_for(lambda: envelope.acked and len(slack.asked("response_url")) == 2)


async def test_a_press_that_was_not_kept_is_not_acknowledged() -> None:
    intake = RecordingIntake()
    async with fast_slack(ack_window_s=1.0) as slack, running(slack, intake) as adapter:
        asked = slack.dm("hi")
        await slack.wait_for(lambda: intake.received)
        intake.errors.append(IntakeFull())
        await adapter.send_with_buttons(place_of(asked), "…", (STOP,), key="k")
        envelope = slack.press(slack.replies(asked)[0], "Stop")
        await slack.wait_for(lambda: envelope.dropped)
        assert not envelope.acked
        again = slack.press(slack.replies(asked)[0], "Stop")
        await slack.wait_for(lambda: again.acked)


@pytest.mark.parametrize("action", ["parley.99", "some_other_app", ""])
async def test_stale_and_unknown_buttons_are_acknowledged(action: str) -> None:
    intake = RecordingIntake()
    async with fast_slack() as slack, running(slack, intake):
        asked = slack.dm("hi")
        envelope = slack.act(asked, action, "old:1:0")
        await slack.wait_for(lambda: envelope.acked)
        assert len(intake.pressed) == int(action.startswith("parley."))


async def test_a_slow_press_holds_up_no_acknowledgement_of_others() -> None:
    intake = RecordingIntake()
    async with FakeSlack(ack_window_s=3.0) as slack, running(slack, intake) as adapter:
        asked = slack.dm("hi")
        await slack.wait_for(lambda: intake.received)
        await adapter.send_with_buttons(place_of(asked), "…", (STOP,), key="k")
        slack.fail("response_url", delay_s=60.0)
        envelope = slack.press(slack.replies(asked)[0], "Stop")
        await slack.wait_for(lambda: envelope.acked)
        slack.dm("next")
        await slack.wait_for(lambda: intake.texts == ["hi", "next"])


async def test_presses_arrive_over_http_too() -> None:
    intake = RecordingIntake()
    async with FakeSlack() as slack, http.running(slack, intake) as (_, door):
        body = urlencode({"payload": json.dumps(payload())}).encode()
        answer = await door.handle(
            WebhookRequest(headers=http.FORM | http.signed(slack, body), body=body)
        )
        assert answer.status == 200
        again = await door.handle(
            WebhookRequest(headers=http.FORM | http.signed(slack, body), body=body)
        )
        assert again.status == 200
    assert len(intake.pressed) == 1


@pytest.mark.parametrize(
    "kind", ["view_submission", "shortcut", "message_action", "block_suggestion"]
)
async def test_other_interactions_with_an_app_are_acknowledged(kind: str) -> None:
    intake = RecordingIntake()
    body = {
        "type": kind, "callback_id": "x", "action_id": "x", "user": {"id": "U1"}, "team": {"id": "T1TEAM"},
        "view": {"callback_id": "x", "type": "modal"}, "message": {"ts": "1.1"}, "channel": {"id": "C1"},
    }  # fmt: skip
    async with fast_slack() as slack, running(slack, intake):
        envelope = slack.interact(body)
        await slack.wait_for(lambda: envelope.acked)
    assert intake.ignored == [(Disposition.UNSUPPORTED, kind)]


# -- changing and removing


async def test_a_message_is_changed_and_loses_its_buttons() -> None:
    async with fast_slack() as slack, running(slack) as adapter:
        asked = slack.mention("hi")
        place = place_of(asked)
        ts = await adapter.send_with_buttons(place, "Which?", (YES, NO), key="k")
        await adapter.edit_message(place, ts, "Which?\n\n**Yes**")
        (question,) = slack.replies(asked)
        assert (question.words, question.buttons) == ("Which?\n\n**Yes**", {})
        await adapter.edit_message(place, ts, "Again?", buttons=(NO,))
        assert question.buttons == {"No": "option:7:1"}
        assert question.metadata is not None
    assert slack.violations == []


async def test_refused_blocks_keep_their_buttons() -> None:
    async with fast_slack() as slack, running(slack) as adapter:
        asked = slack.dm("hi")
        slack.fail("chat.postMessage", error="invalid_blocks")
        ts = await adapter.send_with_buttons(place_of(asked), "**Which?** <!here>", (YES,), key="k")
        (question,) = slack.replies(asked)
        assert question.buttons == {"Yes": "option:7:0"}
        assert question.words == "**Which?** &lt;!here&gt;"
        slack.fail("chat.update", error="invalid_blocks")
        await adapter.edit_message(place_of(asked), ts, "plain")
        assert (question.words, question.blocks) == ("plain", [])
    assert slack.violations == []


async def test_a_message_is_taken_away_once() -> None:
    async with fast_slack() as slack, running(slack) as adapter:
        asked = slack.dm("hi")
        place = place_of(asked)
        ts = await adapter.send_with_buttons(place, "Working on it…", (STOP,), key="k")
        await adapter.delete_message(place, ts)
        assert slack.replies(asked) == []
        await adapter.delete_message(place, ts)
        slack.fail("chat.delete", error="restricted_action")
        with pytest.raises(DeliveryError):
            await adapter.delete_message(place, ts)


@pytest.mark.parametrize(
    "error", ["message_not_found", "cant_update_message", "edit_window_closed"]
)
async def test_a_message_that_cannot_be_changed_is_gone_to_the_bus(error: str) -> None:
    async with fast_slack() as slack, running(slack) as adapter:
        asked = slack.dm("hi")
        ts = await adapter.send(place_of(asked), "x", key="k")
        slack.fail("chat.update", error=error)
        with pytest.raises(DeliveryError) as caught:
            await adapter.edit_message(place_of(asked), ts, "y")
        assert caught.value.target_gone


async def test_the_bots_own_changes_are_no_news() -> None:
    intake = RecordingIntake()
    async with fast_slack() as slack, running(slack, intake) as adapter:
        asked = slack.dm("hi")
        ts = await adapter.send(place_of(asked), "x", key="k")
        await adapter.edit_message(place_of(asked), ts, "y")
        await slack.wait_for(lambda: len(slack.sockets.envelopes) == 3)
        await slack.wait_for(lambda: all(e.acked for e in slack.sockets.envelopes))
        assert not intake.changed
        assert not intake.ignored
