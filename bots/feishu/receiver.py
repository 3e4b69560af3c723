"""Passes Feishu events to the bus, and acknowledges them."""

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import assert_never

import anyio

from bots.common.events import IgnoredEvent, or_help
from bots.common.greeting import Greeting
from bots.common.health import HealthTracker
from bots.common.keyed_lock import KeyedLock
from bots.feishu.api import FeishuBot
from bots.feishu.buttons import toast
from bots.feishu.events import BotAdded, ChatEntered, MenuClick
from bots.feishu.inbound import FeishuEvent, parse_event
from bots.feishu.json_node import JsonNode
from bots.feishu.lookups import FeishuLookups
from bots.feishu.private_chats import PrivateChats
from bus.errors import BusError, IntakeClosed, IntakeFull
from bus.locales import messages_for
from bus.messages import (
    ButtonPress,
    ConversationKey,
    InboundMessage,
    MessageDeletion,
    PressResponse,
    ReplyTarget,
    Sender,
)
from bus.platform import Disposition, Intake

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class EventAck:
    """The response to an event.

    Attributes:
        accepted: Whether the platform may forget the event. Otherwise it resends it.
        response: The text for the presser of a button; empty = none.
    """

    accepted: bool
    response: Mapping[str, object] = field(default_factory=dict)


ACCEPTED = EventAck(accepted=True)
RETRY = EventAck(accepted=False)


class FeishuReceiver:
    """Passes events to the bus. Events of one chat stay in order.

    Events of different chats, and button presses, do not wait for each other.

    Args:
        intake: Receives messages, presses and deletions.
        channel: Instance name.
        health: Records whether messages are accepted.
        private_chats: Remembers which chats are private.
        greeting: Greets groups and people.
        lookups: Look up data that events do not contain.
        answers_all: Whether the bot answers every message of a group (`group_policy: open`).
        commands: Names of the commands that the bot's menu may call.
        language: Language for people whose language is unknown; "" = English.
        press_s: Time limit for responding to a press, seconds.

    Attributes:
        bot: The bot's identity; None = not known yet, so no event is accepted.
    """

    def __init__(
        self,
        intake: Intake,
        *,
        channel: str,
        health: HealthTracker,
        private_chats: PrivateChats,
        greeting: Greeting,
        lookups: FeishuLookups,
        answers_all: bool = False,
        commands: Collection[str] = (),
        language: str = "",
        press_s: float = 2.0,
    ) -> None:
        self.bot: FeishuBot | None = None
        self._intake = intake
        self._channel = channel
        self._health = health
        self._private_chats = private_chats
        self._greeting = greeting
        self._lookups = lookups
        self._answers_all = answers_all
        self._commands = commands
        self._language = language
        self._press_s = press_s
        self._locks = KeyedLock()

    async def handle(self, envelope: JsonNode) -> EventAck:
        """Act on an event. Return the response for the platform."""
        if self.bot is None:
            return RETRY
        event = parse_event(envelope, self.bot, self._lookups.known)
        try:
            ack = await self._dispatch(event, envelope, self.bot)
        except Exception as error:  # The boundary of one event, which the platform will resend.
            trace = None if isinstance(error, BusError) else error
            text = "%s: an event was not accepted; Feishu will resend it: %s"
            log.warning(text, self._channel, error, exc_info=trace)
            self._health.mark_refused(error)
            return RETRY
        self._health.mark_accepted()
        return ack

    async def _dispatch(self, event: FeishuEvent, envelope: JsonNode, bot: FeishuBot) -> EventAck:
        match event:
            case IgnoredEvent():
                self._intake.report_ignored(self._channel, event.reason, event.detail)
            case InboundMessage():
                await self._handle_message(event, envelope, bot)
            case MessageDeletion():
                async with self._locks.hold(event.key.chat):
                    await self._intake.handle_deletion(event)
            case ButtonPress():
                return EventAck(accepted=True, response=toast(await self._handle_press(event)))
            case ChatEntered():
                self._handle_chat_entered(event)
            case BotAdded():
                await self._handle_bot_added(event)
            case MenuClick():
                await self._handle_menu_click(event)
            case _:
                assert_never(event)
        return ACCEPTED

    async def _handle_message(
        self, message: InboundMessage, envelope: JsonNode, bot: FeishuBot
    ) -> None:
        """Pass a message to the bus, completed with looked-up data."""
        self._private_chats.remember_message(message)
        event = envelope["event"]["message"]
        self._lookups.learn(event)
        async with self._locks.hold(message.key.chat):
            context = self._lookups.known
            if await self._may_be_meant(message):
                context = await self._lookups.find(message, event)
                whole = parse_event(envelope, bot, context)
                message = whole if isinstance(whole, InboundMessage) else message
            await self._receive(message)
            self._lookups.remember(message, event, context)

    async def _may_be_meant(self, message: InboundMessage) -> bool:
        """Return whether a message may be for the bot. The bus makes the decision."""
        if message.is_addressed or message.replies_to or self._answers_all:
            return True
        return await self._intake.has_conversation(message.key)

    async def _receive(self, message: InboundMessage) -> None:
        meant = or_help(message)
        if isinstance(meant, IgnoredEvent):
            self._intake.report_ignored(self._channel, meant.reason, meant.detail)
        else:
            await self._intake.receive(meant)

    async def _handle_press(self, press: ButtonPress) -> PressResponse:
        """Act on a press. The platform does not resend presses, so people must repeat those that were not stored."""
        try:
            with anyio.fail_after(self._press_s):
                return await self._intake.handle_button_press(press)
        except TimeoutError:
            log.warning("a button press was not handled in time")
        except (IntakeFull, IntakeClosed) as error:
            log.warning("a button press was not accepted: %s", error)
        except Exception:  # The boundary, as in `handle`. A person is waiting for the response.
            log.exception("a button press failed")
        return PressResponse(text=messages_for(self._language).press_again, urgent=True)

    def _handle_chat_entered(self, arrival: ChatEntered) -> None:
        if arrival.person:
            self._private_chats.remember(arrival.chat, arrival.person)
        if arrival.is_first:
            self._greeting.greet_user(arrival.chat, arrival.person)

    async def _handle_bot_added(self, event: BotAdded) -> None:
        if event.added_by.user_id:
            await self._intake.handle_bot_added(event.key, event.added_by)
        self._greeting.greet_group(event.key.chat, event_id=event.event_id)

    async def _handle_menu_click(self, menu: MenuClick) -> None:
        """Run the command of a menu entry, as if the person had typed it."""
        if menu.entry.partition(" ")[0] not in self._commands:
            detail = f"the menu's entry {menu.entry[:40]!r} names no command"
            self._intake.report_ignored(self._channel, Disposition.UNSUPPORTED, detail)
            return
        known = self._private_chats.chat_with(menu.person)
        if known is None:
            # The private chat is known only after a message, so ask the person to type the command.
            self._greeting.say(
                menu.person,
                lambda texts: texts.menu_unplaced.format(command=f"`/{menu.entry}`"),
                key=menu.event_id,
            )
            return
        command = _menu_command(self._channel, menu, *known)
        async with self._locks.hold(command.key.chat):
            await self._receive(command)


def _menu_command(channel: str, menu: MenuClick, chat: str, sender: Sender) -> InboundMessage:
    key = ConversationKey(channel=channel, workspace=menu.workspace, chat=chat, topic="")
    return InboundMessage(
        event_id=menu.event_id,
        message_id="",
        key=key,
        reply_target=ReplyTarget(chat=chat),
        sender=sender,
        text=f"/{menu.entry}",
        is_private=True,
        is_addressed=True,
    )
