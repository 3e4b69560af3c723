"""Looks up names of people, channels and user groups by ID (conversations.info, usergroups.list)."""

import logging
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

import anyio
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from bots.slack.api import SlackApi
from bots.slack.connection import SlackTimeouts
from bots.slack.errors import SlackError
from bots.slack.mentions import marked_ids, plain, put_names, unique_names
from bots.slack.payload import as_list, as_mapping, as_str
from bots.slack.users import FRESH_S, LOOKUP_S, UNNAMED_S, SlackUserDirectory
from bus.bounded import BoundedDict
from bus.messages import InboundMessage

log = logging.getLogger(__name__)

MOST_NAMES = 50
"""Maximum number of names to look up for a message. The others are shown as IDs."""

_AT_ONCE = 10
_KEPT = 10_000
_PEOPLE = ("U", "W")
_CHANNELS = ("C", "G", "D")
_CHANNEL_SCOPES = frozenset({"channels:read", "groups:read"})
_GROUP_SCOPES = frozenset({"usergroups:read"})


class SlackNames:
    """Replaces the reader's marks (mentions.py) with names, and adds the name of the channel.

    conversations.info is a tier 3 method (50 calls per minute), and usergroups.list a tier 2 method (20 calls per
    minute). Responses are therefore cached, even if they contain no name. Without a name, the ID is shown.

    Args:
        api: Slack's Web API.
        users: Looks up people.
        timeouts: Only `names_s` is used.
    """

    def __init__(self, api: SlackApi, users: SlackUserDirectory, timeouts: SlackTimeouts) -> None:
        self._api = api
        self._users = users
        self._timeouts = timeouts
        self._channels = BoundedDict[tuple[str, str], tuple[str, float]](_KEPT)
        self._groups = BoundedDict[str, tuple[Mapping[str, str], float]](_KEPT)
        self._listing = anyio.Lock()

    async def add(self, message: InboundMessage, *, give_up_at: float) -> InboundMessage:
        """Return a message with the names that are available in time. Raises nothing."""
        author = message.sender.user_id
        marked = [one for one in marked_ids((message.text, message.quoted)) if one != author]
        chat = [] if message.is_private else [message.key.chat]
        names = {target: self._known(target) for target in (*chat, *marked)}
        if names:
            await self._look_up(names, (*chat, *marked[:MOST_NAMES]), give_up_at)
        title = names[chat[0]] if chat else ""
        shown = {one: names[one] for one in marked} | {author: message.sender.name}
        return replace(_named(message, shown), chat_title=title)

    async def _look_up(
        self, names: dict[str, str], targets: Iterable[str], give_up_at: float
    ) -> None:
        """Look up the names of targets, and add those that arrive in time to `names`."""
        limiter = anyio.CapacityLimiter(_AT_ONCE)

        async def look_up(target: str) -> None:
            async with limiter:
                names[target] = await self._name_of(target)

        with anyio.move_on_after(min(self._timeouts.names_s, give_up_at - anyio.current_time())):
            async with anyio.create_task_group() as tasks:
                for target in targets:
                    tasks.start_soon(look_up, target)

    def without_lookup(self, message: InboundMessage) -> InboundMessage:
        """Return a message with names that are already known. Used for messages that are not for the bot."""
        marked = marked_ids((message.text, message.quoted))
        return _named(message, {target: self._known(target) for target in marked})

    def _known(self, target: str) -> str:
        """Return a name without a lookup; "" = unknown."""
        installation = self._api.known_identity.installation
        if target.startswith(_CHANNELS):
            return self._channels.get((installation, target), ("", 0.0))[0]
        if target.startswith("S"):
            return self._groups.get(installation, ({}, 0.0))[0].get(target, "")
        return self._users.known_name(target)

    async def _name_of(self, target: str) -> str:
        """Return the name of a person, channel or user group; "" = unavailable now. Raises nothing."""
        if target.startswith(_PEOPLE):
            return await self._users.name_of(target)
        if target.startswith(_CHANNELS):
            return await self._channel(target)
        return await self._group(target) if target.startswith("S") else ""

    async def _channel(self, channel: str) -> str:
        """Return the name of a channel. Conversations of a few people have none."""
        key, now = (self._api.known_identity.installation, channel), anyio.current_time()
        name, good_until = self._channels.get(key, ("", 0.0))
        if now < good_until or not self._may(_CHANNEL_SCOPES):
            return name

        async def ask(web: AsyncWebClient) -> AsyncSlackResponse:
            return await web.conversations_info(channel=channel)

        answer = await self._ask(ask)
        if answer is not None:
            found = as_mapping(answer.get("channel"))
            is_unnamed = found.get("is_im") is True or found.get("is_mpim") is True
            name = "" if is_unnamed else plain(as_str(found.get("name")))
        self._channels[key] = (name, now + (UNNAMED_S if answer is None else FRESH_S))
        return name

    async def _group(self, group: str) -> str:
        """Return the handle of a user group. One call returns all handles."""
        installation = self._api.known_identity.installation
        async with self._listing:
            names, asked_at = self._groups.get(installation, ({}, -FRESH_S))
            age_s = anyio.current_time() - asked_at
            is_fresh = age_s < (FRESH_S if group in names else UNNAMED_S)
            if is_fresh or not self._may(_GROUP_SCOPES):
                return names.get(group, "")

            async def ask(web: AsyncWebClient) -> AsyncSlackResponse:
                return await web.usergroups_list()

            answer = await self._ask(ask)
            if answer is not None:
                groups = map(as_mapping, as_list(answer.get("usergroups")))
                names = {
                    as_str(one.get("id")): plain(
                        as_str(one.get("handle")) or as_str(one.get("name"))
                    )
                    for one in groups
                }
            self._groups[installation] = (names, anyio.current_time())
            return names.get(group, "")

    def _may(self, scopes: Collection[str]) -> bool:
        """Return whether the app has one of these scopes, or may have it."""
        granted = self._api.known_identity.scopes
        return granted is None or any(scope in granted for scope in scopes)

    async def _ask(
        self, request: Callable[[AsyncWebClient], Awaitable[AsyncSlackResponse]]
    ) -> Mapping[str, Any] | None:
        try:
            answer = await self._api.call(request, timeout_s=LOOKUP_S)
        except SlackError as error:
            log.info("%s: a name cannot be looked up: %s", self._api.channel, error)
            return None
        return as_mapping(answer.data)


def _named(message: InboundMessage, names: Mapping[str, str]) -> InboundMessage:
    shown = unique_names(names)
    return replace(
        message,
        text=put_names(message.text, shown),
        quoted=put_names(message.quoted, shown),
    )
