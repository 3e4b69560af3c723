"""Replies to Slack calls: messages, command answers, looking up what was sent, reactions."""

from typing import Any

from slack_sdk.web.async_slack_response import AsyncSlackResponse

from bots.slack.api import Api, CallbackGone
from bots.slack.errors import BLOCK_CODES, SlackError
from bots.slack.format import SlackText, escape, render
from bus.messages import MessageId, Place

METADATA_TYPE = "parley_delivery"
"""The type of the metadata that carries a message's outbox key."""

CLOCK_SKEW_S = 30.0
"""How far this machine's clock may be ahead of Slack's when a sent message is looked up."""

_PAGE = 200
_PAGES = 10

WORKING, DONE, FAILED = "eyes", "white_check_mark", "x"


class Outbound:
    """Sends to Slack. Every method raises SlackError."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def send(self, place: Place, markdown: str, *, key: str) -> MessageId:
        """Send one message, to the command's own answer address as long as that takes it.

        A message whose blocks Slack refuses is sent as plain text.
        """
        message = render(markdown)
        if place.callback:
            try:
                return await self._answer(place.callback, message)
            except CallbackGone:
                pass
        try:
            return await self._post(place, message, key=key)
        except SlackError as error:
            if error.code not in BLOCK_CODES:
                raise
            return await self._post(place, SlackText(text=escape(markdown), blocks=()), key=key)

    async def find(self, place: Place, *, key: str, since: float) -> MessageId | None:
        """Return the message sent with `key`, looking where it was sent to, newest window only."""
        me, cursor = await self._api.identity(), ""
        for _ in range(_PAGES):
            page = await self._page(place, since=since - CLOCK_SKEW_S, cursor=cursor)
            for message in page.get("messages") or ():
                mine = message.get("user") == me.user_id or message.get("bot_id") == me.bot_id
                if mine and _key(message) == key:
                    return MessageId(message["ts"])
            cursor = (page.get("response_metadata") or {}).get("next_cursor") or ""
            if not cursor:
                break
        return None

    async def working(self, place: Place) -> None:
        """Put eyes on the message that is being answered."""
        if place.reply_to:
            await self._react(place, WORKING)

    async def finished(self, place: Place, *, ok: bool) -> None:
        """Take the eyes away and say how it ended."""
        if not place.reply_to:
            return
        await self._unreact(place, WORKING)
        await self._react(place, DONE if ok else FAILED)

    async def _answer(self, callback: str, message: SlackText) -> MessageId:
        """Answer a command, visible to its author alone. Such a message has no id."""
        body: dict[str, object] = {
            "response_type": "ephemeral",
            "replace_original": False,
            "text": message.text,
        }
        if message.blocks:
            body["blocks"] = list(message.blocks)
        await self._api.respond(callback, body)
        return MessageId("")

    async def _post(self, place: Place, message: SlackText, *, key: str) -> MessageId:
        # Links in model output are not unfurled: fetching them could carry data out.
        answer = await self._api.call(
            lambda web: web.chat_postMessage(
                channel=place.chat,
                text=message.text,
                blocks=list(message.blocks) or None,
                thread_ts=place.thread or None,
                unfurl_links=False,
                unfurl_media=False,
                metadata={"event_type": METADATA_TYPE, "event_payload": {"key": key}},
            )
        )
        return MessageId(answer.get("ts") or "")

    async def _page(self, place: Place, *, since: float, cursor: str) -> AsyncSlackResponse:
        window: dict[str, Any] = {
            "channel": place.chat,
            "oldest": f"{max(since, 0):.6f}",
            "limit": _PAGE,
            "include_all_metadata": True,
        }
        if cursor:
            window["cursor"] = cursor
        if place.thread:
            return await self._api.call(
                lambda web: web.conversations_replies(ts=place.thread, **window)
            )
        return await self._api.call(lambda web: web.conversations_history(**window))

    async def _react(self, place: Place, name: str) -> None:
        try:
            await self._api.call(
                lambda web: web.reactions_add(
                    channel=place.chat, timestamp=place.reply_to, name=name
                )
            )
        except SlackError as error:
            if error.code != "already_reacted":
                raise

    async def _unreact(self, place: Place, name: str) -> None:
        try:
            await self._api.call(
                lambda web: web.reactions_remove(
                    channel=place.chat, timestamp=place.reply_to, name=name
                )
            )
        except SlackError as error:
            if error.code != "no_reaction":
                raise


def _key(message: dict[str, Any]) -> str:
    metadata = message.get("metadata") or {}
    if metadata.get("event_type") != METADATA_TYPE:
        return ""
    return str((metadata.get("event_payload") or {}).get("key") or "")
