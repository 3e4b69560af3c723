"""What each button does: stop, option, retry, approve, deny, rerun, and the buttons of schedules."""

import logging
from collections.abc import Mapping
from dataclasses import replace

from bus.buttons import ButtonAction
from bus.context import BusContext
from bus.conversation.conversations import Conversations
from bus.conversation.open_questions import OpenQuestions
from bus.history.versions import message_ids
from bus.inbound.button_presses import (
    AuthorizedPress,
    ButtonActionHandler,
    PressOutcome,
    answer_again,
    message_from_press,
    press_response_url,
    refused_press,
)
from bus.inbound.pipeline import InboundPipeline
from bus.inbound.rerun_offers import RerunOffers
from bus.inbound.schedule_buttons import ScheduleButtons
from bus.messages import InboundMessage, RewindPoint, decode_inbound
from bus.platform import Disposition
from bus.runs.questions import APPROVE, DENY, decode_question
from store.inbox import InboxRow

log = logging.getLogger(__name__)


class ButtonActions:
    """Carries out button presses in the presser's name.

    A press becomes a message from the presser. This message is accepted like a written one before the press is
    answered. Its event ID is derived from the question, so only the first press counts.
    """

    def __init__(
        self,
        bus: BusContext,
        *,
        questions: OpenQuestions,
        pipeline: InboundPipeline,
        conversations: Conversations,
        reruns: RerunOffers,
        schedules: ScheduleButtons,
    ) -> None:
        self._history = bus.stores.history
        self._questions = questions
        self._pipeline = pipeline
        self._conversations = conversations
        self._reruns = reruns
        self._schedules = schedules

    def by_action(self) -> Mapping[ButtonAction, ButtonActionHandler]:
        """Return the handler of each button."""
        return {
            ButtonAction.STOP: self.stop,
            ButtonAction.OPTION: self.choose,
            ButtonAction.RETRY: self.retry,
            ButtonAction.APPROVE: self.approve,
            ButtonAction.DENY: self.deny,
            ButtonAction.RERUN: self._reruns.accept,
            **self._schedules.by_action(),
        }

    async def stop(self, pressed: AuthorizedPress) -> PressOutcome:
        """Stop the turn of the row. Pressing twice does no harm."""
        if await self._conversations.stop_message(pressed.row.id):
            return PressOutcome(Disposition.ACCEPTED, pressed.texts.press_stopping)
        return PressOutcome(Disposition.TOO_LATE, pressed.texts.press_finished)

    async def choose(self, pressed: AuthorizedPress) -> PressOutcome:
        """Send the option in the presser's name."""
        options = decode_question(pressed.row.question).options
        if pressed.token.index >= len(options) or not await self._is_active(pressed):
            return await self._inactive(pressed)
        option = options[pressed.token.index]
        message = message_from_press(pressed, option, "option")
        answers = await self._history.list_after(pressed.row)
        return await self._accept(pressed, message, answers, mark=f"✓ {option}")

    async def approve(self, pressed: AuthorizedPress) -> PressOutcome:
        """Approve the tool calls that the row's turn waits for."""
        return await self._decide(pressed, APPROVE, pressed.asked.reply_target.texts.mark_approved)

    async def deny(self, pressed: AuthorizedPress) -> PressOutcome:
        """Deny these tool calls."""
        return await self._decide(pressed, DENY, pressed.asked.reply_target.texts.mark_denied)

    async def retry(self, pressed: AuthorizedPress) -> PressOutcome:
        """Answer the row's message again, in place of the failed attempt."""
        if not await self._questions.has_button(pressed.row, pressed.press.token):
            return await self._inactive(pressed)
        message = retry_message(pressed)
        later = await self._history.list_after(pressed.row)
        if not await self._is_active(pressed) or not all(
            _is_press_of(row, message) for row in later
        ):
            await self._questions.remove_buttons(pressed.row, "")
            return PressOutcome(Disposition.TOO_LATE, pressed.texts.press_newer)
        return await self._accept(
            pressed, message, later, mark=pressed.asked.reply_target.texts.mark_retry
        )

    async def _decide(self, pressed: AuthorizedPress, word: str, mark: str) -> PressOutcome:
        if not decode_question(pressed.row.question).interrupts or not await self._is_active(
            pressed
        ):
            return await self._inactive(pressed)
        # Even if an admin decides, the run continues with the session of the original sender.
        message = replace(
            message_from_press(pressed, word, "decision"), sender=pressed.asked.sender
        )
        # Other messages may have arrived meanwhile, but they decided nothing.
        later = [
            row for row in await self._history.list_after(pressed.row) if _is_press_of(row, message)
        ]
        return await self._accept(pressed, message, later, mark=mark)

    async def _inactive(self, pressed: AuthorizedPress) -> PressOutcome:
        texts = pressed.texts
        is_settled = await self._questions.are_buttons_removed(pressed.row)
        return PressOutcome(
            Disposition.TOO_LATE, texts.press_answered if is_settled else texts.press_inactive
        )

    async def _is_active(self, pressed: AuthorizedPress) -> bool:
        """Return whether the button is still shown, and its conversation is still in the button's thread."""
        row = pressed.row
        in_thread = row.thread_id is None or row.current_thread_id in (None, row.thread_id)
        return in_thread and await self._questions.has_button(row, pressed.press.token)

    async def _accept(
        self, pressed: AuthorizedPress, message: InboundMessage, later: list[InboxRow], *, mark: str
    ) -> PressOutcome:
        """Accept the message of a press, unless the question has already been answered."""
        texts = pressed.texts
        mine = next((row for row in later if _is_press_of(row, message)), None)
        if mine is not None and decode_inbound(mine.body).text == message.text:
            return PressOutcome(Disposition.DUPLICATE)
        if later or await self._questions.are_buttons_removed(pressed.row):
            await self._questions.remove_buttons(pressed.row, "")
            return PressOutcome(Disposition.TOO_LATE, texts.press_answered)
        disposition = await self._pipeline.receive(message)
        if disposition is Disposition.DUPLICATE and not await self._was_stored(
            pressed.row, message
        ):
            # An earlier press was refused, for example because the queue was full. Let this one count.
            anew = replace(message, event_id=f"{message.event_id}:{pressed.press.event_id}")
            disposition = await self._pipeline.receive(anew)
        if disposition is Disposition.ACCEPTED:
            await self._questions.remove_buttons(pressed.row, mark)
            return PressOutcome(disposition)
        return refused_press(disposition, texts)

    async def _was_stored(self, row: InboxRow, message: InboundMessage) -> bool:
        return any(_is_press_of(later, message) for later in await self._history.list_after(row))


def retry_message(pressed: AuthorizedPress) -> InboundMessage:
    """Return a message that answers a row's message again, after its failed attempt is removed from the thread."""
    asked = pressed.asked
    before = asked.rewind_point
    known = (before.message_id, *before.earlier_ids) if before is not None else ()
    *earlier, last = (*known, *message_ids(asked))
    rewind_point = None
    if pressed.row.kind == "chat" or before is not None:
        rewind_point = RewindPoint(
            thread_id=pressed.row.thread_id or "",
            message_id=last,
            text=before.text if before is not None else asked.prompt,
            files=before.files if before is not None else (),
            earlier_ids=tuple(earlier),
            allow_duplicate=True,
        )
    return answer_again(
        asked,
        event_id=f"press:{pressed.row.id}:retry",
        rewind_point=rewind_point,
        response_url=press_response_url(pressed),
    )


def _is_press_of(row: InboxRow, message: InboundMessage) -> bool:
    """Return whether a row is the message of another press for the same question."""
    return row.event_id == message.event_id or row.event_id.startswith(f"{message.event_id}:")
