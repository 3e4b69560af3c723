"""Passes Slack's payloads to the bus. Bolt dispatches a payload, the bus commits it, then it is acknowledged."""

import logging
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import anyio
from slack_bolt.async_app import AsyncAck, AsyncApp
from slack_bolt.authorization import AuthorizeResult

from bots.common.background import BackgroundTasks
from bots.common.events import IgnoredEvent, or_help
from bots.common.health import HealthTracker
from bots.common.keyed_lock import KeyedLock
from bots.slack.api import SlackApi, sdk_logger
from bots.slack.buttons import parse_button_press
from bots.slack.connection import SlackTimeouts
from bots.slack.errors import SlackError
from bots.slack.event_order import SlackEventOrder
from bots.slack.file_names import SlackFileNames
from bots.slack.inbound import (
    AgentChatOpened,
    AgentSessionStopped,
    AuthorizationRevoked,
    SlackEvent,
    answers_bot,
    parse_event,
    parse_slash_command,
)
from bots.slack.indicator import SlackIndicator
from bots.slack.names import SlackNames
from bots.slack.outbound import SlackMessages
from bots.slack.payload import (
    SlackIdentity,
    find_installation,
    is_private,
    split_recipient,
)
from bots.slack.streaming import SlackStreamingMessages
from bots.slack.thread_history import SlackThreadHistory
from bots.slack.users import SlackUserDirectory
from bus.errors import BusError
from bus.messages import (
    ButtonPress,
    ConversationKey,
    InboundMessage,
    MessageDeletion,
    MessageEdit,
    MessageId,
    ReplyTarget,
    Sender,
)
from bus.platform import Disposition, Intake

log = logging.getLogger(__name__)

_ANY = re.compile(".*", re.DOTALL)


