"""Direct messages with one person, for notifications and for answers that a command's response_url does not accept."""

from dataclasses import replace

from bots.slack.api import SlackApi
from bots.slack.errors import SlackError, error_from_status
from bots.slack.payload import as_mapping, as_str, split_recipient
from bus.bounded import BoundedDict
from bus.messages import ReplyTarget

_PEOPLE = ("U", "W")
"""First letters of people's IDs. The IDs of channels, groups and direct messages begin with C, G and D."""

_KEPT = 1_000
"""Maximum number of people whose direct messages to remember."""


class DirectMessages:
    """Finds the direct messages with a person.

    The answer to a command in a channel is only for the command's author, so it must not appear in that channel.
    """

    def __init__(self, api: SlackApi) -> None:
        self._api = api
        self._known = BoundedDict[tuple[str, str], str](_KEPT)

    async def resolve(self, target: ReplyTarget) -> ReplyTarget:
        """Replace a target that names a person with their direct messages. Return other targets unchanged.

        Raises:
            SlackError: Never ambiguous.
        """
        return await self.target_for(target) if target.chat.startswith(_PEOPLE) else target

    async def target_for(self, target: ReplyTarget) -> ReplyTarget:
        """Return the direct messages with the author of a command. Raises SlackError, never ambiguous."""
        user = split_recipient(target.user)[2]
        if not user:  # A version that did not store it wrote this row.
            raise SlackError("Slack accepts no more answers to this command.")
        person = (self._api.workspace, user)
        if person not in self._known:
            self._known[person] = await self._open(user)
        return replace(target, chat=self._known[person], thread="", reply_to="", response_url="")

    async def _open(self, user: str) -> str:
        try:
            answer = await self._api.call(lambda web: web.conversations_open(users=user))
        except SlackError as error:
            error.ambiguous = False  # Nothing has been sent yet.
            raise
        chat = as_str(as_mapping(answer.get("channel")).get("id"))
        if not chat:
            raise error_from_status(502, {})
        return chat
