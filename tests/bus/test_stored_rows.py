"""Rows that an earlier version stored still decode after fields were renamed."""

import json

from bus.messages import OutboundIndicator, decode_inbound, decode_outbound

OLD_INBOUND = {
    "event_id": "e",
    "message_id": "m",
    "key": {"channel": "slack", "workspace": "T", "chat": "C", "topic": "1"},
    "place": {"chat": "C", "thread": "1", "command_sign": "/parley ", "callback": "url"},
    "sender": {"user_id": "U"},
    "text": "hi",
    "private": False,
    "addressed": True,
    "stopped": True,
    "remember": True,
    "exchange": {
        "thread_id": "t",
        "message_id": "m0",
        "text": "x",
        "earlier": ["a"],
        "may_stay": True,
    },
    "room": "C0",
    "answers": 7,
    "edits": 2,
}


def test_an_inbound_row_of_an_earlier_version_decodes() -> None:
    message = decode_inbound(json.dumps(OLD_INBOUND))
    assert (message.reply_target.thread, message.reply_target.command_prefix) == ("1", "/parley ")
    assert (message.track_replies, message.original_chat) == (True, "C0")
    assert (message.answers_row, message.edit_count) == (7, 2)
    assert message.rewind_point is not None
    assert (message.rewind_point.earlier_ids, message.rewind_point.allow_duplicate) == (
        ("a",),
        True,
    )
    assert message.sender.kind == "member"
    assert (message.is_private, message.is_addressed, message.is_stopped) == (False, True, True)
    assert message.reply_target.response_url == "url"


def test_outbound_rows_of_an_earlier_version_decode() -> None:
    base = {"channel": "slack", "place": {"chat": "C"}, "closes": "ok"}
    text = decode_outbound(json.dumps({**base, "kind": "text", "markdown": "x", "edits": "k"}))
    removal = decode_outbound(json.dumps({**base, "kind": "removal", "of": "k"}))
    edit = decode_outbound(json.dumps({**base, "kind": "amendment", "of": "k", "markdown": "x"}))
    for row in (text, removal, edit):
        assert not isinstance(row, OutboundIndicator)
        assert (row.reply_target.chat, row.final_status) == ("C", "ok")
    assert [
        getattr(row, "replaces", "") or getattr(row, "target_key", "")
        for row in (text, removal, edit)
    ] == [
        "k",
        "k",
        "k",
    ]
