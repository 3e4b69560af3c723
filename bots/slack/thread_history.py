"""What was said in a Slack thread before somebody addressed the bot there: events tell it only what follows."""

import logging
import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import anyio

from bots.slack.api import SlackApi
from bots.slack.attachments import parse_attachments
from bots.slack.connection import SlackTimeouts
from bots.slack.errors import SlackError
from bots.slack.forwarded import all_files, forwarded
from bots.slack.inbound import USER_SUBTYPES
from bots.slack.mrkdwn_parser import parse_mrkdwn
from bots.slack.payload import SlackIdentity, as_list, as_mapping, as_str, parse_timestamp
from bots.slack.users import SlackUserDirectory
from bots.text.quotations import quotation
from bus.messages import InboundMessage
from bus.platform import Intake

_log: Final = logging.getLogger(__name__)

EARLIER_HEADING: Final = "[Earlier in this thread]"
"""Heads what was said in a thread before a message."""

MESSAGES: Final = 30
"""Messages that are quoted: the first one of the thread and the newest."""

MESSAGE_CHARS: Final = 2_000
FILES: Final = 5
"""Files that are handed over, the newest."""

_PAGE: Final = 200
_QUOTED_SUBTYPES: Final = USER_SUBTYPES | {"bot_message"}


class SlackThreadHistory:
    """Adds to the message that begins a conversation in a thread what was said there before, once.

    Args:
        api: Reads threads (conversations.replies, which takes the scopes that messages of channels take).
        users: Knows names.
        timeouts: `thread_s` and `names_s` count.
    """

    def __init__(self, api: SlackApi, users: SlackUserDirectory, timeouts: SlackTimeouts) -> None:
        self._api = api
        self._users = users
        self._timeouts = timeouts

    async def add(self, message: InboundMessage, intake: Intake) -> InboundMessage:
        """Return the message with what precedes it; unchanged if that cannot be had. Raises StoreError."""
        thread = message.reply_target.thread
        begins_inside = message.is_addressed and thread not in ("", message.message_id)
        if message.is_private or not begins_inside or message.text.startswith("/"):
            return message
        if await intake.has_conversation(message.key):
            return message
        try:
            with anyio.fail_after(self._timeouts.thread_s):
                said = await self._read(message)
        except (SlackError, TimeoutError) as error:
            _log.warning("%s: a thread cannot be read: %s", self._api.channel, error)
            return message
        return await self._with_earlier(message, said)

    async def _read(self, message: InboundMessage) -> Sequence[Mapping[str, Any]]:
        """Return what was said before a message: the first one, and the newest. Raises SlackError."""
        window: dict[str, Any] = {
            "channel": message.key.chat,
            "ts": message.reply_target.thread,
            "latest": message.message_id,
            "limit": _PAGE,
        }
        asked_at = parse_timestamp(message.message_id) or math.inf
        first: list[Mapping[str, Any]] = []
        newest = deque[Mapping[str, Any]](maxlen=MESSAGES - 1)
        while True:
            page = await self._api.call(lambda web: web.conversations_replies(**window))
            for one in map(as_mapping, as_list(page.get("messages"))):
                ts = as_str(one.get("ts"))
                at = parse_timestamp(ts) or math.inf
                if as_str(one.get("subtype")) not in _QUOTED_SUBTYPES or at >= asked_at:
                    continue
                if ts == window["ts"]:
                    first = [one]  # Each page begins with it.
                else:
                    newest.append(one)
            window["cursor"] = as_str(as_mapping(page.get("response_metadata")).get("next_cursor"))
            if not window["cursor"]:
                return [*first, *newest]

    async def _with_earlier(
        self, message: InboundMessage, said: Sequence[Mapping[str, Any]]
    ) -> InboundMessage:
        me = self._api.known_identity
        names: dict[str, str] = {}
        with anyio.move_on_after(self._timeouts.names_s):
            for user in dict.fromkeys(as_str(one.get("user")) for one in said):
                names[user] = await self._users.name_of(user) if user else ""
        files = parse_attachments(
            [file for one in said for file in all_files(one)], installation=me.installation
        )
        quoted = [quotation(_words(one), _author(one, names, me)) for one in said]
        earlier = "\n".join([EARLIER_HEADING, *filter(None, quoted)]) if any(quoted) else ""
        return replace(
            message,
            quoted="\n\n".join(filter(None, (message.quoted, earlier))),
            attachments=(*message.attachments, *files[-FILES:]),
        )


def _words(said: Mapping[str, Any]) -> str:
    """Return what a message says, and which files it has."""
    text, _ = parse_mrkdwn(as_str(said.get("text")))
    words = "\n\n".join(filter(None, (text, forwarded(said)))) or "\n".join(_previews(said))
    if len(words) > MESSAGE_CHARS:
        words = f"{words[:MESSAGE_CHARS]}…"
    return "\n".join([*([words] if words else []), *_file_names(said)])


def _previews(said: Mapping[str, Any]) -> list[str]:
    """Return what the attachments of an alert say, which often has no other text."""
    found = (
        as_str(one.get("text")) or as_str(one.get("fallback")) or as_str(one.get("title"))
        for one in map(as_mapping, as_list(said.get("attachments")))
    )
    return [parse_mrkdwn(text)[0] for text in found if text]


def _file_names(said: Mapping[str, Any]) -> list[str]:
    return [f"[File: {one.name}]" for one in parse_attachments(list(all_files(said)))]


def _author(said: Mapping[str, Any], names: Mapping[str, str], me: SlackIdentity) -> str:
    user = as_str(said.get("user"))
    if user == me.user_id or (me.bot_id and said.get("bot_id") == me.bot_id):
        return "You"
    bot = as_str(as_mapping(said.get("bot_profile")).get("name")) or as_str(said.get("username"))
    return bot or names.get(user) or user or "Somebody"
