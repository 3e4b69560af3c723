"""Turns replies into outbox rows. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from bus.buttons import ButtonAction, ButtonToken
from bus.locales import Messages
from bus.messages import (
    Button,
    ConversationKey,
    InboundMessage,
    OutboundEdit,
    OutboundFile,
    OutboundIndicator,
    OutboundMessage,
    OutboundRemoval,
    OutboundText,
    ReplyTarget,
    decode_outbound,
    encode_outbound,
)
from bus.runs.replies import Reply
from store.inbox import InboxRow
from store.outbox import NewOutboxRow, OutboxRow

ANSWER_FILE_NAME = "answer.md"
UNUSED_TEXT = "…"
"""Text that replaces an unneeded streaming message that cannot be deleted."""


REPEAT_EDIT_AFTER_S = 10.0
"""How late platforms may carry out a call whose connection broke, seconds. Slack has been seen to take 4 s."""

MAX_OPTION_BUTTONS = 10
"""Maximum number of options to show as buttons. Slack's `actions` block takes 25."""

LABEL_CHARS = 75
"""Maximum label length of a button, characters (Slack's limit)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveMessages:
    """Messages that show a turn before its answer.

    Attributes:
        streaming_count: Number of streaming messages, which the answer replaces.
        notice_key: Outbox key of the progress notice, which the answer removes; "" = none.
        edit_in_doubt: Whether the platform may still carry out an edit of a streaming message, because the outcome is
            unknown or an earlier process sent it.
    """

    streaming_count: int = 0
    notice_key: str = ""
    edit_in_doubt: bool = False

    @property
    def exist(self) -> bool:
        """Whether there is anything to replace or remove."""
        return bool(self.streaming_count or self.notice_key)


def streaming_key(row: InboxRow, index: int) -> str:
    """Return the outbox key of a turn's n-th streaming message."""
    return f"{row.id}:card:{index}"


def notice_key(row: InboxRow) -> str:
    """Return the outbox key of a turn's progress notice."""
    return f"{row.id}:notice"


def text_rows(
    row: InboxRow, inbound: InboundMessage, parts: Sequence[str], buttons: Sequence[Button] = ()
) -> list[NewOutboxRow]:
    """Return one row for each part of a text. The parts fit the platform's limit. Buttons go under the last one."""
    texts = _texts(row, inbound, parts)
    if buttons:
        texts[-1] = replace(texts[-1], buttons=tuple(buttons))
    return _rows(row, _named("reply", texts))


def operator_stop_rows(row: InboxRow, inbound: InboundMessage) -> list[NewOutboxRow]:
    """Return the answer to a message that an operator stopped before its turn began; none if no one asked the bot."""
    if inbound.is_overheard:
        return []
    return text_rows(row, inbound, [inbound.reply_target.texts.stopped_by_operator])


def text_key(key: str, index: int) -> str:
    """Return the outbox key of the n-th text of the answer that a row belongs to.

    >>> text_key("7:removal", 0)
    '7:reply:0'
    """
    return f"{key.partition(':')[0]}:reply:{index}"


def is_answer_text(key: str) -> bool:
    """Return whether an outbox key was made by `text_key`."""
    return ":reply:" in key


def reply_buttons(row: InboxRow, reply: Reply, texts: Messages) -> tuple[Button, ...]:
    """Return the buttons under an answer. People can also write their answer. Long lists have no buttons."""
    if reply.question.needs_approval:
        approve = ButtonToken(ButtonAction.APPROVE, row.id).text
        deny = ButtonToken(ButtonAction.DENY, row.id).text
        return (
            Button(label=texts.button_approve, token=approve, style="primary"),
            Button(label=texts.button_deny, token=deny, style="danger"),
        )
    if reply.failed and reply.retry:
        return (
            Button(label=texts.button_retry, token=ButtonToken(ButtonAction.RETRY, row.id).text),
        )
    if len(reply.question.options) > MAX_OPTION_BUTTONS:
        return ()
    return tuple(
        Button(label=_label(option), token=ButtonToken(ButtonAction.OPTION, row.id, index).text)
        for index, option in enumerate(reply.question.options)
    )