class SlackReceiver:
    """Passes payloads to the bus. Payloads of one chat stay in order. Chats do not wait for each other.

    Args:
        intake: Receives messages, presses and edits.
        health: Records whether messages are accepted.
        api: Knows the bot's identity.
        users: Looks up people: their kind (member, guest, external) and their names.
        timeouts: Time limits of lookups.
        messages: Responds to presses.
        streaming: Knows which messages are streaming.
        indicator: Sets titles and suggests prompts.
        background: Runs work that must not delay an acknowledgement.
        reauthenticate: Reconnects after a token was refused.
        forget: Drops the token of a workspace that uninstalled the app.
        hears_everything: Whether messages that do not address the bot may begin a conversation (group_policy open).
    """

    def __init__(
        self,
        intake: Intake,
        *,
        health: HealthTracker,
        api: SlackApi,
        users: SlackUserDirectory,
        timeouts: SlackTimeouts,
        messages: SlackMessages,
        streaming: SlackStreamingMessages,
        indicator: SlackIndicator,
        background: BackgroundTasks,
        reauthenticate: Callable[[], None],
        forget: Callable[[str], Awaitable[None]],
        hears_everything: bool = False,
    ) -> None:
        self._intake = intake
        self._channel = api.channel
        self._health = health
        self._api = api
        self._users = users
        self._lookups_s = timeouts.lookups_s
        self._threads = SlackThreadHistory(api, timeouts)
        self._files = SlackFileNames(api)
        self._names = SlackNames(api, users, timeouts)
        self._order = SlackEventOrder()
        self._messages = messages
        self._streaming = streaming
        self._indicator = indicator
        self._background = background
        self._reauthenticate = reauthenticate
        self._forget = forget
        self._hears_everything = hears_everything
        self._locks = KeyedLock()

    def app(self) -> AsyncApp:
        """Return an app that responds with 200 only to payloads that the bus accepted or ignored.

        Listeners run before the response (`process_before_response`). If one raises, the response is a 500, which does
        not acknowledge the event, so Slack resends it. The pattern `.*` matches every event type, because Slack would
        needlessly resend events without a listener. Bolt drops what the bot itself wrote: Slack sends each answer
        back. Signatures of HTTP requests are verified before this app gets the requests, because Bolt parses before it
        verifies.
        """

        async def authorize() -> AuthorizeResult:
            # By default, Bolt calls auth.test, and acknowledges events if the call fails.
            bot = self._api.known_identity
            return AuthorizeResult(
                enterprise_id=bot.enterprise_id or None,
                team_id=bot.team_id,
                bot_user_id=bot.user_id,
                bot_id=bot.bot_id,
                bot_token=self._api.bot_token,
            )

        app = AsyncApp(
            name="parley",
            logger=sdk_logger(),
            authorize=authorize,
            process_before_response=True,
            request_verification_enabled=False,
            attaching_conversation_kwargs_enabled=False,
        )
        app.event(_ANY)(self._on_event)
        app.command(_ANY)(self._on_command)
        app.action(_ANY)(self._on_action)
        for listen in (app.shortcut, app.view, app.options):
            listen(_ANY)(self._on_other)
        app.error(self._on_error)
        return app

    async def stop_turn(self, target: ReplyTarget, message: MessageId, token: str) -> None:
        """Stop the turn of a stopped stream. Slack does not say who stopped it, so the person who asked is assumed."""
        asker = Sender(user_id=split_recipient(target.user)[2])
        key = ConversationKey(
            channel=self._channel,
            workspace=self._api.known_identity.workspace,
            chat=target.chat,
            topic="" if is_private(target.chat) else target.thread,
        )
        try:
            await self._intake.handle_button_press(_stop_press(target, message, token, asker, key))
        except BusError as error:
            log.warning("%s: a stopped answer could not be ended: %s", self._channel, error)

    async def _on_event(self, body: dict[str, Any]) -> None:
        await self._receive(body, parse_event)

    async def _on_command(self, body: dict[str, Any], ack: AsyncAck) -> None:
        await self._receive(body, parse_slash_command)
        await ack()

    async def _on_action(self, body: dict[str, Any], ack: AsyncAck) -> None:
        await self._receive(body, parse_button_press)
        await ack()

    async def _receive(
        self,
        body: dict[str, Any],
        parse: Callable[[dict[str, Any], SlackIdentity], SlackEvent | ButtonPress],
    ) -> None:
        """Handle a payload with the bot's identity in the payload's workspace."""
        with self._api.in_workspace(find_installation(body, self._api.installations)):
            if self._api.bot_token:
                me = self._api.known_identity
                await self._dispatch(parse(body, me), in_own_thread=answers_bot(body, me))
                self._health.mark_accepted()
            else:
                detail = "a workspace that has not installed the app"
                self._intake.report_ignored(self._channel, Disposition.UNSUPPORTED, detail)

    async def _on_other(self, body: dict[str, Any], ack: AsyncAck) -> None:
        self._intake.report_ignored(self._channel, Disposition.UNSUPPORTED, f"{body.get('type')}")
        await ack()

    async def _on_error(self, error: Exception) -> None:
        self._health.mark_refused(error)
        is_expected = isinstance(error, BusError)
        log.warning(
            "%s: not accepted, Slack will send it again: %s",
            self._channel,
            error if is_expected else type(error).__name__,
            exc_info=None if is_expected else error,
        )

    async def _dispatch(
        self, event: SlackEvent | ButtonPress, *, in_own_thread: bool = False
    ) -> None:
        match event:
            case IgnoredEvent():
                self._ignore(event)
            case InboundMessage():
                async with self._locks.hold(event.key.chat):
                    await self._handle_message(event, in_own_thread=in_own_thread)
            case MessageEdit() | MessageDeletion():
                async with self._locks.hold(event.key.chat):  # Waits for the message itself.
                    await self._handle_change(event)
            case AgentChatOpened(chat=chat, thread=thread):
                self._background.start(
                    "suggested prompts", lambda: self._indicator.suggest_prompts(chat, thread)
                )
            case ButtonPress():
                await self._handle_press(event)
            case AgentSessionStopped():
                await self._handle_stop(event)
            case AuthorizationRevoked():
                log.warning("%s: the app lost rights (%s)", self._channel, event.event_type)
                self._background.start("check of the token", self._check_token)

    async def _handle_message(
        self, message: InboundMessage, *, in_own_thread: bool = False
    ) -> None:
        """Pass a message to the bus, and then the replies to it that arrived before it."""
        if self._order.is_deleted(message):
            self._ignore(IgnoredEvent("deleted before it arrived", Disposition.TOO_LATE))
            return
        inbound = await self._completed(message, begins=in_own_thread or self._hears_everything)
        meant = or_help(inbound)
        if isinstance(meant, IgnoredEvent):
            self._ignore(meant)
            return
        disposition: Disposition | None = None
        try:
            disposition = await self._intake.receive(meant)
        finally:
            if disposition not in {Disposition.ACCEPTED, Disposition.DUPLICATE}:
                self._threads.note_refused(meant)
        if disposition is Disposition.NOT_ADDRESSED:
            self._order.keep_reply(message)
        elif disposition is Disposition.ACCEPTED:
            self._threads.note_accepted(meant)
            self._indicator.remember_title(meant)
            for reply in self._order.take_replies(message):
                await self._handle_message(reply)

    async def _completed(
        self, message: InboundMessage, *, begins: bool, has_thread: bool = True
    ) -> InboundMessage:
        """Return a message completed with data that its event does not contain: author, thread, names.

        Messages between people are not completed, because in a busy channel that would use up the rate limits.

        Raises:
            SlackError: The author is unknown.
            StoreError: It is unknown whether there is a conversation.
        """
        began_at = anyio.current_time()
        sender = await self._described_sender(message)
        zone = self._users.known_timezone(sender.user_id)
        inbound = replace(message, sender=sender, timezone=zone)
        if not self._is_for_us(message):
            return self._names.without_lookup(inbound)
        give_up_at = began_at + self._lookups_s
        # If looking up the author took this long, the event is late anyway.
        if anyio.current_time() >= give_up_at:
            give_up_at = anyio.current_time() + self._lookups_s
        if has_thread:
            inbound = await self._threads.add(
                inbound, self._intake, begins=begins, give_up_at=give_up_at
            )
        inbound = await self._files.add(inbound, give_up_at=give_up_at)
        is_heard = message.is_addressed or begins
        if is_heard or await self._intake.has_conversation(message.key):
            return await self._names.add(inbound, give_up_at=give_up_at)
        return self._names.without_lookup(inbound)

    def _ignore(self, event: IgnoredEvent) -> None:
        self._intake.report_ignored(self._channel, event.reason, event.detail)

    def _is_for_us(self, message: InboundMessage) -> bool:
        return message.is_addressed or bool(message.replies_to) or self._hears_everything

    async def _handle_change(self, change: MessageEdit | MessageDeletion) -> None:
        if isinstance(change, MessageEdit):
            # In a channel, an edit may newly address the bot. In private, the original message already has the thread.
            has_thread = not change.edited.is_private
            edited = await self._completed(
                change.edited, begins=self._hears_everything, has_thread=has_thread
            )
            await self._intake.handle_edit(replace(change, edited=edited))
        else:
            self._order.note_deletion(change)
            await self._intake.handle_deletion(change)

    async def _described_sender(self, inbound: InboundMessage) -> Sender:
        """Look up the author if the message is for the bot. Otherwise, the author's kind stays "unknown"."""
        sender = replace(inbound.sender, kind="unknown")
        if self._is_for_us(inbound) and not sender.is_bot:
            sender = await self._look_up(sender)
        has_own_team = "/" in inbound.reply_target.user  # Slack Connect.
        if sender.kind == "unknown" and has_own_team:
            return replace(sender, kind="external")
        return sender

    async def _look_up(self, sender: Sender) -> Sender:
        """Return a person's kind and display name. Raises SlackError."""
        kind = await self._users.kind_of(sender.user_id)
        name = self._users.known_name(sender.user_id) or sender.name
        return replace(sender, kind=kind, name=name)

    async def _handle_press(self, press: ButtonPress) -> None:
        async with self._locks.hold(press.key.chat):
            press = replace(press, sender=await self._look_up(press.sender))
            response = await self._intake.handle_button_press(press)
        callback = press.reply_target.response_url
        if response.text and callback:
            self._background.start(
                "response to a press",
                lambda: self._messages.respond_ephemeral(callback, response.text),
            )

    async def _handle_stop(self, stop: AgentSessionStopped) -> None:
        """Stop a turn on behalf of the person who pressed Slack's own button."""
        command = stop.stop_command
        target = command.reply_target
        tokens = {ts: self._streaming.mark_stopped(target.chat, ts) for ts in stop.message_ids}
        presses = [
            _stop_press(target, ts, token, command.sender, command.key)
            for ts, token in tokens.items()
            if token
        ]
        for press in presses:
            await self._handle_press(press)
        if not presses:
            await self._dispatch(command)

    async def _check_token(self) -> None:
        try:
            await self._api.authenticate()
        except SlackError as error:
            if not error.token_refused:
                raise
            if installation := self._api.known_identity.installation:
                await self._forget(installation)
            else:
                self._reauthenticate()


def _stop_press(
    target: ReplyTarget, message: str, token: str, sender: Sender, key: ConversationKey
) -> ButtonPress:
    return ButtonPress(
        event_id=f"halt:{target.chat}:{message}",
        key=key,
        reply_target=target,
        message_id=message,
        token=token,
        sender=sender,
        is_private=is_private(target.chat),
    )
