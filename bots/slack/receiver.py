"""The Bolt app: a payload is taken over by the bus before Slack is acknowledged."""

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from slack_bolt.async_app import AsyncAck, AsyncApp
from slack_bolt.authorization import AuthorizeResult

from bots.common.keyed_lock import KeyedLock
from bots.slack.api import sdk_logger
from bots.slack.buttons import parse_button_press
from bots.slack.event_actions import SlackEventActions
from bots.slack.inbound import (
    AgentChatOpened,
    AgentSessionStopped,
    AuthorizationRevoked,
    SlackEvent,
    parse_event,
    parse_slash_command,
)
from bots.slack.payload import CHANNEL, IgnoredSlackEvent, SlackIdentity
from bots.slack.users import SlackUserDirectory
from bus.errors import BusError
from bus.messages import ButtonPress, InboundMessage, MessageDeletion, MessageEdit, SenderKind
from bus.platform import Disposition, Intake

logger = logging.getLogger(__name__)

_ANY = re.compile(".*", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlackReceiver:
    """Hands payloads to the bus.

    Args:
        intake: Where messages, presses and changes go.
        actions: What the adapter itself does about events; everything returns soon.
        identity: Tells who the bot is; spares Bolt a call to auth.test, whose failure it would acknowledge.
        users: Tells members, guests and external people apart.
        bot_token: Put into Bolt's context.
        hears_everything: Whether messages that do not address the bot may start a conversation (group_policy open).
    """

    intake: Intake
    actions: SlackEventActions
    identity: Callable[[], SlackIdentity]
    users: SlackUserDirectory
    bot_token: str
    hears_everything: bool = False

    def app(self) -> AsyncApp:
        """Return an app whose answer is 200 only for what the bus took over or ignored.

        Listeners run before the answer (`process_before_response`): one that raises makes it a 500, which is
        not acknowledged, so that Slack sends the event again. The pattern `.*` takes every event type, because
        one without a listener would be sent again for nothing. Own messages are left to `inbound`, which counts
        them. Signatures of HTTP requests are checked before they come here, because Bolt parses first.
        """

        async def authorize() -> (
            AuthorizeResult
        ):  # Bolt passes what it finds among the parameters' names.
            bot = self.identity()
            return AuthorizeResult(
                enterprise_id=None,
                team_id=bot.team_id,
                bot_user_id=bot.user_id,
                bot_id=bot.bot_id,
                bot_token=self.bot_token,
            )

        app = AsyncApp(
            name="parley",
            logger=sdk_logger(),
            authorize=authorize,
            process_before_response=True,
            request_verification_enabled=False,
            ignoring_self_events_enabled=False,
            attaching_conversation_kwargs_enabled=False,
        )
        self._listen(app)
        return app

    def _listen(self, app: AsyncApp) -> None:
        lanes = KeyedLock()

        async def on_event(body: dict[str, Any]) -> None:
            await self._dispatch(parse_event(body, self.identity()), lanes)

        async def on_command(body: dict[str, Any], ack: AsyncAck) -> None:
            await self._dispatch(parse_slash_command(body, self.identity()), lanes)
            await ack()

        async def on_press(body: dict[str, Any], ack: AsyncAck) -> None:
            await self._handle_press(parse_button_press(body, self.identity()), lanes)
            await ack()

        async def on_other(body: dict[str, Any], ack: AsyncAck) -> None:
            self.intake.report_ignored(CHANNEL, Disposition.UNSUPPORTED, f"{body.get('type')}")
            await ack()

        app.event(_ANY)(on_event)
        app.command(_ANY)(on_command)
        app.action(_ANY)(on_press)
        app.shortcut(_ANY)(on_other)
        app.view(_ANY)(on_other)
        app.options(_ANY)(on_other)
        app.error(_log_not_accepted)

    async def _dispatch(self, found: SlackEvent, lanes: KeyedLock) -> None:
        match found:
            case IgnoredSlackEvent():
                self.intake.report_ignored(CHANNEL, found.reason, found.detail)
            case InboundMessage():
                async with lanes.hold(found.key.chat):  # Messages of one chat in their order.
                    inbound = await self._with_sender_kind(found)
                    if await self.intake.receive(inbound) is Disposition.ACCEPTED:
                        self.actions.on_message_accepted(inbound)
            case MessageEdit() | MessageDeletion():
                async with lanes.hold(found.key.chat):  # Not before the message that it changes.
                    await self._change(found)
            case AgentChatOpened():
                self.actions.on_chat_opened(found)
            case AgentSessionStopped():
                await self._handle_stop(found, lanes)
            case AuthorizationRevoked():
                self.actions.on_authorization_revoked(found)

    async def _with_sender_kind(self, inbound: InboundMessage) -> InboundMessage:
        """Look up who wrote. Talk among others is left "unknown": in a busy channel it would use up the rate limit."""
        if not (inbound.addressed or inbound.replies_to or self.hears_everything):
            kind: SenderKind = "unknown"
        else:
            kind = await self.users.kind_of(inbound.sender.user_id)
        if (
            kind == "unknown" and "/" in inbound.reply_target.user
        ):  # a team of their own: Slack Connect
            kind = "external"
        return replace(inbound, sender=replace(inbound.sender, kind=kind))

    async def _change(self, found: MessageEdit | MessageDeletion) -> None:
        if isinstance(found, MessageEdit):
            await self.intake.handle_edit(found)
        else:
            await self.intake.handle_deletion(found)

    async def _handle_press(self, found: ButtonPress | IgnoredSlackEvent, lanes: KeyedLock) -> None:
        if isinstance(found, IgnoredSlackEvent):
            self.intake.report_ignored(CHANNEL, found.reason, found.detail)
            return
        async with lanes.hold(found.key.chat):
            kind = await self.users.kind_of(found.sender.user_id)
            press = replace(found, sender=replace(found.sender, kind=kind))
            answer = await self.intake.handle_button_press(press)
        self.actions.send_press_response(found, answer)

    async def _handle_stop(self, found: AgentSessionStopped, lanes: KeyedLock) -> None:
        """Stop what a person stopped by Slack's own button, in that person's name."""
        presses = self.actions.button_presses_for_stop(found)
        for stop in presses:
            await self._handle_press(stop, lanes)
        if not presses:
            await self._dispatch(found.stop_command, lanes)


async def _log_not_accepted(error: Exception) -> None:
    expected = isinstance(error, BusError)
    logger.warning(
        "slack: not taken over, Slack will send it again: %s",
        error if expected else type(error).__name__,
        exc_info=None if expected else error,
    )