def reply_rows(
    row: InboxRow,
    inbound: InboundMessage,
    reply: Reply,
    parts: Sequence[str],
    seen: LiveMessages,
    buttons: Sequence[Button] = (),
) -> list[NewOutboxRow]:
    """Return the rows of a turn's answer: its text, split into `parts`, then its files. The last row ends the turn.

    The first parts replace the turn's streaming messages, and further streaming messages are removed. The progress
    notice is removed after the answer, or replaced with the text of a stopped turn. Buttons go under the last text.
    """
    texts = _texts(row, inbound, parts, seen.streaming_count)
    if buttons:
        texts[-1] = replace(texts[-1], buttons=tuple(buttons))
    if seen.notice_key and reply.stopped:
        texts[0] = replace(texts[0], replaces=seen.notice_key)
    named: dict[str, OutboundMessage] = _named("reply", texts)
    for index in range(len(parts), seen.streaming_count):
        named[f"unused:{index}"] = _removal(row, inbound, streaming_key(row, index))
    if reply.whole:
        named["document:0"] = _document(row, inbound, ANSWER_FILE_NAME, reply.whole)
    named |= _named("file", [_artifact(row, inbound, path) for path in reply.artifacts])
    if seen.notice_key and not reply.stopped:
        named["removal"] = _removal(row, inbound, seen.notice_key)
    last = [*named][-1]
    status: Literal["ok", "failed"] = "failed" if reply.failed else "ok"
    return _rows(row, {**named, last: replace(named[last], final_status=status)})


def silent_rows(row: InboxRow, inbound: InboundMessage, seen: LiveMessages) -> list[NewOutboxRow]:
    """Return the rows that remove what a turn showed before the agent decided to say nothing."""
    keys = [streaming_key(row, index) for index in range(seen.streaming_count)]
    keys += [seen.notice_key] if seen.notice_key else []
    bodies: list[OutboundMessage] = [_removal(row, inbound, key) for key in keys]
    if bodies:
        bodies[-1] = replace(bodies[-1], final_status="ok")
    return _rows(row, _named("unused", bodies))


def repeated_edit_rows(reply: Sequence[NewOutboxRow], *, now: float) -> list[NewOutboxRow]:
    """Return rows that repeat the edits of a reply `REPEAT_EDIT_AFTER_S` later.

    They restore the reply's text if the platform carries out an earlier edit after the reply's own edit.
    """
    bodies = [(new, decode_outbound(new.body)) for new in reply]
    return [
        NewOutboxRow(
            key=repeated_edit_key(new.key),
            conversation=new.conversation,
            body=encode_outbound(
                OutboundEdit(
                    channel=body.channel,
                    reply_target=body.reply_target,
                    target_key=new.key,
                    markdown=body.markdown,
                    buttons=body.buttons,
                )
            ),
            not_before=now + REPEAT_EDIT_AFTER_S,
        )
        for new, body in bodies
        if isinstance(body, OutboundText) and body.replaces
    ]


def repeated_edit_key(key: str) -> str:
    """Return the outbox key of the row that repeats an edit. `key` is the edit's own key."""
    return f"{key}:again"


def document_row(
    row: InboxRow, inbound: InboundMessage, *, name: str, content: str
) -> NewOutboxRow:
    """Return the row of a text file that answers a command."""
    return _row(row, "document:0", _document(row, inbound, name, content))


def indicator_row(
    key: ConversationKey, target: ReplyTarget, *, ok: bool, not_before: float = 0.0
) -> NewOutboxRow:
    """Return the row that shows a done or failure indicator, not before the given time (Unix seconds)."""
    body = OutboundIndicator(channel=key.channel, reply_target=target, ok=ok)
    outcome = "done" if ok else "failed"
    return NewOutboxRow(
        key=f"indicator:{key.channel}:{key.workspace}:{target.chat}:{target.reply_to}:{outcome}",
        conversation=key,
        body=encode_outbound(body),
        not_before=not_before,
    )


def rerun_offer_key(row: InboxRow, number: int) -> str:
    """Return the outbox key of the n-th offer to answer an edited message again."""
    return f"{row.id}:rerun:{number}"


