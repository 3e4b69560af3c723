"""Asks Slack whether a person is in a channel (conversations.members)."""

from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from bots.slack.api import SlackApi
from bots.slack.payload import as_mapping, as_str
from bus.errors import DeliveryError

PAGE = 1000
"""Number of members per page, Slack's maximum."""

MAX_PAGES = 10
"""Maximum number of pages to read. In a larger channel, nobody is reported as missing."""


async def is_member(api: SlackApi, channel: str, person: str) -> bool | None:
    """Return whether a person is in a channel; None = it is too large to tell.

    Raises DeliveryError; `place_gone` is `chat` if the channel or the bot's place in it is gone.
    """
    bot = (await api.identity()).user_id
    wanted, cursor = {person, bot}, ""
    for _ in range(MAX_PAGES):

        async def ask(web: AsyncWebClient, after: str = cursor) -> AsyncSlackResponse:
            return await web.conversations_members(channel=channel, limit=PAGE, cursor=after)

        answer = await api.call(ask)
        wanted -= {str(one) for one in answer.get("members") or ()}
        cursor = as_str(as_mapping(answer.get("response_metadata")).get("next_cursor"))
        if not wanted or not cursor:
            break
    if not wanted:
        return True
    if cursor:
        return None
    if bot in wanted:
        # Anyone may read the members of a public channel.
        raise DeliveryError("The bot is not in this Slack channel.", place_gone="chat")
    return False
