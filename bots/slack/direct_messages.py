"""Direct messages of the bot with one person: where answers to a command go that its response_url cannot take."""

from dataclasses import replace

from bots.slack.api import SlackApi
from bots.slack.errors import SlackError, error_from_status
from bots.slack.payload import as_mapping, as_str, split_recipient
from bus.bounded import BoundedDict
from bus.messages import ReplyTarget

_KEPT = 1_000
"""People whose direct messages are remembered."""


class DirectMessages:
    """Finds direct messages.

    What answers a command in a channel is for its author alone, so nothing of it may be said in that channel.
    """

    def __init__(self, api: SlackApi) -> None:
        self._api = api
        self._known = BoundedDict[tuple[str, str], str](_KEPT)

    async def target_for(self, target: ReplyTarget) -> ReplyTarget:
        """Return the direct messages with the author of a command. Raises SlackError, never ambiguous."""
        user = split_recipient(target.user)[2]
        if not user:  # stored by a version that did not note it
            raise SlackError("Slack takes no more answers to this command.")
        person = (self._api.workspace, user)
        if person not in self._known:
            self._known[person] = await self._open(user)
        return replace(target, chat=self._known[person], thread="", reply_to="", response_url="")

    async def _open(self, user: str) -> str:
        try:
            answer = await self._api.call(lambda web: web.conversations_open(users=user))
        except SlackError as error:
            error.ambiguous = False  # Nothing was said yet.
            raise
        chat = as_str(as_mapping(answer.get("channel")).get("id"))
        if not chat:
            raise error_from_status(502, {})
        return chat
