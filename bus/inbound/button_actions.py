"""What the buttons do: stop, choose an option, try again, approve and deny."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace

from bus.buttons import ButtonAction
from bus.conversation.approvals import Questions
from bus.history.versions import message_ids
from bus.inbound.button_presses import (
    AuthorizedPress,
    ButtonActionHandler,
    PressOutcome,
    message_from_press,
    press_callback,
)
from bus.locales import Messages
from bus.messages import InboundMessage, RewindPoint, decode_inbound
from bus.platform import Disposition
from bus.runs.questions import APPROVE, DENY, decode_question
from store.inbox import InboxRow
from store.message_history import MessageHistoryStore

log = logging.getLogger(__name__)


class ButtonActions:
    """Does what buttons say, in the name of whoever pressed them.

    What a press means becomes a message of the presser, accepted like one that was written, before the press
    is answered. Its event id names the question, not the press: of several presses the first counts.

    Args:
        receive: Accepts a message.
        stop: Ends the turn of a row, whether it runs or waits; returns whether there was one.
    """

    def __init__(
        self,
        *,
        history: MessageHistoryStore,
        questions: Questions,
        receive: Callable[[InboundMessage], Awaitable[Disposition]],
        stop: Callable[[int], Awaitable[bool]],
    ) -> None:
        self._history = history
        self._questions = questions
        self._receive = receive
        self._stop = stop

    def by_verb(self) -> Mapping[ButtonAction, ButtonActionHandler]:
        """Return what each of these buttons does."""
        return {
            ButtonAction.STOP: self.stop,
            ButtonAction.OPTION: self.choose,
            ButtonAction.RETRY: self.retry,
            ButtonAction.APPROVE: self.approve,
            ButtonAction.DENY: self.deny,
        }

    async def stop(self, pressed: AuthorizedPress) -> PressOutcome:
        """End the turn of the row now. Pressing twice does no harm, so presses are not counted here."""
        if await self._stop(pressed.row.id):
            return PressOutcome(Disposition.ACCEPTED, pressed.texts.press_stopping)
        return PressOutcome(Disposition.TOO_LATE, pressed.texts.press_finished)

    async def choose(self, pressed: AuthorizedPress) -> PressOutcome:
        """Say the option in the presser's name."""
        options = decode_question(pressed.row.question).options
        if pressed.token.index >= len(options) or not await self._is_present(pressed):
            return await self._gone(pressed)
        option = options[pressed.token.index]
        said = message_from_press(pressed, option, "option")
        answers = await self._history.list_after(pressed.row)
        return await self._said(pressed, said, answers, mark=f"✓ {option}")

    async def approve(self, pressed: AuthorizedPress) -> PressOutcome:
        """Let the tools run that the row's turn waits for."""
        return await self._decide(pressed, APPROVE, pressed.asked.reply_target.texts.mark_approved)

    async def deny(self, pressed: AuthorizedPress) -> PressOutcome:
        """Do not let them run."""
        return await self._decide(pressed, DENY, pressed.asked.reply_target.texts.mark_denied)

    async def retry(self, pressed: AuthorizedPress) -> PressOutcome:
        """Answer the row's message once more, in place of the attempt that failed."""
        if not await self._questions.has_button(pressed.row, pressed.press.token):
            return await self._gone(pressed)
        said = retry_message(pressed)
        later = await self._history.list_after(pressed.row)
        if not await self._is_present(pressed) or not all(_is_of(row, said) for row in later):
            await self._questions.remove_buttons(pressed.row, "")
            return PressOutcome(Disposition.TOO_LATE, pressed.texts.press_newer)
        return await self._said(
            pressed, said, later, mark=pressed.asked.reply_target.texts.mark_retry
        )

    async def _decide(self, pressed: AuthorizedPress, word: str, mark: str) -> PressOutcome:
        if not decode_question(pressed.row.question).interrupts or not await self._is_present(
            pressed
        ):
            return await self._gone(pressed)
        # The run goes on for whoever asked, with their session; an admin only decides.
        said = replace(message_from_press(pressed, word, "decision"), sender=pressed.asked.sender)
        # Others may have written meanwhile: that decides nothing.
        later = [row for row in await self._history.list_after(pressed.row) if _is_of(row, said)]
        return await self._said(pressed, said, later, mark=mark)

    async def _gone(self, pressed: AuthorizedPress) -> PressOutcome:
        words = pressed.texts
        is_settled = await self._questions.are_buttons_removed(pressed.row)
        return PressOutcome(
            Disposition.TOO_LATE, words.press_answered if is_settled else words.press_inactive
        )

    async def _is_present(self, pressed: AuthorizedPress) -> bool:
        """Return whether the button stands there, and its conversation still is in the thread of it."""
        row = pressed.row
        in_thread = row.thread_id is None or row.current_thread_id in (None, row.thread_id)
        return in_thread and await self._questions.has_button(row, pressed.press.token)

    async def _said(
        self, pressed: AuthorizedPress, said: InboundMessage, later: list[InboxRow], *, mark: str
    ) -> PressOutcome:
        """Have a message accepted that a press stands for, unless the question has an answer already."""
        words = pressed.texts
        mine = next((row for row in later if _is_of(row, said)), None)
        if mine is not None and decode_inbound(mine.body).text == said.text:
            return PressOutcome(Disposition.DUPLICATE)
        if later or await self._questions.are_buttons_removed(pressed.row):
            await self._questions.remove_buttons(pressed.row, "")
            return PressOutcome(Disposition.TOO_LATE, words.press_answered)
        reason = await self._receive(said)
        if reason is Disposition.DUPLICATE and not await self._was_kept(pressed.row, said):
            # The first press came when there was no room, and must not be the last.
            anew = replace(said, event_id=f"{said.event_id}:{pressed.press.event_id}")
            reason = await self._receive(anew)
        if reason is Disposition.ACCEPTED:
            await self._questions.remove_buttons(pressed.row, mark)
            return PressOutcome(reason)
        return PressOutcome(reason, _why_not(reason, words))

    async def _was_kept(self, row: InboxRow, said: InboundMessage) -> bool:
        return any(_is_of(later, said) for later in await self._history.list_after(row))


