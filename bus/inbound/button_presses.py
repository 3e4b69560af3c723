"""Button presses: who may press, and which action handles it (bus/inbound/button_actions.py)."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace

from bus.access.policy import is_admin
from bus.buttons import ButtonAction, ButtonToken, parse_token
from bus.config import ChannelPolicy
from bus.locales import Messages, messages_for
from bus.messages import ButtonPress, ConversationKey, InboundMessage, PressResponse, decode_inbound
from bus.platform import Disposition
from bus.settings.language import LanguageResolver
from store.inbox import InboxRow
from store.message_history import MessageHistoryStore

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizedPress:
    """A press that may be acted on.

    Attributes:
        row: The message that the button is about.
        asked: What it said.
        texts: What the presser reads.
    """

    press: ButtonPress
    token: ButtonToken
    row: InboxRow
    asked: InboundMessage
    texts: Messages


@dataclass(frozen=True, slots=True)
class PressOutcome:
    """What became of a press."""

    reason: Disposition
    text: str = ""

    @property
    def answer(self) -> PressResponse:
        """What the presser is told."""
        refused = self.reason not in (Disposition.ACCEPTED, Disposition.DUPLICATE)
        return PressResponse(text=self.text, urgent=refused and bool(self.text))


ButtonActionHandler = Callable[[AuthorizedPress], Awaitable[PressOutcome]]
"""Does what a button says. What it means is kept when this returns. Raises IntakeFull, IntakeClosed, StoreError."""


class ButtonPressHandler:
    """Judges presses and hands them on.

    Args:
        policies: By channel, who is an admin.
        admits: Whether somebody may talk to the bot: its verdict on a message of theirs.
        deeds: What each button does.
    """

    def __init__(
        self,
        *,
        policies: Mapping[str, ChannelPolicy],
        history: MessageHistoryStore,
        languages: LanguageResolver,
        admits: Callable[[InboundMessage], Awaitable[Disposition]],
        deeds: Mapping[ButtonAction, ButtonActionHandler],
    ) -> None:
        self._policies = policies
        self._history = history
        self._languages = languages
        self._admits = admits
        self._deeds = deeds

    async def press(self, press: ButtonPress) -> PressOutcome:
        """Act on a press. Raises IntakeFull, IntakeClosed, StoreError."""
        words = messages_for(self._languages.resolve(press))
        token = parse_token(press.token)
        deed = self._deeds.get(token.verb) if token is not None else None
        row = await self._history.find(token.row_id) if token is not None else None
        if token is None or deed is None or row is None:
            return PressOutcome(Disposition.TOO_LATE, words.press_inactive)
        if _chat(row.key) != _chat(press.key):
            log.warning("button %r of %s was pressed in another chat", press.token, row.key.channel)
            return PressOutcome(Disposition.TOO_LATE, words.press_inactive)
        asked = replace(decode_inbound(row.body), key=row.key)
        pressed = AuthorizedPress(press=press, token=token, row=row, asked=asked, texts=words)
        return await self._refusal(pressed) or await deed(pressed)

    async def _refusal(self, pressed: AuthorizedPress) -> PressOutcome | None:
        """Return why somebody may not press; None if they may."""
        press, asker = pressed.press, pressed.asked.sender
        policy = self._policies.get(press.key.channel, ChannelPolicy())
        presser = message_from_press(pressed)
        if is_admin(presser, policy):
            return None
        if press.sender.user_id != asker.user_id or not asker.user_id:
            return PressOutcome(Disposition.NOT_ALLOWED, pressed.texts.press_not_yours)
        reason = await self._admits(presser)
        if reason is not Disposition.ACCEPTED:
            return PressOutcome(Disposition.NOT_ALLOWED, pressed.texts.press_not_allowed)
        return None


def message_from_press(pressed: AuthorizedPress, text: str = "·", name: str = "") -> InboundMessage:
    """Return a message in the presser's name that says `text` where the button stands.

    `name`: for which presses of the row it stands, all in all; the first of these counts.
    """
    press, asked = pressed.press, pressed.asked
    place = replace(
        asked.reply_target,
        reply_to=press.message_id or asked.reply_target.reply_to,
        callback=press_callback(pressed),
        user=press.sender.user_id if asked.reply_target.user else "",
    )
    return InboundMessage(
        event_id=f"press:{pressed.row.id}:{name}",
        message_id="",
        key=pressed.row.key,
        reply_target=place,
        sender=press.sender,
        text=text,
        private=asked.private,
        addressed=True,
        language=press.language,
        answers_row=pressed.row.id,
    )


def press_callback(pressed: AuthorizedPress) -> str:
    """Return the one-off address for the answer to a press, where the message it is about had one: it expires."""
    return pressed.press.reply_target.callback if pressed.asked.reply_target.callback else ""


def _chat(key: ConversationKey) -> ConversationKey:
    return replace(key, topic="")
