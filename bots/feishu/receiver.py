"""Hands events to the bus, and says whether the platform may forget them."""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar, assert_never

import anyio

from bots.common.keyed_lock import KeyedLock
from bots.feishu.api import FeishuBot
from bots.feishu.buttons import toast
from bots.feishu.events import CHANNEL, ChatEntered, MenuClick
from bots.feishu.greeting import FeishuGreeting
from bots.feishu.inbound import FeishuEvent, IgnoredFeishuEvent, parse_event
from bots.feishu.media_groups import FeishuMediaGroups
from bots.feishu.private_chats import PrivateChats
from bus.errors import IntakeClosed, IntakeFull
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

_log: Final = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class EventAck:
    """What the platform is told of an event.

    Attributes:
        accepted: Whether it may forget the event; else it sends it again.
        response: What it shows to who pressed a button; empty = nothing.
    """

    accepted: bool
    response: Mapping[str, object] = field(default_factory=dict)


ACCEPTED: Final = EventAck(accepted=True)
RETRY: Final = EventAck(accepted=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiverContext:
    """What events are acted on with.

    Attributes:
        private_chats: Which chats are private, learned here.
        greeting: Says hello.
        commands: Names of the commands that a menu may call.
        language: In which something is said at once, where nothing tells; "" = English.
        press_s: A press is answered within this, well or badly.
    """

    private_chats: PrivateChats
    greeting: FeishuGreeting
    commands: Collection[str] = ()
    language: str = ""
    press_s: float = 2.0


class FeishuReceiver:
    """Takes messages one chat at a time, in the order of their arrival; different chats, and presses, at once."""

    def __init__(self, intake: Intake, bot: FeishuBot, around: ReceiverContext) -> None:
        self._intake = intake
        self._bot = bot
        self._context = around
        self._lanes = KeyedLock()
        self._bundles = FeishuMediaGroups()

    async def handle(self, payload: bytes) -> EventAck:
        """Act on an event, and return what the platform is to be told."""
        event = parse_event(payload, self._bot)
        try:
            return await self._dispatch(event)
        except (IntakeFull, IntakeClosed) as error:
            _log.warning("an event was not taken, it will come again: %s", error)
        except Exception:  # noqa: BLE001 - one event's boundary: the platform still has it
            _log.exception("an event was not stored, it will come again")
        return RETRY

    async def _dispatch(self, event: FeishuEvent) -> EventAck:
        match event:
            case IgnoredFeishuEvent():
                self._intake.report_ignored(CHANNEL, event.reason, event.detail)
            case InboundMessage():
                await self._handle_message(event)
            case MessageDeletion():
                await self._in_lane(event.key.chat, self._intake.handle_deletion, event)
            case ButtonPress():
                return EventAck(accepted=True, response=toast(await self._handle_press(event)))
            case ChatEntered():
                await self._handle_chat_entered(event)
            case MenuClick():
                await self._handle_menu_click(event)
            case _:
                assert_never(event)
        return ACCEPTED

    async def _handle_message(self, message: InboundMessage) -> None:
        self._context.private_chats.remember_message(message)
        await self._in_lane(
            message.key.chat, self._intake.receive, self._bundles.assign_album(message)
        )

    async def _in_lane(
        self, chat: str, hand_over: Callable[[T], Awaitable[Disposition]], event: T
    ) -> None:
        async with self._lanes.hold(chat):
            await hand_over(event)

    async def _handle_press(self, press: ButtonPress) -> PressResponse:
        """Act on a press. The platform does not repeat one: what was not kept has to be pressed again."""
        try:
            with anyio.fail_after(self._context.press_s):
                return await self._intake.handle_button_press(press)
        except TimeoutError:
            _log.warning("a press was not taken in time")
        except (IntakeFull, IntakeClosed) as error:
            _log.warning("a press was not taken: %s", error)
        except Exception:  # noqa: BLE001 - as in `handle`; here a person waits
            _log.exception("a press was not taken")
        return PressResponse(text=messages_for(self._context.language).press_again, urgent=True)

    async def _handle_chat_entered(self, arrival: ChatEntered) -> None:
        if arrival.private and arrival.person:
            self._context.private_chats.remember(arrival.chat, arrival.person)
        await self._context.greeting.greet(arrival)

    async def _handle_menu_click(self, menu: MenuClick) -> None:
        """Run the command that an entry of the menu names, as if the person had typed it."""
        if menu.entry.partition(" ")[0] not in self._context.commands:
            detail = f"the menu's entry {menu.entry[:40]!r} names no command"
            self._intake.report_ignored(CHANNEL, Disposition.UNSUPPORTED, detail)
            return
        known = self._context.private_chats.chat_with(menu.person)
        if known is None:
            await self._context.greeting.explain_menu(menu)
            return
        await self._handle_message(_menu_command(menu, *known))


def _menu_command(menu: MenuClick, chat: str, sender: Sender) -> InboundMessage:
    key = ConversationKey(channel=CHANNEL, workspace=menu.workspace, chat=chat, topic="")
    return InboundMessage(
        event_id=menu.event_id,
        message_id="",
        key=key,
        reply_target=ReplyTarget(chat=chat),
        sender=sender,
        text=f"/{menu.entry}",
        private=True,
        addressed=True,
    )
