"""Slack payloads become `InboundMessage`: a table with every case."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from bots.common.events import IgnoredEvent
from bots.slack.inbound import SlackEvent, parse_event, parse_slash_command
from bots.slack.mentions import put_names, take_bot
from bots.slack.mrkdwn_parser import parse_mrkdwn
from bots.slack.payload import SlackIdentity
from bus.messages import (
    ConversationKey,
    InboundMessage,
    ReplyTarget,
    decode_inbound,
    encode_inbound,
)
from bus.platform import Disposition

ME = SlackIdentity(team_id="T1", user_id="UBOT", bot_id="BBOT")


def body(**fields: object) -> dict[str, Any]:
    said = {"type": "message", "user": "U1", "channel": "C1", "ts": "10.000100", "text": "hi"}
    return {
        "team_id": "T1",
        "event_id": "Ev1",
        "authorizations": [{"team_id": "T1"}],
        "event": {name: value for name, value in (said | fields).items() if value is not None},
    }


def taken(found: SlackEvent) -> InboundMessage:
    assert isinstance(found, InboundMessage), found
    return found


def skipped(found: SlackEvent) -> Disposition:
    assert isinstance(found, IgnoredEvent), found
    return found.reason


def test_a_channel_message_opens_a_thread() -> None:
    found = taken(parse_event(body(text="<@UBOT> hello", channel_type="channel"), ME))
    assert found == InboundMessage(
        event_id="Ev1",
        message_id="10.000100",
        key=ConversationKey(channel="slack", workspace="T1", chat="C1", topic="10.000100"),
        reply_target=ReplyTarget(chat="C1", thread="10.000100", reply_to="10.000100", user="U1"),
        sender=found.sender,
        text="hello",
        is_private=False,
        is_addressed=True,
        track_replies=True,
        sent_at=10.0001,
        order=10_000_100,
    )
    assert found.sender.user_id == "U1"


def test_a_reply_in_a_thread_stays_in_it() -> None:
    found = taken(parse_event(body(text="<@UBOT> more", thread_ts="5.000001"), ME))
    assert found.key.topic == "5.000001"
    assert found.reply_target == ReplyTarget(
        chat="C1", thread="5.000001", reply_to="10.000100", user="U1"
    )
    assert found.replies_to == ("5.000001",)


def test_a_thread_root_answers_nothing() -> None:
    found = taken(parse_event(body(thread_ts="10.000100"), ME))
    assert found.key.topic == "10.000100"
    assert found.replies_to == ()


@pytest.mark.parametrize(
    ("thread_ts", "thread"), [(None, ""), ("5.000001", "5.000001")], ids=["flat", "in a thread"]
)
def test_a_direct_message_is_one_conversation(thread_ts: str | None, thread: str) -> None:
    found = taken(parse_event(body(channel="D1", channel_type="im", thread_ts=thread_ts), ME))
    assert found.key == ConversationKey(channel="slack", workspace="T1", chat="D1")
    assert found.reply_target == ReplyTarget(
        chat="D1", thread=thread, reply_to="10.000100", user="U1"
    )
    assert found.is_private
    assert found.is_addressed
    assert not found.track_replies
    assert found.replies_to == ()


def test_an_agent_answers_in_the_thread_that_a_direct_message_begins() -> None:
    agent = replace(ME, scopes=frozenset({"assistant:write"}))
    found = taken(parse_event(body(channel="D1", channel_type="im"), agent))
    assert found.reply_target.thread == "10.000100"
    assert found.key.topic == ""
    within = taken(parse_event(body(channel="D1", channel_type="im", thread_ts="5.000001"), agent))
    assert within.reply_target.thread == "5.000001"
    assert within.key == found.key


@pytest.mark.parametrize("channel_type", ["im", "app_home", None])
def test_direct_messages_are_private(channel_type: str | None) -> None:
    assert taken(parse_event(body(channel="D1", channel_type=channel_type), ME)).is_private


def test_a_group_of_people_is_not_private() -> None:
    found = taken(parse_event(body(channel="G1", channel_type="mpim"), ME))
    assert not found.is_private
    assert not found.is_addressed


def test_mention_and_message_of_one_post_agree() -> None:
    text = "<@UBOT> hello"
    mention = taken(parse_event(body(type="app_mention", text=text) | {"event_id": "Ev1"}, ME))
    message = taken(parse_event(body(text=text, channel_type="channel") | {"event_id": "Ev2"}, ME))
    assert mention.event_id != message.event_id
    for name in ("message_id", "key", "reply_target", "text", "is_addressed", "is_private"):
        assert getattr(mention, name) == getattr(message, name)


def test_a_mention_event_addresses_the_bot_even_if_its_id_is_unknown() -> None:
    nobody = SlackIdentity(team_id="", user_id="", bot_id="")
    assert taken(parse_event(body(type="app_mention", text="<@UBOT> hello"), nobody)).is_addressed


@pytest.mark.parametrize(
    ("fields", "workspace"),
    [
        ({"authorizations": [{"team_id": "T2"}], "team_id": "T9"}, "T2"),
        ({"authorizations": [], "team_id": "T9"}, "T1"),
        ({"authorizations": [{"team_id": None}], "team_id": "T9"}, "T1"),
        ({"authorizations": "?", "team_id": None}, "T1"),
    ],
)
def test_the_workspace_is_the_one_that_installed_the_bot(
    fields: dict[str, Any], workspace: str
) -> None:
    assert taken(parse_event(body() | fields, ME)).key.workspace == workspace


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"user": "UBOT", "bot_id": "BBOT"}, Disposition.FROM_BOT),
        ({"user": None, "bot_id": "BBOT", "subtype": "bot_message"}, Disposition.FROM_BOT),
        ({"user": "UBOT"}, Disposition.FROM_BOT),
        ({"bot_id": "BOTHER"}, Disposition.FROM_BOT),
        ({"user": None, "subtype": "bot_message"}, Disposition.FROM_BOT),
        ({"user": "USLACKBOT"}, Disposition.FROM_BOT),
        ({"type": "app_mention", "user": "UBOT", "bot_id": "BBOT"}, Disposition.FROM_BOT),
        ({"channel": "D1", "text": "<@UBOT> hi", "bot_id": "BOTHER"}, Disposition.FROM_BOT),
        ({"subtype": "channel_join"}, Disposition.UNSUPPORTED),
        ({"type": "reaction_added"}, Disposition.UNSUPPORTED),
        ({"type": "app_home_opened"}, Disposition.UNSUPPORTED),
        ({"user": None}, Disposition.UNSUPPORTED),
        ({"channel": None}, Disposition.UNSUPPORTED),
        ({"ts": None}, Disposition.UNSUPPORTED),
        ({"channel": {"id": "C1"}}, Disposition.UNSUPPORTED),
        ({"text": "  "}, Disposition.EMPTY),
        ({"text": None}, Disposition.EMPTY),
        ({"text": ["no", "text"]}, Disposition.EMPTY),
    ],
)
def test_messages_for_others_are_ignored(fields: dict[str, Any], reason: Disposition) -> None:
    assert skipped(parse_event(body(**fields), ME)) is reason


@pytest.mark.parametrize("payload", [{}, {"event": None}, {"event": []}, {"event": {"type": 7}}])
def test_payloads_that_make_no_sense(payload: dict[str, Any]) -> None:
    assert skipped(parse_event(payload, ME)) is Disposition.UNSUPPORTED


@pytest.mark.parametrize("subtype", [None, "file_share", "me_message", "thread_broadcast"])
def test_messages_of_these_subtypes_are_read(subtype: str | None) -> None:
    assert taken(parse_event(body(subtype=subtype), ME)).text == "hi"


def test_files_are_described() -> None:
    files = [
        {"id": "F1", "name": "a.png", "mimetype": "image/png", "size": 12},
        {"id": "F2", "title": "notes", "mimetype": "text/plain"},
        {"id": "F3", "mode": "tombstone"},
        {"name": "no id"},
        "nonsense",
    ]
    found = taken(parse_event(body(subtype="file_share", text="", files=files), ME)).attachments
    assert [(a.ref, a.name, a.mime, a.kind, a.size_bytes) for a in found] == [
        ("F1", "a.png", "image/png", "image", 12),
        ("F2", "notes", "text/plain", "file", None),
        ("no file: tombstone", "F3", "application/octet-stream", "file", None),
    ]


@pytest.mark.parametrize(
    ("marked", "text", "mentioned"),
    [
        ("<@UBOT> hello", "hello", True),
        ("<@UBOT|parley> hello", "hello", True),
        ("<@UBOT>: hello", "hello", True),
        ("<@UBOT> /help", "/help", True),
        ("<@UBOT>\n/new", "/new", True),
        ("please <@UBOT> do it", "please do it", True),
        ("do it <@UBOT>", "do it", True),
        ("do<@UBOT> it", "do it", True),
        ("<@UBOT> <@UBOT>", "", True),
        ("<@UBOTHER> hello", "@UBOTHER hello", False),
        ("<@U2|ann> and <@U3>", "@ann and @U3", False),
        ("&lt;@UBOT&gt; typed by hand", "<@UBOT> typed by hand", False),
        ("&amp;lt;b&amp;gt; a &lt; b &amp;&amp; c", "&lt;b&gt; a < b && c", False),
        ("<https://x.org/?a=1&amp;b=2>", "https://x.org/?a=1&b=2", False),
        ("<https://x.org|the site>", "the site (https://x.org)", False),
        ("<https://x.org|x.org>", "https://x.org", False),
        ("<mailto:a@x.org|a@x.org>", "a@x.org", False),
        ("<#C7|general> <#C8>", "#general #C8", False),
        ("<!here> <!subteam^S1|@devs> <!subteam^S2>", "@here @devs @S2", False),
        ("<!date^1^{date}|1970>", "1970", False),
        ("a < b, unescaped", "a < b, unescaped", False),
    ],
)
def test_mark_up_becomes_plain_text(marked: str, text: str, *, mentioned: bool) -> None:
    said, is_mentioned = take_bot(parse_mrkdwn(marked), "UBOT")
    assert (put_names(said, {}), is_mentioned) == (text, mentioned)


@pytest.mark.parametrize(
    "text",
    [
        "x\x00\x07\x1b[31m",
        "\ud800 broken \udfff",
        "<" * 100_000,
        "<a" * 100_000,
        "<@UBOT> " * 10_000,
        " " * 1_000_000 + "x",
        "word " * 200_000,
        "<@UBOT" * 1_000,
        json.loads('"\\ud83d\\ude00 \\ud83d"'),
    ],
    ids=range(9),
)
def test_hostile_text_passes_and_can_be_kept(text: str) -> None:
    found = parse_event(body(text=text, user_profile={"display_name": "\ud800\x00"}), ME)
    if isinstance(found, InboundMessage):
        assert decode_inbound(encode_inbound(found)) == found
        assert not re.search(r"[\x00\x07\x1b\ud800-\udfff]", found.text)
    else:
        assert skipped(found) is Disposition.EMPTY


def forwarded(**fields: object) -> dict[str, Any]:
    return {
        "id": 1,
        "is_msg_unfurl": True,
        "is_share": True,
        "author_id": "U2",
        "author_name": "Bob",
        "channel_id": "C9",
        "ts": "1.5",
        "text": "<@UBOT> the launch is on *Friday* &amp; free\n<https://x.org|x>",
        "fallback": "[January 1st] Bob: the launch",
        "from_url": "https://team.slack.com/archives/C9/p15",
    } | fields


def test_a_forwarded_message_is_read_with_what_was_written_above_it() -> None:
    found = taken(parse_event(body(text="Which day?", attachments=[forwarded()]), ME))
    assert put_names(found.prompt, {}) == (
        "Which day?\n\n[Forwarded]\n"
        "> Bob: @UBOT the launch is on *Friday* & free\n> x (https://x.org)"
    )
    assert not found.is_addressed  # Bob's mention, not the sender's


def test_a_forwarded_message_needs_no_words_of_the_sender() -> None:
    alone = body(
        channel="D1",
        channel_type="im",
        text="",
        attachments=[forwarded(author_name="A\n[x]"), forwarded(text="", fallback="")],
    )
    prompt = put_names(taken(parse_event(alone, ME)).prompt, {})
    assert prompt.startswith("[Forwarded]\n> A [x]: @UBOT")
    file = {"id": "F7", "name": "plan.pdf", "mimetype": "application/pdf", "size": 3}
    files = body(text="", attachments=[forwarded(text="", fallback="", files=[file])])
    (attached,) = taken(parse_event(files, ME)).attachments
    assert (attached.name, attached.ref) == ("plan.pdf", "F7")


@pytest.mark.parametrize("attachments", [[{"text": "preview"}], ["x"], None, {"is_share": True}])
def test_previews_of_links_are_not_read(attachments: object) -> None:
    assert taken(parse_event(body(text="see", attachments=attachments), ME)).text == "see"


def slash(**fields: object) -> dict[str, Any]:
    return {
        "command": "/parley",
        "text": "help",
        "team_id": "T1",
        "channel_id": "C1",
        "user_id": "U1",
        "user_name": "ann",
        "trigger_id": "13.37",
        "response_url": "https://hooks.test/x",
    } | fields


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("help", "/help"),
        ("", "/help"),
        ("  ", "/help"),
        ("/models", "/models"),
        ("memory", "/memory"),
        (" stop ", "/stop"),
    ],
)
def test_slash_commands_are_read(text: str, said: str) -> None:
    found = taken(parse_slash_command(slash(text=text), ME))
    assert found.text == said
    assert found.event_id == "slash:13.37"
    assert found.message_id == ""
    assert found.key == ConversationKey(channel="slack", workspace="T1", chat="C1")
    assert found.reply_target == ReplyTarget(
        chat="C1", response_url="https://hooks.test/x", user="U1"
    )
    assert (found.sender.user_id, found.sender.name) == ("U1", "ann")
    assert found.is_addressed
    assert not found.is_private


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("bootstrap my team", "/bootstrap my team"),
        (" new ", "/new"),
        ("export", "/export"),
        ("status", "/status"),
        ("what is my pin?", "what is my pin?"),
        ("/mnt/x is full", "/mnt/x is full"),
        ("hlep", "/hlep"),
    ],
)
def test_slash_commands_in_a_channel_have_a_conversation_for_each_person(
    text: str, said: str
) -> None:
    """Only that person sees the answers, so nobody else may ask about the conversation or export it."""
    ann, bob = (
        taken(parse_slash_command(slash(text=text, user_id=user), ME)) for user in ("U1", "U2")
    )
    assert ann.text == bob.text == said
    assert (ann.key.topic, bob.key.topic) == ("@U1", "@U2")
    assert ann.reply_target.thread == ""
    private = taken(parse_slash_command(slash(text=text, channel_id="D1"), ME))
    assert private.key.topic == ""


def test_a_slash_command_in_a_direct_message_belongs_to_its_conversation() -> None:
    found = taken(parse_slash_command(slash(channel_id="D1"), ME))
    assert found.is_private
    assert found.key == taken(parse_event(body(channel="D1", channel_type="im"), ME)).key


@pytest.mark.parametrize("missing", ["channel_id", "user_id", "trigger_id"])
def test_slash_commands_that_make_no_sense(missing: str) -> None:
    assert skipped(parse_slash_command(slash(**{missing: None}), ME)) is Disposition.UNSUPPORTED


def test_a_mention_by_another_bot_is_left_to_the_bus() -> None:
    found = taken(parse_event(body(text="<@UBOT> hi", user="UOTHER", bot_id="BOTHER"), ME))
    assert (found.text, found.sender.user_id, found.sender.is_bot) == ("hi", "UOTHER", True)


def test_a_mention_alone_in_private_asks_for_help_and_an_edit_to_one_for_nothing() -> None:
    assert taken(parse_event(body(text="<@UBOT>", channel="D1"), ME)).text == "/help"
    said = {"user": "U1", "ts": "5.000001", "text": "<@UBOT>"}
    edit = body(subtype="message_changed", message=said, previous_message=said | {"text": "hi"})
    assert skipped(parse_event(edit, ME)) is Disposition.EMPTY


@pytest.mark.parametrize(
    ("text", "mentions_others"),
    [
        ("hi", False),
        ("<@U2> lunch?", True),
        ("ask <!subteam^S1|@devs>", True),
        ("<!here> look", False),
        ("see <#C2|general>", False),
        ("<@UBOT> ask <@U2>", False),
        ("`<@U2>` is how Slack writes it", True),
    ],
)
def test_mentions_of_other_people_are_noted(text: str, mentions_others: bool) -> None:
    found = taken(parse_event(body(text=text, channel_type="channel"), ME))
    assert found.mentions_others is mentions_others
