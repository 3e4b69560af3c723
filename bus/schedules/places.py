"""Schedules in chats that people name, limited to chats in which they may use the bot."""

import logging
from collections.abc import Sequence
from dataclasses import replace

import anyio

from bus.access.checker import AccessChecker
from bus.access.policy import first_message
from bus.errors import DeliveryError
from bus.messages import ConversationKey, InboundMessage, ReplyTarget, Sender, chat_of
from bus.notifications.chat_directory import ChatDirectory
from bus.notifications.rows import key_prefix
from bus.outbound.worker import DeliveryWorker
from bus.platform import Disposition, SupportsMembership
from bus.recurrence import format_moment
from bus.schedules.schedules import ScheduleRequest, Schedules
from bus.settings.language import LanguageResolver
from store.chats import KnownChat
from store.outbox import NewOutboxRow
from store.schedules import Schedule

log = logging.getLogger(__name__)

ME = "me"
"""The agent's name for the private chat with the person who asks."""

MAX_FOUND = 200
"""Maximum number of chats with a name that contains the given one. The most recently used chats are considered."""

MAX_ASKED = 10
"""Maximum number of chats for which to ask the platform about members."""

MEMBERSHIP_S = 20.0
"""How long the platform may take to say which of them a person is in, seconds."""


class PlaceRefused(Exception):
    """A person cannot have schedules in the chat that they named. The message tells the model why."""


class Places:
    """Finds the chats, and creates schedules in them."""

    def __init__(
        self,
        *,
        delivery: DeliveryWorker,
        languages: LanguageResolver,
        access: AccessChecker,
        directory: ChatDirectory,
        schedules: Schedules,
    ) -> None:
        self._delivery = delivery
        self._languages = languages
        self._access = access
        self._directory = directory
        self._schedules = schedules

    async def find(self, asked: InboundMessage, name: str) -> InboundMessage:
        """Return the message as if its sender had written it in the named chat, outside of topics.

        To keep other chats secret, this reveals that a chat exists only if the platform says that the sender is in it.

        Args:
            asked: A person's message.
            name: The name or ID of a group of the same channel, or `ME`.

        Raises:
            PlaceRefused: There is no such chat, the sender is not in it or may not use the bot there, or the platform
                does not say whether they are in it.
            StoreError: The database cannot be used.
        """
        wanted = _compared(name)
        if wanted == ME:
            chat = await self._directory.find_private(asked.key, asked.sender.user_id)
            if chat is None:
                raise PlaceRefused(
                    "this person has not written to you in private yet: they must do so once"
                )
        else:
            chat = await self._find_group(asked, wanted)
        place = _place(asked, chat)
        if chat_of(place.key) == chat_of(asked.key):
            return asked
        sample = first_message(place.key, asked.sender, is_private=place.is_private)
        if await self._access.check(sample) is not Disposition.ACCEPTED:
            raise PlaceRefused("this person may not use you in that chat")
        return place

    async def create(self, place: InboundMessage, request: ScheduleRequest) -> Schedule:
        """Create a schedule in a chat that was found, and announce once in that chat who set it up.

        If the process is killed, either both or neither is stored. Raises like `Schedules.create`.
        """
        channel, owner = place.key.channel, place.sender
        reader = (
            place if place.is_private else replace(place, sender=Sender(user_id=""), language="")
        )
        target = replace(place.reply_target, language=str(self._languages.explain(reader).value))
        recipient = await self._directory.find_recipient(channel, place.key.chat)

        def notices(schedule: Schedule) -> list[NewOutboxRow]:
            text = target.texts.schedule_set_here.format(
                owner=owner.name or owner.user_id,
                name=schedule.name,
                moment=format_moment(schedule.next_at or 0.0, schedule.timezone),
            )
            return recipient.rows(key_prefix(channel, f"schedule:{schedule.id}:set"), [text])

        schedule = await self._schedules.create(place, request, notices)
        self._delivery.notify(recipient.conversation)
        return schedule

    async def _find_group(self, asked: InboundMessage, wanted: str) -> KnownChat:
        found = await self._directory.search_groups(asked.key, wanted, limit=MAX_FOUND)
        exact = [one for one in found if wanted in (_compared(one.title), one.chat.casefold())]
        joined = await self._joined(asked, (exact or found)[:MAX_ASKED])
        if not joined:
            raise PlaceRefused(
                "the platform shows no chat with this name that this person and you are both in and where someone has"
                " written to you; the person can ask in that chat"
            )
        if not exact or len(joined) > 1:
            names = ", ".join(f"{one.title!r} (ID {one.chat})" for one in joined)
            raise PlaceRefused(f"ask the person which chat they mean: {names}")
        return joined[0]

    async def _joined(self, asked: InboundMessage, chats: Sequence[KnownChat]) -> list[KnownChat]:
        """Return the chats that a person is in, according to the platform."""
        adapter = self._delivery.adapter(asked.key.channel)
        joined: list[KnownChat] = []
        if not isinstance(adapter, SupportsMembership):
            return joined
        with anyio.move_on_after(MEMBERSHIP_S):
            for chat in chats:
                try:
                    if await adapter.is_member(_target(asked, chat), asked.sender.user_id):
                        joined.append(chat)
                except DeliveryError as error:
                    log.info("the members of a chat are unknown: %s", error)
        return joined


def _compared(name: str) -> str:
    return " ".join(name.split()).removeprefix("#").casefold()


def _place(asked: InboundMessage, chat: KnownChat) -> InboundMessage:
    key = ConversationKey(channel=chat.channel, workspace=chat.workspace, chat=chat.chat)
    return replace(
        asked,
        key=key,
        reply_target=_target(asked, chat),
        is_private=chat.is_private,
        chat_title="" if chat.is_private else chat.title,
        topic_title="",
        original_chat="",
    )


def _target(asked: InboundMessage, chat: KnownChat) -> ReplyTarget:
    return replace(
        asked.reply_target, chat=chat.chat, thread="", reply_to="", thread_root="", response_url=""
    )
