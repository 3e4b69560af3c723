"""Hands events to the bus, and says whether the platform may forget them."""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeVar, assert_never

import anyio

from bots.feishu.api import Bot
from bots.feishu.bundles import Bundles
from bots.feishu.chats import Chats
from bots.feishu.happenings import CHANNEL, Arrival, Menu
from bots.feishu.inbound import Event, Ignored, read_event
from bots.feishu.presses import toast
from bots.feishu.welcome import Welcome
from bots.lanes import Lanes
from bus.errors import IntakeClosed, IntakeFull
from bus.locales import texts
from bus.messages import (
    ButtonPress,
    Change,
    ConversationKey,
    InboundMessage,
    PressResponse,
    ReplyTarget,
    Sender,
)
from bus.platform import Intake, Reason

_log: Final = logging.getLogger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What the platform is told of an event.

    Attributes:
        done: Whether it may forget the event; else it sends it again.
        answer: What it shows to who pressed a button; empty = nothing.
    """

    done: bool
    answer: Mapping[str, object] = field(default_factory=dict)


DONE: Final = Verdict(done=True)
AGAIN: Final = Verdict(done=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What events are acted on with.

    Attributes:
        chats: Which chats are private, learned here.
        welcome: Says hello.
        commands: Names of the commands that a menu may call.
        language: In which something is said at once, where nothing tells; "" = English.
        press_s: A press is answered within this, well or badly.
    """

    chats: Chats
    welcome: Welcome
    commands: Collection[str] = ()
    language: str = ""
    press_s: float = 2.0


class Receiver:
    """Takes messages one chat at a time, in the order of their arrival; different chats, and presses, at once."""

    def __init__(self, intake: Intake, bot: Bot, around: Surroundings) -> None:
        self._intake = intake
        self._bot = bot
        self._around = around
        self._lanes = Lanes()
        self._bundles = Bundles()

    async def handle(self, payload: bytes) -> Verdict:
        """Act on an event, and return what the platform is to be told."""
        event = read_event(payload, self._bot)
        try:
            return await self._act(event)
        except (IntakeFull, IntakeClosed) as error:
            _log.warning("an event was not taken, it will come again: %s", error)
        except Exception:  # noqa: BLE001 - one event's boundary: the platform still has it
            _log.exception("an event was not stored, it will come again")
        return AGAIN

    async def _act(self, event: Event) -> Verdict:
        match event:
            case Ignored():
                self._intake.ignored(CHANNEL, event.reason, event.detail)
            case InboundMessage():
                await self._received(event)
            case Change():
                await self._in_lane(event.key.chat, self._intake.change, event)
            case ButtonPress():
                return Verdict(done=True, answer=toast(await self._pressed(event)))
            case Arrival():
                await self._arrived(event)
            case Menu():
                await self._clicked(event)
            case _:
                assert_never(event)
        return DONE

    async def _received(self, message: InboundMessage) -> None:
        self._around.chats.heard(message)
        await self._in_lane(message.key.chat, self._intake.receive, self._bundles.bound(message))

    async def _in_lane(
        self, chat: str, hand_over: Callable[[T], Awaitable[Reason]], event: T
    ) -> None:
        async with self._lanes.lane(chat):
            await hand_over(event)

    async def _pressed(self, press: ButtonPress) -> PressResponse:
        """Act on a press. The platform does not repeat one: what was not kept has to be pressed again."""
        try:
            with anyio.fail_after(self._around.press_s):
                return await self._intake.press(press)
        except TimeoutError:
            _log.warning("a press was not taken in time")
        except (IntakeFull, IntakeClosed) as error:
            _log.warning("a press was not taken: %s", error)
        except Exception:  # noqa: BLE001 - as in `handle`; here a person waits
            _log.exception("a press was not taken")
        return PressResponse(text=texts(self._around.language).press_again, urgent=True)

    async def _arrived(self, arrival: Arrival) -> None:
        if arrival.private and arrival.person:
            self._around.chats.met(arrival.chat, arrival.person)
        await self._around.welcome.greet(arrival)

    async def _clicked(self, menu: Menu) -> None:
        """Run the command that an entry of the menu names, as if the person had typed it."""
        if menu.entry.partition(" ")[0] not in self._around.commands:
            detail = f"the menu's entry {menu.entry[:40]!r} names no command"
            self._intake.ignored(CHANNEL, Reason.UNSUPPORTED, detail)
            return
        chat = self._around.chats.of(menu.person)
        if not chat:
            await self._around.welcome.explain(menu)
            return
        await self._received(_typed(menu, chat))


def _typed(menu: Menu, chat: str) -> InboundMessage:
    key = ConversationKey(channel=CHANNEL, workspace=menu.workspace, chat=chat, topic="")
    return InboundMessage(
        event_id=menu.event_id,
        message_id="",
        key=key,
        place=ReplyTarget(chat=chat),
        sender=Sender(user_id=menu.person),
        text=f"/{menu.entry}",
        private=True,
        addressed=True,
    )
