"""Names of people and groups, because Feishu's events and messages contain only IDs."""

import logging
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import anyio

from bots.feishu.api import FeishuApi
from bots.feishu.content import mentioned_people
from bots.feishu.errors import FeishuError
from bots.feishu.json_node import JsonNode
from bots.feishu.people import YOU
from bus.bounded import BoundedDict

log = logging.getLogger(__name__)

FRESH_S = 3600.0
"""How long a found name is used, and how long a missing name is not looked up again, seconds."""

_MAX_NAMES = 20_000
_MAX_GROUPS = 1_000
_MAX_GROUPS_ASKED = 5
_MAX_PAGES = 50
_MAX_PEOPLE_ASKED = 50
"""Maximum number of people per call. This is the platform's limit."""


@dataclass(slots=True)
class _Roster:
    """How far a group's members have been read. The token is the next page's; None = all members were read."""

    page_token: str | None
    expires_at: float


class FeishuDirectory:
    """Finds names by ID.

    Sources: messages, which contain the names of mentioned people and, if the app may read them, of their authors; the
    members of a group (scope `im:chat:readonly` or `im:chat.members:read`); the contacts
    (`contact:contact.base:readonly` with `contact:user.base:readonly`); and groups (`im:chat:readonly` or
    `im:chat:read`). All scopes are optional. Without them, names stay unknown.

    Args:
        api: Groups and contacts.
        app_id: Author of the bot's own messages.
        clock: Monotonic, seconds.
    """

    def __init__(
        self, api: FeishuApi, app_id: str, clock: Callable[[], float] = anyio.current_time
    ) -> None:
        self._api = api
        self._own = {app_id: YOU}
        self._clock = clock
        self._names = BoundedDict[str, str](_MAX_NAMES)
        self._fresh_until = BoundedDict[str, float](_MAX_NAMES)
        self._rosters = BoundedDict[str, _Roster](_MAX_GROUPS)

    @property
    def names(self) -> Mapping[str, str]:
        """Names by ID; "" = unavailable, `YOU` = the bot's app."""
        return ChainMap(self._own, self._names)

    def learn(self, names: Mapping[str, str]) -> None:
        """Remember names."""
        for key, name in names.items():
            if key and name:
                self._names[key] = name
                self._fresh_until[key] = self._clock() + FRESH_S

    def learn_from(self, messages: Iterable[JsonNode]) -> None:
        """Remember the names in messages of an event or the API."""
        for message in messages:
            self.learn(mentioned_people(message))
            sender = message["sender"]
            self.learn({sender.text("id"): sender.text("sender_name")})

    def lacks(self, key: str) -> bool:
        """Return whether to ask for a name."""
        return self._clock() >= self._fresh_until.get(key, 0.0)

    async def look_up(self, keys: Iterable[str], group: str = "") -> None:
        """Look up unknown names. Raises nothing. May be canceled at any time.

        Args:
            keys: IDs of people and groups. Others are ignored.
            group: The group that the people may be members of; "" = none.
        """
        wanted = list(dict.fromkeys(key for key in keys if self.lacks(key)))
        groups = [key for key in wanted if key.startswith("oc_")]
        for key in groups[:_MAX_GROUPS_ASKED]:
            await self._ask_group(key)
        people = [key for key in wanted if key.startswith("ou_")]
        if people and group:
            await self._read_members(group, people)
        people = [key for key in people if self.lacks(key)]
        if people:
            await self._ask_contacts(people[:_MAX_PEOPLE_ASKED])

    def give_up(self, keys: Iterable[str]) -> None:
        """Mark names as unavailable for now. Keeps names that are already known."""
        for key in keys:
            self._names.setdefault(key, "")
            self._fresh_until[key] = self._clock() + FRESH_S

    async def _ask_group(self, group: str) -> None:
        try:
            name = await self._api.get_chat_name(group)
        except FeishuError as error:
            self._note_failure(error, [group])
            return
        self.learn({group: name})
        self.give_up([] if name else [group])

    async def _read_members(self, group: str, people: Sequence[str]) -> None:
        """Read a group's members until all the people are found. Starts where the last reading ended."""
        roster = self._rosters.get(group)
        if roster is None or self._clock() >= roster.expires_at:
            roster = self._rosters[group] = _Roster("", self._clock() + FRESH_S)
        while roster.page_token is not None and any(map(self.lacks, people)):
            try:
                page = await self._api.list_members(group, roster.page_token)
            except FeishuError as error:
                log.info("the members of a group cannot be read: %s", error)
                roster.page_token = roster.page_token if error.retryable else None
                return
            self.learn(page.names)
            roster.page_token = page.page_token or None

    async def is_member(self, group: str, person: str) -> bool | None:
        """Return whether a person is in a group; None = the group is too large to tell, or hides its members.

        Raises FeishuError; `place_gone` is `chat` if the group or the bot's place in it is gone.
        """
        page_token, count = "", 0
        for _ in range(_MAX_PAGES):
            page = await self._api.list_members(group, page_token)
            if person in page.names:
                return True
            count += len(page.names)
            page_token = page.page_token
            if not page_token:
                return False if count else None
        return None

    async def _ask_contacts(self, people: Sequence[str]) -> None:
        try:
            names = await self._api.list_users(people)
        except FeishuError as error:
            self._note_failure(error, people)
            return
        self.learn(names)
        self.give_up(key for key in people if self.lacks(key))

    def _note_failure(self, error: FeishuError, keys: Iterable[str]) -> None:
        log.info("names cannot be looked up: %s", error)
        if not error.retryable:
            self.give_up(keys)
