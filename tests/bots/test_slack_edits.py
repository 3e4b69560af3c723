"""Edited and deleted messages on Slack, and the many changes that people did not make."""

from typing import Any

import pytest

from bots.common.events import IgnoredEvent
from bots.slack.buttons import parse_button_press
from bots.slack.inbound import SlackEvent, parse_event, parse_slash_command
from bots.slack.payload import SlackIdentity
from bus.messages import ButtonPress, InboundMessage, MessageDeletion, MessageEdit
from bus.platform import Disposition
from gateway.playground.slack.payloads import pressed, slash
from gateway.playground.slack.state import SlackMessage
from tests.bots.slack_rig import fast_slack, running
from tests.bots.test_slack_inbound import ME, body
from tests.fakes.intake import RecordingIntake

AT = "10.000100"


def changed(
    now: dict[str, Any], before: dict[str, Any] | None = None, **more: object
) -> dict[str, Any]:
    said = {"type": "message", "user": "U1", "ts": AT, "text": "hi"}
    was = {"previous_message": said | before} if before is not None else {}
    return body(
        subtype="message_changed",
        user=None,
        text=None,
        ts="99.1",
        message=said | now,
        **was,
        **more,
    )


def change(found: SlackEvent) -> MessageEdit:
    assert isinstance(found, MessageEdit), found
    return found


def deleted_id(found: SlackEvent) -> str:
    assert isinstance(found, MessageDeletion), found
    return found.message_id


def test_an_edited_message_is_read_as_a_new_one_is() -> None:
    fields = {"text": "<@UBOT> hello &amp; more", "thread_ts": "5.000001"}
    edited = change(parse_event(changed(fields, {"text": "<@UBOT> hello"}), ME)).edited
    fresh = parse_event(body(**fields), ME)
    assert isinstance(fresh, InboundMessage)
    assert edited == fresh


def test_it_is_named_as_its_message_was() -> None:
    found = change(parse_event(changed({"text": "new"}, {}), ME))
    assert found.message_id == AT
    assert found.event_id == "Ev1"
    assert (found.key.chat, found.key.topic) == ("C1", AT)
    private = change(parse_event(changed({"text": "new"}, {}, channel="D1", channel_type="im"), ME))
    assert private.key.topic == ""
    assert private.edited.is_addressed


@pytest.mark.parametrize(
    ("now", "before"),
    [
        ({"attachments": [{"id": 1}]}, {}),
        ({"reply_count": 3, "thread_ts": AT}, {"reply_count": 2, "thread_ts": AT}),
        ({"blocks": [{"type": "rich_text"}], "edited": {"ts": "9"}}, {}),
        ({"text": "same"}, {"text": "same"}),
        ({"pinned_to": ["C1"]}, None),
        ({"text": "unknown before, and not edited"}, None),
    ],
)
def test_changes_without_an_edit_are_ignored(
    now: dict[str, Any], before: dict[str, Any] | None
) -> None:
    found = parse_event(changed(now, before), ME)
    assert isinstance(found, IgnoredEvent)
    assert found.reason is Disposition.UNSUPPORTED


def rich(*parts: dict[str, Any]) -> list[dict[str, Any]]:
    section = {"type": "rich_text_section", "elements": [*parts]}
    return [{"type": "rich_text", "elements": [section]}]


STRUCK = {"type": "text", "text": "hi", "style": {"strike": True}}
SHARED = {"is_share": True, "author_name": "Bob", "text": "look"}
CLIP = {"id": "F1", "name": "a.m4a"}
SPOKEN = {"transcription": {"status": "complete", "preview": {"content": "call me"}}}


@pytest.mark.parametrize(
    ("now", "before", "prompt"),
    [
        ({"blocks": rich(STRUCK)}, {"blocks": rich({"type": "text", "text": "hi"})}, "~~hi~~"),
        ({"attachments": [SHARED]}, {}, "hi\n\n[Forwarded]\n> Bob: look"),
        ({}, {"attachments": [SHARED]}, "hi"),
        ({"text": "<@UBOT> hi"}, {}, "hi"),
    ],
    ids=["formatting", "forwarded", "no longer forwarded", "mention"],
)  # fmt: skip
def test_visible_changes_are_edits(
    now: dict[str, Any], before: dict[str, Any], prompt: str
) -> None:
    assert change(parse_event(changed(now, before), ME)).edited.prompt == prompt


LINK = {"from_url": "https://x.test/", "title": "A page", "text": "words", "blocks": rich(STRUCK)}


def test_a_preview_of_a_link_is_no_edit() -> None:
    found = parse_event(changed({"attachments": [LINK]}, {}), ME)
    assert isinstance(found, IgnoredEvent)


def test_a_transcript_that_slack_adds_to_a_clip_is_no_edit() -> None:
    found = parse_event(changed({"files": [CLIP | SPOKEN]}, {"files": [CLIP]}), ME)
    assert isinstance(found, IgnoredEvent)


def test_an_edit_without_its_past_is_one_if_it_says_so() -> None:
    found = change(
        parse_event(changed({"text": "new", "edited": {"user": "U1", "ts": "11.0"}}), ME)
    )
    assert (found.edited.text, found.edited.edited_at) == ("new", 11.0)


@pytest.mark.parametrize(
    "author",
    [{"user": "UBOT", "bot_id": "BBOT"}, {"bot_id": "BOTHER"}, {"user": "USLACKBOT"}],
)
def test_changes_of_bots_are_no_news(author: dict[str, str]) -> None:
    found = parse_event(changed({"text": "new", **author}, author), ME)
    assert isinstance(found, IgnoredEvent)
    assert found.reason is Disposition.FROM_BOT


