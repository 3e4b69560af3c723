"""Which rows a reply becomes."""

from bus.messages import (
    InboundMessage,
    OutboundFile,
    OutboundIndicator,
    OutboundMessage,
    OutboundText,
    ReplyTarget,
    Sender,
    decode_outbound,
)
from bus.outbound.rows import UNUSED_TEXT, LiveMessages, reply_rows, text_rows
from bus.runs.replies import Reply
from store.conversations import ConversationKey
from store.inbox import InboxRow
from store.outbox import NewOutboxRow

KEY = ConversationKey(channel="cards", workspace="w", chat="c")
ROW = InboxRow(
    id=7, conversation_id=1, seq=1, key=KEY, event_id="e", kind="chat", body="", state="running",
    attempts=1, thread_id="T", run_id=None, received_at=1.0,
)  # fmt: skip
INBOUND = InboundMessage(
    event_id="e", message_id="e", key=KEY, reply_target=ReplyTarget(chat="c", reply_to="e"),
    sender=Sender(user_id="u"), text="hi", is_private=True, is_addressed=True,
)  # fmt: skip


def bodies(rows: list[NewOutboxRow]) -> list[OutboundMessage]:
    decoded = [decode_outbound(row.body) for row in rows]
    return [body for body in decoded if not isinstance(body, OutboundIndicator)]


def test_parts_replace_the_open_cards_and_go_on_beyond_them() -> None:
    rows = text_rows(ROW, INBOUND, ["one", "two", "three"], cards=2)
    assert [row.key for row in rows] == ["7:reply:0", "7:reply:1", "7:reply:2"]
    edits = [body.replaces for body in bodies(rows) if isinstance(body, OutboundText)]
    assert edits == ["7:card:0", "7:card:1", ""]


def test_a_card_without_text_left_does_not_show_working() -> None:
    last = bodies(text_rows(ROW, INBOUND, ["short"], cards=2))[-1]
    assert isinstance(last, OutboundText)
    assert (last.markdown, last.replaces) == (UNUSED_TEXT, "7:card:1")


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