def retry_message(pressed: AuthorizedPress) -> InboundMessage:
    """Return the message of a row to be answered once more; what stands in the thread of it goes first."""
    asked = pressed.asked
    before = asked.rewind_point
    known = (before.message_id, *before.earlier_ids) if before is not None else ()
    *earlier, last = (*known, *message_ids(asked))
    exchange = None
    if pressed.row.kind == "chat" or before is not None:
        exchange = RewindPoint(
            thread_id=pressed.row.thread_id or "",
            message_id=last,
            text=before.text if before is not None else asked.text,
            files=before.files if before is not None else (),
            earlier_ids=tuple(earlier),
            allow_duplicate=True,
        )
    return replace(
        asked,
        event_id=f"press:{pressed.row.id}:retry",
        message_id="",
        reply_target=replace(asked.reply_target, callback=press_callback(pressed)),
        addressed=True,
        replies_to=(),
        track_replies=False,
        rewind_point=exchange,
        answers_row=0,
        stopped=False,
        edit_count=0,
    )


def _why_not(reason: Disposition, words: Messages) -> str:
    """Return what the presser is told of a message that was not accepted."""
    if reason is Disposition.DUPLICATE:
        return words.press_answered
    is_full = reason in (Disposition.QUEUE_FULL, Disposition.RATE_LIMITED)
    return words.press_full if is_full else words.press_not_allowed


def _is_of(row: InboxRow, said: InboundMessage) -> bool:
    """Return whether a row is what another press of the same question became."""
    return row.event_id == said.event_id or row.event_id.startswith(f"{said.event_id}:")