def test_a_file_that_was_taken_out_is_an_edit() -> None:
    files = [{"id": "F1", "name": "a.txt"}]
    found = change(parse_event(changed({"files": []}, {"files": files}), ME))
    assert found.edited.attachments == ()


def test_a_message_of_which_nothing_is_left_to_say() -> None:
    found = parse_event(changed({"text": ""}, {}), ME)
    assert isinstance(found, IgnoredEvent)
    assert found.reason is Disposition.EMPTY


@pytest.mark.parametrize("was", [{"user": "U1", "text": "hi", "ts": AT}, {}, None])
def test_a_deleted_message_is_read_as_a_deletion(was: dict[str, Any] | None) -> None:
    gone = body(
        subtype="message_deleted",
        user=None,
        text=None,
        ts="99.1",
        deleted_ts=AT,
        previous_message=was,
    )
    assert deleted_id(parse_event(gone, ME)) == AT


def test_a_deleted_message_with_answers_leaves_a_tombstone() -> None:
    tomb = {"subtype": "tombstone", "user": "USLACKBOT", "text": "This message was deleted."}
    assert deleted_id(parse_event(changed({**tomb, "thread_ts": AT}, {"thread_ts": AT}), ME)) == AT


def test_the_bots_own_deleted_message_is_no_news() -> None:
    was = {"user": "UBOT", "bot_id": "BBOT", "ts": AT}
    gone = body(subtype="message_deleted", user=None, deleted_ts=AT, previous_message=was)
    assert isinstance(parse_event(gone, ME), IgnoredEvent)


@pytest.mark.parametrize("fields", [{"message": "?"}, {"message": {"ts": 5}}, {}])
@pytest.mark.parametrize("subtype", ["message_changed", "message_deleted"])
def test_changes_that_make_no_sense(subtype: str, fields: dict[str, Any]) -> None:
    nonsense = body(subtype=subtype, user=None, ts=None, text=None, previous_message=7, **fields)
    assert isinstance(parse_event(nonsense, ME), IgnoredEvent)


async def test_edits_and_deletions_arrive_and_previews_do_not() -> None:
    intake = RecordingIntake()
    async with fast_slack() as slack, running(slack, intake):
        asked, root = slack.dm("one"), slack.mention("two")
        slack.edit(asked, "one & a <half>")
        slack.preview(asked)
        slack.delete(asked)
        slack.bot_says("answer", thread_ts=root.ts)
        slack.delete(root)
        await slack.wait_for(lambda: len(intake.changed) == 3)
        await slack.wait_for(lambda: all(e.acked for e in slack.sockets.envelopes))
    edit, gone, tomb = intake.changed
    assert isinstance(edit, MessageEdit)
    assert (edit.message_id, edit.edited.text) == (asked.ts, "one & a <half>")
    assert isinstance(gone, MessageDeletion)
    assert gone.message_id == asked.ts
    assert isinstance(tomb, MessageDeletion)
    assert tomb.message_id == root.ts
    assert slack.violations == []


# -- who is answered, and organizations


@pytest.mark.parametrize(
    ("fields", "user"),
    [
        ({}, "U1"),
        ({"team": "T1"}, "U1"),
        ({"team": "T9"}, "T9/U1"),
        ({"user_team": "T9", "team": "T1"}, "T9/U1"),
    ],
)
def test_a_guest_of_a_shared_channel_is_answered_in_their_own_team(
    fields: dict[str, str], user: str
) -> None:
    found = parse_event(body(**fields), ME)
    assert isinstance(found, InboundMessage)
    assert found.reply_target.user == user
    assert found.key.workspace == "T1"
    assert found.sender.user_id == "U1"


def test_org_wide_install_keys_messages_presses_and_commands_alike() -> None:
    me = SlackIdentity(
        team_id="E1", user_id="UBOT", bot_id="BBOT", enterprise_id="E1", is_org_install=True
    )
    org = {"enterprise_id": "E1", "team_id": None, "is_enterprise_install": True}
    message = parse_event(body() | {"team_id": "T1", "authorizations": [org]}, me)
    said = SlackMessage(channel="C1", ts="9.1", user="UBOT", text="x", thread_ts="5.1")
    body_of_press = pressed(said, "parley.0", "stop:7:0", user="U1", response_url="https://r")
    enterprise = {"id": "E1", "name": "Org"}
    presses = [
        parse_button_press(body_of_press | {"team": team, "enterprise": enterprise}, me)
        for team in (None, {"id": "T2", "enterprise_id": "E1"})
    ]
    typed = slash("status", channel="C1", user="U1", command="/parley", response_url="https://r")
    command = parse_slash_command(
        typed | {"team_id": "T2", "enterprise_id": "E1", "is_enterprise_install": "true"}, me
    )
    for found in (message, *presses, command):
        assert isinstance(found, InboundMessage | ButtonPress)
        assert (found.key.workspace, found.key.chat) == ("E1", "C1")


def test_org_wide_install_is_known_by_the_payload_before_the_bot_signed_in() -> None:
    me = SlackIdentity(team_id="", user_id="UBOT", bot_id="BBOT")
    org = {"enterprise_id": "E1", "team_id": None, "is_enterprise_install": True}
    found = parse_event(body() | {"authorizations": [org]}, me)
    assert isinstance(found, InboundMessage)
    assert found.key.workspace == "E1"