RerunEffect = Literal["last", "later", "former"]
"""Effect of answering an edited message again.

`last`: it is the conversation's last message. `later`: later messages are removed too. `former`: the conversation
continued without it (`/new`, `/undo`), and nothing is removed.
"""


def rerun_offer_row(
    row: InboxRow, inbound: InboundMessage, number: int, effect: RerunEffect
) -> NewOutboxRow:
    """Return the row of the n-th offer to answer an edited message again."""
    texts = inbound.reply_target.texts
    token = ButtonToken(ButtonAction.RERUN, row.id).text
    markdown: Mapping[RerunEffect, str] = {
        "last": texts.rerun_offer,
        "later": texts.rerun_offer_later,
        "former": texts.rerun_offer_former,
    }
    body = OutboundText(
        channel=row.key.channel,
        reply_target=replace(inbound.reply_target, response_url=""),
        markdown=markdown[effect],
        buttons=(Button(label=texts.button_rerun, token=token, style="primary"),),
    )
    key = rerun_offer_key(row, number)
    return NewOutboxRow(key=key, conversation=row.key, body=encode_outbound(body))


def button_removal_row(row: InboxRow, last: OutboundText, of: str, text: str) -> NewOutboxRow:
    """Return the row that removes the buttons under the last text of an answer. `of` is that text's key."""
    body = OutboundEdit(
        channel=row.key.channel, reply_target=last.reply_target, target_key=of, markdown=text
    )
    return NewOutboxRow(
        key=button_removal_key(row),
        conversation=row.key,
        body=encode_outbound(body),
        supersedes=repeated_edit_key(of),
    )


def marked_edit_row(sent: OutboxRow, mark: str) -> NewOutboxRow:
    """Return the row that removes the buttons of a text message and appends a mark to it."""
    last = decode_outbound(sent.body)
    text = last.markdown if isinstance(last, OutboundText) else ""
    body = OutboundEdit(
        channel=last.channel,
        reply_target=last.reply_target,
        target_key=sent.key,
        markdown=f"{text}\n\n{mark}".strip(),
    )
    key = f"{sent.key}:settled"
    return NewOutboxRow(key=key, conversation=sent.conversation, body=encode_outbound(body))


def button_removal_key(row: InboxRow) -> str:
    """Return the outbox key of the edit that removes the buttons of an answer, once."""
    return f"{row.id}:settled"


def _label(option: str) -> str:
    return option if len(option) <= LABEL_CHARS else f"{option[: LABEL_CHARS - 1]}…"


def _texts(
    row: InboxRow, inbound: InboundMessage, parts: Sequence[str], streaming_count: int = 0
) -> list[OutboundText]:
    return [
        OutboundText(
            channel=row.key.channel,
            reply_target=inbound.reply_target,
            markdown=part,
            replaces=streaming_key(row, index) if index < streaming_count else "",
            # No message from a person began a topic that replies could belong to.
            begins_topic=bool(inbound.origin) and not (inbound.is_private or row.key.topic),
        )
        for index, part in enumerate(parts)
    ]


def _removal(row: InboxRow, inbound: InboundMessage, key: str) -> OutboundRemoval:
    return OutboundRemoval(
        channel=row.key.channel, reply_target=inbound.reply_target, target_key=key
    )


def _artifact(row: InboxRow, inbound: InboundMessage, path: str) -> OutboundFile:
    return OutboundFile(
        channel=row.key.channel,
        reply_target=inbound.reply_target,
        thread_id=row.thread_id or "",
        path=path,
        name=path.rpartition("/")[2] or "file",
    )


def _document(row: InboxRow, inbound: InboundMessage, name: str, content: str) -> OutboundFile:
    return replace(_artifact(row, inbound, ""), name=name, content=content)


def _named(kind: str, bodies: Sequence[OutboundMessage]) -> dict[str, OutboundMessage]:
    return {f"{kind}:{index}": body for index, body in enumerate(bodies)}


def _rows(row: InboxRow, named: Mapping[str, OutboundMessage]) -> list[NewOutboxRow]:
    return [_row(row, name, body) for name, body in named.items()]


def _row(row: InboxRow, name: str, body: OutboundMessage) -> NewOutboxRow:
    return NewOutboxRow(key=f"{row.id}:{name}", conversation=row.key, body=encode_outbound(body))
