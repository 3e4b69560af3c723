"""Questions that turns ended with: finds the question that a message answers, and removes its buttons."""

import logging
from dataclasses import dataclass

from bus.access.expected_replies import ExpectedReplies
from bus.messages import InboundMessage, OutboundText, decode_inbound, decode_outbound
from bus.outbound.rows import button_removal_key, button_removal_row
from bus.outbound.split import split_text
from bus.outbound.worker import DeliveryWorker
from bus.runs.questions import Question, chosen_index, decode_question, encode_question
from store.inbox import InboxRow
from store.message_history import MessageHistoryStore

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenQuestion:
    """An approval or another interrupt that a thread waits for.

    Attributes:
        row: Inbox row of the turn that asked.
        asked: The message of that row. Its sender or an admin decides.
    """

    row: InboxRow
    question: Question
    asked: InboundMessage

    def may_be_answered_by(self, message: InboundMessage) -> bool:
        """Return whether a message is meant as an answer, whether or not its sender may decide.

        In a group, only a message to the bot can approve, because an "ok" may be meant for other people. Other
        questions can also be answered by the next message of the person who was asked. An event of another system is
        never an answer.
        """
        if message.origin:
            return False
        is_for_bot = message.is_private or message.is_addressed or bool(message.answers_row)
        is_from_asker = message.sender.user_id == self.asked.sender.user_id
        return is_for_bot or (is_from_asker and not self.question.needs_approval)


class OpenQuestions:
    """The questions of finished turns, and the buttons under their answers.

    Args:
        history: Earlier messages.
        delivery: Sends the edits that remove buttons.
    """

    def __init__(self, history: MessageHistoryStore, delivery: DeliveryWorker) -> None:
        self._history = history
        self.delivery = delivery
        self.pending = ExpectedReplies()

    def record(self, row: InboxRow, inbound: InboundMessage, question: Question) -> str | None:
        """Return a turn's question as stored in the inbox, and expect its sender's answer; None = no question."""
        if question:
            self.pending.expect(inbound, row.key)
        return encode_question(question)

    async def open_before(self, row: InboxRow, text: str | None) -> OpenQuestion | None:
        """Return the interrupt that the thread of a new turn waits for; None = the thread waits for none.

        Removes the buttons of a question that the row answers or ignores. Raises StoreError.

        Args:
            row: The row of the turn.
            text: The answer; None = the turn repeats a message, which removes the question from the thread.
        """
        self.pending.clear(row.key)
        if not row.follows_question:
            return None
        before = await self._history.find_question(row)
        question = decode_question(before.question if before is not None else None)
        if before is None or not question:
            return None
        if text is not None and question.interrupts and before.thread_id == row.thread_id:
            asked = _decode(before)
            if asked is not None:
                return OpenQuestion(row=before, question=question, asked=asked)
        between = await self._history.list_after(before, limit=1)
        if question.options and between and between[0].seq < row.seq:
            return None  # The turn of that message has already removed the buttons.
        is_same = before.thread_id == row.thread_id
        chosen = chosen_index(question, text) if is_same and text is not None else None
        mark = "" if chosen is None else f"✓ {question.options[chosen]}"
        await self.remove_buttons(before, mark)
        if question.interrupts:
            await self.mark_answered(before)
        return None

    def keep_open(self, question: OpenQuestion) -> None:
        """Continue to expect the answer to a question after a message that did not decide it."""
        self.pending.expect(question.asked, question.row.key)

    async def mark_answered(self, row: InboxRow) -> None:
        """Record that the question of a row's turn has been answered or is obsolete. Raises StoreError."""
        await self._history.clear_question(row)

    async def has_button(self, row: InboxRow, token: str) -> bool:
        """Return whether a row's answer has a button with this token. Raises StoreError."""
        found = await self._last_words(row)
        return found is not None and any(button.token == token for button in found[1].buttons)

    async def are_buttons_removed(self, row: InboxRow) -> bool:
        """Return whether the buttons under a row's answer were removed. Raises StoreError."""
        return await self.delivery.find_row(button_removal_key(row)) is not None

    async def remove_buttons(self, row: InboxRow, mark: str) -> None:
        """Remove the buttons under a row's answer, once, and append a mark. Raises StoreError."""
        found = await self._last_words(row)
        if found is None or not found[1].buttons or await self.are_buttons_removed(row):
            return
        key, last = found
        marked = f"{last.markdown}\n\n{mark}" if mark else last.markdown
        parts = await split_text(self.delivery.adapter(row.key.channel), marked)
        text = marked if len(parts) == 1 else last.markdown
        await self.delivery.enqueue(row.key, [button_removal_row(row, last, key, text)])

    async def _last_words(self, row: InboxRow) -> tuple[str, OutboundText] | None:
        found = await self._history.find_last_text(row)
        body = decode_outbound(found.body) if found is not None else None
        return (found.key, body) if found and isinstance(body, OutboundText) else None


def _decode(row: InboxRow) -> InboundMessage | None:
    """Return the message of a row; None if it cannot be decoded, so that no one can decide."""
    try:
        return decode_inbound(row.body)
    except ValueError:
        log.exception("inbox row %s cannot be decoded; its question is closed", row.id)
        return None
