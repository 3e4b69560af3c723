"""Replies to Slack calls: messages, command answers, looking up what was sent, reactions."""

from collections.abc import AsyncIterator
from typing import Any

from slack_sdk.web.async_slack_response import AsyncSlackResponse

from bots.slack.api import Api, CallbackGone
from bots.slack.errors import BLOCK_CODES, SlackError
from bots.slack.files import Files
from bots.slack.format import SlackText, escape, render
from bus.messages import MessageId, Place

METADATA_TYPE = "parley_delivery"
"""The type of the metadata that carries a message's outbox key."""

_PAGE = 200
_PAGES = 10

WORKING, DONE, FAILED = "eyes", "white_check_mark", "x"


class Outbound:
    """Sends to Slack. Every method raises SlackError. `files` knows which file was sent with which key."""

    def __init__(self, api: Api, files: Files) -> None:
        self._api = api
        self._files = files

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
        """Return the message or file sent with `key`, if it stands where it was sent to.

        Messages carry their key; files cannot, so they are known only to the process that sent them.

        Raises:
            SlackError: Not retryable where it cannot be told: an answer that only its reader sees, or a
                file that an earlier process may have sent with this key.
        """
        if place.callback:
            raise SlackError("An answer to a Slack command cannot be looked up.")
        me, ref, doubt = await self._api.identity(), self._files.sent_as(key), False
        async for message in self._sent(place, since=since):
            if message.get("user") != me.user_id and message.get("bot_id") != me.bot_id:
                continue
            shared = [file.get("id") for file in message.get("files") or ()]
            if _key(message) == key or (ref and ref in shared):
                return MessageId(ref or message["ts"])
            doubt = doubt or bool(shared)
        if doubt and not ref:
            raise SlackError("Slack does not tell which file was sent for this.")
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

    async def _sent(self, place: Place, *, since: float) -> AsyncIterator[dict[str, Any]]:
        """Yield the messages where answers to `place` stand, sent after `since`."""
        window: dict[str, Any] = {
            "channel": place.chat,
            "oldest": f"{max(since, 0):.6f}",
            "limit": _PAGE,
            "include_all_metadata": True,
        }
        for _ in range(_PAGES):
            page = await self._page(place, window)
            for message in page.get("messages") or ():
                yield message
            window["cursor"] = (page.get("response_metadata") or {}).get("next_cursor") or ""
            if not window["cursor"]:
                return

    async def _page(self, place: Place, window: dict[str, Any]) -> AsyncSlackResponse:
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
