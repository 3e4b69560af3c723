"""Looks up Slack users: names, time zones, and kind (member, guest or external), with users.info and users.list."""

import logging
from collections.abc import Mapping
from typing import Any

import anyio
from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from bots.slack.api import SlackApi
from bots.slack.errors import SlackError
from bots.slack.payload import SlackIdentity, as_list, as_mapping, as_str
from bus.bounded import BoundedDict
from bus.characters import clean
from bus.messages import SenderKind

log = logging.getLogger(__name__)

FRESH_S = 3600.0
"""How long to use a response, seconds. An older response is used only while Slack cannot be reached."""

UNNAMED_S = 60.0
"""Delay before a name that could not be looked up is looked up again, seconds."""

LOOKUP_S = 1.5
"""Time limit of one lookup, seconds. The event must be acknowledged within 3 s."""

MAX_WAIT_S = 120.0
"""How long lookups wait while Slack limits their rate and the list of people does not help, seconds.

Meanwhile the events stay unacknowledged, and events that Slack sends again wait for the first lookup.
"""

LIST_PAGE = 1000
"""Number of people per page of users.list, Slack's maximum."""

LIST_PAGE_S = 10.0
"""Time limit of one such call, seconds."""

LIST_EVERY_S = 60.0
"""Minimum time between two readings of the list, seconds. users.list is a tier 2 method (20 calls per minute)."""

_MAX_USERS = 10_000
_NOT_VISIBLE = frozenset({"user_not_found", "user_not_visible", "users_not_found"})


