"""Button presses: who may press, and which action handles it (bus/inbound/button_actions.py)."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace

from bus.access.checker import AccessChecker
from bus.buttons import ButtonAction, ButtonToken, parse_token
from bus.context import BusContext
from bus.locales import Messages, messages_for
from bus.messages import (
    ButtonPress,
    InboundMessage,
    PressResponse,
    RewindPoint,
    chat_of,
    decode_inbound,
)
from bus.platform import Disposition
from store.inbox import InboxRow

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizedPress:
    """A press whose presser is allowed to act.

    Attributes:
        row: The inbox row that the button applies to.
        asked: The row's message.
        texts: In the presser's language.
    """

    press: ButtonPress
    token: ButtonToken
    row: InboxRow
    asked: InboundMessage
    texts: Messages


@dataclass(frozen=True, slots=True)
class PressOutcome:
    """The outcome of a press."""

    disposition: Disposition
    text: str = ""

    @property
    def response(self) -> PressResponse:
        """The response to the presser."""
        refused = self.disposition not in (Disposition.ACCEPTED, Disposition.DUPLICATE)
        return PressResponse(text=self.text, urgent=refused and bool(self.text))


def refused_press(disposition: Disposition, texts: Messages) -> PressOutcome:
    """Return the outcome of a press whose message was not accepted."""
    if disposition is Disposition.DUPLICATE:
        return PressOutcome(Disposition.TOO_LATE, texts.press_answered)
    if disposition is Disposition.TAKEN_OVER:
        return PressOutcome(disposition, texts.press_taken_over)
    is_full = disposition in (Disposition.QUEUE_FULL, Disposition.RATE_LIMITED)
    return PressOutcome(disposition, texts.press_full if is_full else texts.press_not_allowed)


ButtonActionHandler = Callable[[AuthorizedPress], Awaitable[PressOutcome]]
"""Carries out a button's action and stores it. Raises IntakeFull, IntakeClosed, StoreError."""


class ButtonPressHandler:
    """Checks who pressed a button, and calls the handler of its action.

    Args:
        access: Knows who is an admin and who may use the bot.
        actions: The action of each button.
    """

    def __init__(
        self,
        bus: BusContext,
        access: AccessChecker,
        actions: Mapping[ButtonAction, ButtonActionHandler],
    ) -> None:
        self._access = access
        self._history = bus.stores.history
        self._languages = bus.languages
        self._actions = actions

    async def handle(self, press: ButtonPress) -> PressOutcome:
        """Carry out a press. Raises IntakeFull, IntakeClosed, StoreError."""
        texts = messages_for(self._languages.resolve(press))
        token = parse_token(press.token)
        action = self._actions.get(token.action) if token is not None else None
        row = await self._history.find(token.row_id) if token is not None else None
        if token is None or action is None or row is None:
            return PressOutcome(Disposition.TOO_LATE, texts.press_inactive)
        if chat_of(row.key) != chat_of(press.key):
            log.warning("button %r of %s was pressed in another chat", press.token, row.key.channel)
            return PressOutcome(Disposition.TOO_LATE, texts.press_inactive)
        asked = replace(decode_inbound(row.body), key=row.key)
        authorized = AuthorizedPress(press=press, token=token, row=row, asked=asked, texts=texts)
        return await self._refusal(authorized) or await action(authorized)

    async def _refusal(self, pressed: AuthorizedPress) -> PressOutcome | None:
        """Return why a person may not press; None if they may."""
        press, asker = pressed.press, pressed.asked.sender
        if self._access.is_admin(press.key.channel, press.sender):
            return None
        if press.sender.user_id != asker.user_id or not asker.user_id:
            return PressOutcome(Disposition.NOT_ALLOWED, pressed.texts.press_not_yours)
        if await self._access.check(message_from_press(pressed)) is not Disposition.ACCEPTED:
            return PressOutcome(Disposition.NOT_ALLOWED, pressed.texts.press_not_allowed)
        return None


def message_from_press(pressed: AuthorizedPress, text: str = "·", name: str = "") -> InboundMessage:
    """Return a message of the presser with the given text, in the button's conversation.

    `name`: presses with the same name for a row are repetitions, and only the first one counts.
    """
    press, asked = pressed.press, pressed.asked
    target = replace(
        asked.reply_target,
        reply_to=press.message_id or asked.reply_target.reply_to,
        response_url=press_response_url(pressed),
        user=_recipient(press, asked),
    )
    return InboundMessage(
        event_id=f"press:{pressed.row.id}:{name}",
        message_id="",
        key=pressed.row.key,
        reply_target=target,
        sender=press.sender,
        text=text,
        is_private=asked.is_private,
        is_addressed=True,
        language=press.language,
        chat_title=asked.chat_title,
        topic_title=asked.topic_title,
        answers_row=pressed.row.id,
    )


def _recipient(press: ButtonPress, asked: InboundMessage) -> str:
    """Return the person to answer, in the platform's form: the asker, as for the original message, or the presser."""
    if not asked.reply_target.user or press.sender.user_id == asked.sender.user_id:
        return asked.reply_target.user
    return press.reply_target.user or press.sender.user_id


def press_response_url(pressed: AuthorizedPress) -> str:
    """Return the one-time reply address of a press if the original message had one, which has expired."""
    return (
        pressed.press.reply_target.response_url if pressed.asked.reply_target.response_url else ""
    )


def answer_again(
    asked: InboundMessage,
    *,
    event_id: str,
    rewind_point: RewindPoint | None,
    response_url: str = "",
) -> InboundMessage:
    """Return a copy of a message as a new message. With a `rewind_point`, its answer replaces the earlier answer."""
    return replace(
        asked,
        event_id=event_id,
        message_id="",
        reply_target=replace(asked.reply_target, response_url=response_url),
        is_addressed=True,
        replies_to=(),
        track_replies=False,
        rewind_point=rewind_point,
        answers_row=0,
        is_stopped=False,
        is_stopped_by_operator=False,
        is_deleted=False,
        edit_count=0,
    )
