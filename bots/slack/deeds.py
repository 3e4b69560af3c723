"""What the adapter does by itself about events, besides handing them to the bus."""

import logging
from collections.abc import Callable
from typing import Final

from bots.slack.api import Api
from bots.slack.errands import Errands
from bots.slack.errors import SlackError
from bots.slack.inbound import Dismissed, Halt, Opened
from bots.slack.outbound import Outbound
from bots.slack.payload import CHANNEL, is_private
from bots.slack.signs import Signs
from bots.slack.streams import Streams
from bus.errors import BusError
from bus.messages import (
    ButtonPress,
    ConversationKey,
    InboundMessage,
    MessageId,
    PressResponse,
    ReplyTarget,
    Sender,
)
from bus.platform import Intake

_log: Final = logging.getLogger(__name__)


class Deeds:
    """Tells pressers, greets, checks tokens, and stops turns that a person stopped in Slack.

    Args:
        recheck: Has the connection signed in again.

    Attributes:
        intake: Where presses go; None while the adapter does not run.
    """

    def __init__(
        self,
        api: Api,
        outbound: Outbound,
        streams: Streams,
        signs: Signs,
        errands: Errands,
        recheck: Callable[[], None],
    ) -> None:
        self._api = api
        self._outbound = outbound
        self._streams = streams
        self._signs = signs
        self._errands = errands
        self._recheck = recheck
        self.intake: Intake | None = None

    def heard(self, inbound: InboundMessage) -> None:
        """Note a message that the bus took."""
        self._signs.heard(inbound)

    def answered(self, press: ButtonPress, answer: PressResponse) -> None:
        """Tell whoever pressed a button what became of it."""
        callback = press.place.callback
        if answer.text and callback:
            self._errands.start(
                "the answer to a press", lambda: self._outbound.whisper(callback, answer.text)
            )

    def opened(self, opened: Opened) -> None:
        """Greet whoever opened the chat."""
        self._errands.start("a greeting", lambda: self._signs.greet(opened.chat, opened.thread))

    def dismissed(self, dismissed: Dismissed) -> None:
        """Look whether the app still may do anything."""
        _log.warning("slack: the app lost rights (%s)", dismissed.why)
        self._errands.start("a look at the token", self._look)

    def stopped(self, halt: Halt) -> list[ButtonPress]:
        """Return the presses that a stop amounts to; none = it is a command."""
        stop = halt.command
        return [
            _press(stop.place, ts, token, stop.sender, stop.key)
            for ts in halt.streams
            if (token := self._streams.halt(stop.place.chat, ts))
        ]

    async def halted(self, place: ReplyTarget, message: MessageId, token: str) -> None:
        """Stop the turn whose stream a person stopped: Slack did not say who, so it was the one who asked."""
        if not token or self.intake is None:
            return
        asker = Sender(user_id=place.user.rpartition("/")[2])
        key = ConversationKey(
            channel=CHANNEL,
            workspace=self._api.known_identity.team_id,
            chat=place.chat,
            topic="" if is_private(place.chat) else place.thread,
        )
        try:
            await self.intake.press(_press(place, message, token, asker, key))
        except BusError as error:
            _log.warning("slack: a stopped answer could not be ended: %s", error)

    async def _look(self) -> None:
        try:
            await self._api.sign_in()
        except SlackError as error:
            if not error.token_refused:
                raise
            self._recheck()


def _press(
    place: ReplyTarget, message: str, token: str, sender: Sender, key: ConversationKey
) -> ButtonPress:
    return ButtonPress(
        event_id=f"halt:{place.chat}:{message}",
        key=key,
        place=place,
        message_id=message,
        token=token,
        sender=sender,
        private=is_private(place.chat),
    )
