"""What applies to a person or a room: settings with their sources, access, conversations, schedules."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from anyio import to_thread

from bus.access.policy import effective_dm_policy, first_message, pairing_id
from bus.commands.choices import Choices
from bus.commands.gateway import GatewayCommands
from bus.config import AUTO, LEAD_AGENT, ChannelPolicy, RateLimit
from bus.context import BusContext
from bus.errors import InvalidChoice
from bus.locales import LANGUAGES
from bus.messages import ConversationKey, InboundMessage, Sender, chat_of, decode_inbound
from bus.platform import Disposition
from bus.recurrence import find_zone
from bus.schedules.schedules import owner_of
from bus.settings.language import language_key, person_key
from bus.settings.memory_scope import global_room_id, global_user_id, memory_scope
from bus.settings.resolver import Setting, SettingSource
from bus.settings.sessions import InvalidSession, SessionResolver
from store.chats import KnownChat
from store.errors import RowConflict, RowNotFound
from store.inbox import InboxRow
from store.message_words import MessageFilter
from store.outbox import NEWEST
from store.pairings import Pairing
from store.people import KnownPerson
from store.schedules import Schedule

MAX_MESSAGES = 200
"""How many of the newest messages of a person or room to search for conversations and people."""

MAX_SCHEDULES = 1000
"""Maximum number of a channel's schedules to search for those of a person."""

Choice = Literal["model", "agent", "language", "timezone"]
"""The settings that can be chosen."""

