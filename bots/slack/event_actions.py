"""What the adapter does by itself about events, besides handing them to the bus."""

import logging
from collections.abc import Callable
from typing import Final

from bots.slack.api import SlackApi
from bots.slack.errands import Errands
from bots.slack.errors import SlackError
from bots.slack.inbound import AgentChatOpened, AgentSessionStopped, AuthorizationRevoked
from bots.slack.indicator import SlackIndicator
from bots.slack.outbound import SlackMessages
from bots.slack.payload import CHANNEL, is_private
from bots.slack.streaming import SlackStreamingMessages
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


class SlackEventActions:
    """Tells pressers, greets, checks tokens, and stops turns that a person stopped in Slack.

    Args:
        recheck: Has the connection signed in again.

    Attributes:
        intake: Where presses go; None while the adapter does not run.
    """

    def __init__(
        self,
        api: SlackApi,
        outbound: SlackMessages,
        streams: SlackStreamingMessages,
        signs: SlackIndicator,
        errands: Errands,
        recheck: Callable[[], None],
    ) -> None:
        self._api = api
        self._outbound = outbound
        self._streams = streams
        self._signs = signs
        self._errands = errands
        self._reauthenticate = recheck
        self.intake: Intake | None = None

    def on_message_accepted(self, inbound: InboundMessage) -> None:
        """Note a message that the bus took."""
        self._signs.remember_title(inbound)

    def send_press_response(self, press: ButtonPress, answer: PressResponse) -> None:
        """Tell whoever pressed a button what became of it."""
        callback = press.reply_target.callback
        if answer.text and callback:
            self._errands.start(
                "the answer to a press",
                lambda: self._outbound.respond_ephemeral(callback, answer.text),
            )

    def on_chat_opened(self, opened: AgentChatOpened) -> None:
        """Greet whoever opened the chat."""
        self._errands.start(
            "a greeting", lambda: self._signs.suggest_prompts(opened.chat, opened.thread)
        )

    def on_authorization_revoked(self, dismissed: AuthorizationRevoked) -> None:
        """Look whether the app still may do anything."""
        _log.warning("slack: the app lost rights (%s)", dismissed.event_type)
        self._errands.start("a look at the token", self._verify_token)

    def button_presses_for_stop(self, halt: AgentSessionStopped) -> list[ButtonPress]:
        """Return the presses that a stop amounts to; none = it is a command."""
        stop = halt.stop_command
        return [
            _press(stop.reply_target, ts, token, stop.sender, stop.key)
            for ts in halt.message_ids
            if (token := self._streams.mark_stopped(stop.reply_target.chat, ts))
        ]

    async def on_stream_stopped(self, place: ReplyTarget, message: MessageId, token: str) -> None:
        """Stop the turn whose stream a person stopped: Slack did not say who, so it was the one who asked."""
        if not token or self.intake is None:
            return
        asker = Sender(user_id=place.user.rpartition("/")[2])
        key = ConversationKey(
            channel=CHANNEL,
            workspace=self._api.known_identity.workspace,
            chat=place.chat,
            topic="" if is_private(place.chat) else place.thread,
        )
        try:
            await self.intake.handle_button_press(_press(place, message, token, asker, key))
        except BusError as error:
            _log.warning("slack: a stopped answer could not be ended: %s", error)

    async def _verify_token(self) -> None:
        try:
            await self._api.authenticate()
        except SlackError as error:
            if not error.token_refused:
                raise
            self._reauthenticate()


def _press(
    place: ReplyTarget, message: str, token: str, sender: Sender, key: ConversationKey
) -> ButtonPress:
    return ButtonPress(
        event_id=f"halt:{place.chat}:{message}",
        key=key,
        reply_target=place,
        message_id=message,
        token=token,
        sender=sender,
        private=is_private(place.chat),
    )
