"""The outbox rows of a reply."""

from bus.messages import (
    Button,
    InboundMessage,
    OutboundFile,
    OutboundIndicator,
    OutboundMessage,
    OutboundRemoval,
    OutboundText,
    ReplyTarget,
    Sender,
    decode_outbound,
)
from bus.outbound.rows import LiveMessages, reply_rows
from bus.runs.replies import Reply
from store.conversations import ConversationKey
from store.inbox import InboxRow
from store.outbox import NewOutboxRow

KEY = ConversationKey(channel="cards", workspace="w", chat="c")
ROW = InboxRow(
    id=7, conversation_id=1, seq=1, key=KEY, event_id="e", kind="chat", body="", state="running",
    starts=1, thread_id="T", run_id=None, received_at=1.0,
)  # fmt: skip
INBOUND = InboundMessage(
    event_id="e", message_id="e", key=KEY, reply_target=ReplyTarget(chat="c", reply_to="e"),
    sender=Sender(user_id="u"), text="hi", is_private=True, is_addressed=True,
)  # fmt: skip


def bodies(rows: list[NewOutboxRow]) -> list[OutboundMessage]:
    decoded = [decode_outbound(row.body) for row in rows]
    return [body for body in decoded if not isinstance(body, OutboundIndicator)]


def test_parts_replace_the_open_cards_and_go_on_beyond_them() -> None:
    seen = LiveMessages(streaming_count=2)
    rows = reply_rows(ROW, INBOUND, Reply(markdown=""), ["one", "two", "three"], seen)
    assert [row.key for row in rows] == ["7:reply:0", "7:reply:1", "7:reply:2"]
    edits = [body.replaces for body in bodies(rows) if isinstance(body, OutboundText)]
    assert edits == ["7:card:0", "7:card:1", ""]


def test_a_card_without_text_left_is_taken_away_and_the_buttons_are_under_the_text() -> None:
    seen, button = LiveMessages(streaming_count=2), Button(label="Yes", token="t")
    text, removal = bodies(reply_rows(ROW, INBOUND, Reply(markdown=""), ["short"], seen, [button]))
    assert isinstance(text, OutboundText)
    assert text.buttons == (button,)
    assert isinstance(removal, OutboundRemoval)
    assert (removal.target_key, removal.final_status) == ("7:card:1", "ok")


def test_files_follow_the_text_and_the_last_row_ends_the_turn() -> None:
    reply = Reply(markdown="x", artifacts=("/mnt/user-data/outputs/a b.txt",))
    text, file = bodies(reply_rows(ROW, INBOUND, reply, ["x"], LiveMessages()))
    assert isinstance(file, OutboundFile)
    assert (file.name, file.thread_id, file.final_status, text.final_status) == (
        "a b.txt",
        "T",
        "ok",
        "",
    )


def test_a_failed_turn_ends_as_failed() -> None:
    [only] = bodies(
        reply_rows(ROW, INBOUND, Reply(markdown="x", failed=True), ["x"], LiveMessages())
    )
    assert only.final_status == "failed"