AccessMeans = Literal["approved", "listed", "open", ""]
"""Why a person may use the bot: a pairing, `allowed_users`, or the channel's rule; "" = they may not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A person and their private chat with the bot, or a room.

    Attributes:
        message: A message there for which to resolve the settings. In a room, it has no particular sender.
        person: The person; None = a room.
        chat: The room, or the private chat; None = the person has not written in private.
    """

    message: InboundMessage
    person: KnownPerson | None
    chat: KnownChat | None

    @property
    def memory_scope(self) -> str:
        """Whose memory it is."""
        return memory_scope(self.message)

    @property
    def usage_id(self) -> str:
        """The ID of the person or room in the usage records."""
        message = self.message
        return global_user_id(message) if self.person else global_room_id(message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Whether a person may use the bot.

    Attributes:
        disposition: ACCEPTED, or why not.
        pairing_id: The user ID of the approval.
        pairing: The approval; None = there is none.
    """

    disposition: Disposition
    means: AccessMeans
    is_admin: bool
    pairing_id: str
    pairing: Pairing | None


class Profiles:
    """Finds people and rooms, and changes their chosen settings as the chat commands do."""

    def __init__(self, bus: BusContext) -> None:
        self._bus = bus
        self._stores = bus.stores
        self._choices = Choices(bus, GatewayCommands(bus))
        self._sessions = SessionResolver(bus.config, bus.policies, bus.settings, bus.graphs)
        self._access = bus.access

    async def find_person(self, channel: str, user_id: str, workspace: str = "") -> Profile:
        """Return a person; without `workspace`, in the one where they last wrote. Raises RowNotFound, StoreError."""
        person = await self._stores.people.find(channel, user_id, workspace=workspace)
        if person is None:
            raise RowNotFound(f"Nobody with this ID has written to the bot on {channel}.")
        workspace = person.workspace
        chat = await self._stores.chats.find(channel, chat="", person=user_id, workspace=workspace)
        if chat is not None and not chat.is_private:
            chat = None
        newest = await self._newest(channel, chat, user_id)
        place = ConversationKey(
            channel=channel, workspace=workspace, chat=chat.chat if chat else ""
        )
        sender = Sender(user_id=user_id, name=person.name)
        message = first_message(place, sender, is_private=True)
        if newest is not None:
            sender = newest.sender
            message = replace(
                newest if newest.is_private else message,
                key=place,
                sender=sender,
                language=newest.language,
                timezone=newest.timezone,
            )
        return Profile(message=message, person=person, chat=chat)

    async def find_room(self, channel: str, chat: str) -> Profile:
        """Return a group. Raises RowNotFound, StoreError."""
        found = await self._stores.chats.find(channel, chat=chat, person="")
        if found is None:
            raise RowNotFound(f"Nobody has written to the bot in this chat of {channel}.")
        newest = await self._newest(channel, found, "")
        place = ConversationKey(channel=channel, workspace=found.workspace, chat=chat)
        message = first_message(place, Sender(user_id=""), is_private=False)
        if newest is not None:
            message = replace(
                message, original_chat=newest.original_chat, chat_title=newest.chat_title
            )
        return Profile(message=message, person=None, chat=found)

    async def settings(self, profile: Profile) -> dict[str, Setting]:
        """Return all settings in force there, with their sources. Raises StoreError."""
        message = profile.message
        channel = message.key.channel
        policy = self._bus.policies.get(channel, ChannelPolicy())
        found: dict[str, Setting] = {}
        if (model := await self._choices.model(message)) is not None:
            found["model"] = model
        try:
            session = self._sessions.explain(message)
        except InvalidSession as error:
            session = {"agent": Setting(value=error.agent, source="service")}
        found["agent"] = session.pop("agent")
        found["language"] = self._bus.languages.explain(message)
        if profile.person:
            zones = self._bus.schedules.timezones
            found["timezone"] = await to_thread.run_sync(zones.explain, message)
        session.pop("model", None)
        found |= _policy_settings(policy, channel, None if profile.person else message.key.chat)
        found |= self._rate_limit(policy, channel)
        return found | dict(sorted(session.items()))

    def memory_agent(self, settings: Mapping[str, Setting]) -> str:
        """Return the custom agent whose memory applies; "" = Parley's own agent, or a graph."""
        name = str(settings["agent"].value)
        return "" if name == LEAD_AGENT or name in self._bus.graphs else name

    async def choices(self, profile: Profile) -> dict[Choice, list[str]]:
        """Return the possible choices there. Any IANA time zone can be chosen."""
        models = await self._choices.models(profile.message.key.channel)
        agents = await self._choices.agents(profile.message)
        return {"model": models or [], "agent": agents or [], "language": [*LANGUAGES, AUTO]}

    async def choose(self, profile: Profile, given: Mapping[Choice, str | None]) -> None:
        """Store choices as the commands do; None = as configured.

        Raises:
            InvalidChoice: A value cannot be chosen there.
            InvalidTimes: There is no such time zone.
            RowConflict: The person has no private chat whose model or agent could be chosen.
            StoreError: The database cannot be used.
        """
        known = await self.choices(profile)
        for name, value in given.items():
            if value is not None and name == "timezone":
                await to_thread.run_sync(find_zone, value)
            elif value is not None and value not in known[name]:
                raise InvalidChoice(f"There is no {name} {value} to choose here.")
        for name, value in given.items():
            await self._bus.settings.update(self._key_of(profile, name), **{name: value})

    def _key_of(self, profile: Profile, name: Choice) -> ConversationKey:
        """Return the key under which the command stores a choice."""
        message = profile.message
        if name == "language":
            return language_key(message)
        if name == "timezone":
            if profile.person is None:
                raise InvalidChoice("A room has no time zone.")
            return person_key(message.key, message.sender.user_id)
        if profile.chat is None:
            raise RowConflict("This person has not written to the bot in private.")
        return chat_of(message.key)

    async def access(self, profile: Profile) -> Access:
        """Return whether the person, or people in the room, may use the bot. Raises StoreError."""
        message = first_message(
            profile.message.key, profile.message.sender, is_private=profile.person is not None
        )
        policy = self._bus.policies.get(message.key.channel, ChannelPolicy())
        name = pairing_id(message)
        pairings = await self._stores.pairings.list_all()
        approved = next(
            (
                one
                for one in pairings
                if (one.channel, one.workspace, one.user_id)
                == (message.key.channel, message.key.workspace, name)
                and one.approved_at is not None
            ),
            None,
        )
        disposition = await self._access.check(message)
        means: AccessMeans = ""
        if disposition is Disposition.ACCEPTED:
            rule = effective_dm_policy(policy) if profile.person else policy.group_policy
            is_listed = message.sender.user_id in policy.allowed_users
            means = "listed" if is_listed and rule != "open" else "open"
            if rule == "pairing" and not is_listed:
                means = "approved"
        return Access(
            disposition=disposition,
            means=means,
            is_admin=self._access.is_admin(message.key.channel, message.sender),
            pairing_id=name,
            pairing=approved,
        )

    async def messages(self, profile: Profile) -> list[InboxRow]:
        """Return the newest messages from the person, or in the room. Raises StoreError."""
        key, person = profile.message.key, profile.person
        wanted = MessageFilter(
            channel=key.channel,
            person=person.user_id if person else "",
            chat="" if person else key.chat,
        )
        return await self._stores.words.list_messages(wanted, limit=MAX_MESSAGES, before=NEWEST)

    async def schedules(self, profile: Profile) -> list[Schedule]:
        """Return the schedules of the person in all chats, or the schedules of the room. Raises StoreError."""
        key, person = profile.message.key, profile.person
        found = await self._bus.schedules.list_all(
            channel=key.channel, chat="" if person else key.chat, limit=MAX_SCHEDULES, offset=0
        )
        return [
            one for one in found if not person or owner_of(one).sender.user_id == person.user_id
        ]

    async def _newest(
        self, channel: str, chat: KnownChat | None, user_id: str
    ) -> InboundMessage | None:
        """Return the newest message of a chat, or else of a person; None = there is none, or it is damaged."""
        row = await self._stores.inbox.find_newest(channel, chat.chat) if chat else None
        if row is None and user_id:
            wanted = MessageFilter(channel=channel, person=user_id)
            found = await self._stores.words.list_messages(wanted, limit=1, before=NEWEST)
            row = next(iter(found), None)
        try:
            return None if row is None else decode_inbound(row.body)
        except ValueError:
            return None

    def _rate_limit(self, policy: ChannelPolicy, channel: str) -> dict[str, Setting]:
        found: dict[str, Setting] = {}
        for name in RateLimit.model_fields:
            own, every = getattr(policy.rate_limit, name), self._bus.config.rate_limit
            is_own = own is not None
            is_given = (
                "rate_limit" in policy.model_fields_set
                if is_own
                else name in every.model_fields_set
            )
            given: SettingSource = "channel" if is_own else "service"
            found[f"rate_limit.{name}"] = Setting(
                value=own if is_own else getattr(every, name),
                source=given if is_given else "default",
                key=f"channels.{channel}.rate_limit.{name}"
                if is_own
                else f"channels.rate_limit.{name}",
            )
        return found


def _policy_settings(policy: ChannelPolicy, channel: str, chat: str | None) -> dict[str, Setting]:
    """Return the rules of a channel that apply in private (`chat` is None) or in a chat."""

    def own(name: str) -> Setting:
        source: SettingSource = "channel" if name in policy.model_fields_set else "default"
        return Setting(value=getattr(policy, name), source=source, key=f"channels.{channel}.{name}")

    if chat is None:
        rule = own("dm_policy")
        listed = own("allowed_users")
        if rule.source == "default" and listed.value:
            rule = listed
        rule = replace(rule, value=effective_dm_policy(policy))
        return {"dm_policy": rule, "external_policy": own("external_policy")}
    followups = own("thread_followups")
    override = policy.chats.get(chat)
    if override is not None and override.thread_followups:
        key = f"channels.{channel}.chats.{chat}.thread_followups"
        followups = Setting(value=override.thread_followups, source="room", key=key)
    return {
        "group_policy": own("group_policy"),
        "thread_followups": followups,
        "external_policy": own("external_policy"),
    }