class SlackUserDirectory:
    """Looks up the kind and the name of users.

    users.info is a tier 4 method (100 calls per minute). If more people write, as after a restart, when nobody is
    known, the list of all people is read, with one call per 1,000 people.
    """

    def __init__(self, api: SlackApi) -> None:
        self._api = api
        self._known = BoundedDict[tuple[str, str], tuple[SenderKind, float]](_MAX_USERS)
        self._names = BoundedDict[tuple[str, str], str](_MAX_USERS)
        self._zones = BoundedDict[tuple[str, str], str](_MAX_USERS)
        self._unnamed = BoundedDict[tuple[str, str], float](_MAX_USERS)
        self._cannot_look_up = False
        self._listing = anyio.Lock()
        self._listed_at: dict[str, float] = {}

    async def kind_of(self, user_id: str) -> SenderKind:
        """Return the kind of a user; "unknown" if the app may not look it up.

        Raises:
            SlackError: Slack did not respond, and the kind is not known yet. The event is not acknowledged, so Slack
                resends it.
        """
        now = anyio.current_time()
        person = (self._api.known_identity.installation, user_id)
        known = self._known.get(person)
        if known is not None and now - known[1] < FRESH_S:
            return known[0]
        try:
            kind = await self._look_up(user_id, give_up_at=now if known else now + MAX_WAIT_S)
        except SlackError as error:
            if error.code in _NOT_VISIBLE:
                kind = "external"
            elif known is not None:
                return known[0]
            elif error.retryable and not error.token_refused:
                raise
            else:
                self._warn(error)
                return "unknown"
        self._known[person] = (kind, now)
        return kind

    async def name_of(self, user_id: str) -> str:
        """Return a person's name; "" = unavailable now. Raises nothing."""
        if name := self.known_name(user_id):
            return name
        person, now = (self._api.known_identity.installation, user_id), anyio.current_time()
        if now - self._unnamed.get(person, -UNNAMED_S) >= UNNAMED_S:
            try:
                await self._ask(user_id)
            except SlackError as error:
                log.info("%s: a name cannot be looked up: %s", self._api.channel, error)
            if not self.known_name(user_id):
                self._unnamed[person] = now
        return self.known_name(user_id)

    def known_name(self, user_id: str) -> str:
        """Return a person's name without a lookup; "" = unknown."""
        me = self._api.known_identity
        return me.name if user_id == me.user_id else self._names.get((me.installation, user_id), "")

    def known_timezone(self, user_id: str) -> str:
        """Return a person's time zone (IANA) without a lookup; "" = unknown."""
        return self._zones.get((self._api.known_identity.installation, user_id), "")

    async def _look_up(self, user_id: str, *, give_up_at: float) -> SenderKind:
        """Look up one person. Retries while Slack limits the rate.

        While it waits, it reads the list of all people. Raises SlackError.
        """
        while True:
            try:
                return classify(await self._ask(user_id), self._api.known_identity)
            except SlackError as error:
                if error.code != "ratelimited" or error.retry_after_s is None:
                    raise
                again_at = anyio.current_time() + error.retry_after_s
                if again_at > give_up_at:
                    raise
            await self._read_list()
            if listed := self._known.get((self._api.known_identity.installation, user_id)):
                return listed[0]
            await anyio.sleep_until(again_at)

    async def _ask(self, user_id: str) -> Mapping[str, Any]:
        """Look up one person once, and cache the name. Raises SlackError."""
        answer = await self._api.call(lambda web: web.users_info(user=user_id), timeout_s=LOOKUP_S)
        user = as_mapping(answer.get("user"))
        person = (self._api.known_identity.installation, user_id)
        self._names[person] = display_name(user)
        self._zones[person] = clean(as_str(user.get("tz")))
        return user

    async def _read_list(self) -> None:
        """Read the list of all people, unless that was tried recently or Slack does not permit it."""
        me = self._api.known_identity
        if me.is_org_install:
            # An organization has one list per workspace, and events do not always contain the workspace.
            return
        async with self._listing:
            now = anyio.current_time()
            if now - self._listed_at.get(me.installation, -LIST_EVERY_S) < LIST_EVERY_S:
                return
            self._listed_at[me.installation] = now
            try:
                await self._read_pages(me, now)
            except SlackError as error:
                log.info("%s: the list of people was not read: %s", self._api.channel, error)

    async def _read_pages(self, me: SlackIdentity, now: float) -> None:
        cursor = ""

        async def read(web: AsyncWebClient) -> AsyncSlackResponse:
            return await web.users_list(limit=LIST_PAGE, cursor=cursor)

        for _ in range(_MAX_USERS // LIST_PAGE):
            answer = await self._api.call(read, timeout_s=LIST_PAGE_S)
            for user in map(as_mapping, as_list(answer.get("members"))):
                person = (me.installation, as_str(user.get("id")))
                self._known[person] = (classify(user, me), now)
                self._names[person] = display_name(user)
                self._zones[person] = clean(as_str(user.get("tz")))
            cursor = as_str(as_mapping(answer.get("response_metadata")).get("next_cursor"))
            if not cursor:
                return

    def _warn(self, error: SlackError) -> None:
        if not self._cannot_look_up:
            text = "%s: members and guests cannot be distinguished: %s"
            log.warning(text, self._api.channel, error.user_message)
        self._cannot_look_up = True


def classify(user: Mapping[str, Any], me: SlackIdentity) -> SenderKind:
    """Return the kind of the person in a user object (docs.slack.dev/reference/objects/user-object). Pure.

    >>> me = SlackIdentity(team_id="T1", user_id="UBOT", bot_id="BBOT")
    >>> classify({"id": "U1", "team_id": "T1", "is_restricted": True}, me)
    'guest'
    >>> classify({"id": "U1", "team_id": "T2"}, me)
    'external'
    """
    organization = as_str(as_mapping(user.get("enterprise_user")).get("enterprise_id"))
    is_colleague = bool(organization) and organization == me.enterprise_id
    team = as_str(user.get("team_id"))
    if not user or not (team or organization):
        return "unknown"
    if user.get("is_stranger") is True or not (is_colleague or team == me.team_id):
        return "external"
    if user.get("is_restricted") is True or user.get("is_ultra_restricted") is True:
        return "guest"
    return "member"


def display_name(user: Mapping[str, Any]) -> str:
    """Return the display name in a user object; "" = none. Pure.

    >>> display_name({"name": "ann", "profile": {"display_name": "", "real_name": "Ann Li"}})
    'Ann Li'
    """
    profile = as_mapping(user.get("profile"))
    names = (profile.get("display_name"), profile.get("real_name"), user.get("name"))
    return clean(next((name for name in map(as_str, names) if name), ""))
