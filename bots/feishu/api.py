"""Typed methods for the messages, reactions and uploads of Feishu's API."""

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from bots.common.call_limits import AccountLimiter
from bots.feishu.capabilities import CALL_WINDOWS, FRAME_SHARE
from bots.feishu.content import is_withheld
from bots.feishu.errors import FeishuError
from bots.feishu.json_node import JsonNode
from bots.feishu.rest import FeishuRestClient, QueryParams, RequestBody, json_body
from bus.errors import DeliveryError

_MESSAGES = "/open-apis/im/v1/messages"
_CHATS = "/open-apis/im/v1/chats"
_USERS = "/open-apis/contact/v3/users/batch"
_REACTION_GONE = 231007

_MAX_WAIT_S = 3.0
"""Longest wait of a call for the rate limit, seconds. If it would be longer, the caller decides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FeishuBot:
    """The bot's open ID, by which people mention it, its name, and the instance name of its channel."""

    open_id: str
    name: str
    channel: str = "feishu"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageContent:
    """The content of a message.

    Attributes:
        type: `interactive`, `image`, `file` or `text`.
        value: The content of that type, before it becomes a JSON string.
        uuid: Idempotency key, at most 50 characters. The platform drops repetitions within an hour.
    """

    type: str
    value: Mapping[str, object]
    uuid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SentMessage:
    """A message of the bot: its ID, and its creation time by the platform's clock (Unix seconds; 0 = unknown)."""

    id: str
    created_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberPage:
    """One page of a group's members.

    Attributes:
        names: Names by open ID.
        page_token: Token of the next page; "" = this is the last page.
    """

    names: Mapping[str, str]
    page_token: str


class FeishuApi:
    """Messages, cards, reactions and uploads. Every method raises `FeishuError`."""

    def __init__(self, rest: FeishuRestClient) -> None:
        self._rest = rest
        self._sends = call_limiter(rest)
        self._patches = call_limiter(rest)

    async def get_bot(self) -> FeishuBot:
        """Return the bot's identity."""
        data = await self._rest.call("GET", "/open-apis/bot/v3/info")
        bot = data.get("bot")
        if not isinstance(bot, dict) or not bot.get("open_id"):
            raise FeishuError("Feishu returned no bot ID: turn on the app's bot capability")
        name = str(bot.get("app_name") or "")
        return FeishuBot(open_id=str(bot["open_id"]), name=name, channel=self._rest.channel)

    async def reply(self, message: str, content: MessageContent, *, in_thread: bool) -> SentMessage:
        """Reply to a message. Return the reply."""
        body: dict[str, object] = {
            "msg_type": content.type,
            "content": _dump(content),
            "uuid": content.uuid,
        }
        if in_thread:
            body["reply_in_thread"] = True
        async with rate_limited(self._sends):
            data = await self._rest.call("POST", f"{_path(message)}/reply", body=json_body(body))
        return _parse_sent(data)

    async def send(self, chat: str, content: MessageContent) -> SentMessage:
        """Send a message to a chat (`oc_...`), or to a person (`ou_...`)."""
        body = {
            "receive_id": chat,
            "msg_type": content.type,
            "content": _dump(content),
            "uuid": content.uuid,
        }
        params = {"receive_id_type": "open_id" if chat.startswith("ou_") else "chat_id"}
        async with rate_limited(self._sends):
            data = await self._rest.call("POST", _MESSAGES, params=params, body=json_body(body))
        return _parse_sent(data)

    async def patch(
        self, message: str, card: Mapping[str, object], *, is_frame: bool = False
    ) -> None:
        """Replace the card of a message. `is_frame`: whether a later card will contain everything in this one."""
        body = json_body({"content": dump_json(card)})
        async with rate_limited(self._patches, is_frame=is_frame):
            await self._rest.call("PATCH", _path(message), body=body)

    async def is_deleted(self, message: str) -> bool:
        """Return whether a message was withdrawn or deleted."""
        try:
            data = await self._rest.call("GET", _path(message))
        except FeishuError as error:
            if error.target_gone:
                return True
            raise
        items = data.get("items")
        return isinstance(items, list) and any(
            isinstance(item, dict) and item.get("deleted") is True for item in items
        )

    async def get_messages(self, message: str) -> Sequence[JsonNode]:
        """Return a message from the platform. If it forwards messages, these follow it.

        Cards are returned as sent, or in the platform's own form if it offers only that.
        """
        items = await self._get_items(message, "user_card_content")
        if any(map(is_withheld, items)):
            stored = await self._get_items(message, "raw_card_content")
            if len(stored) == len(items):
                pairs = zip(items, stored, strict=True)
                return [other if is_withheld(item) else item for item, other in pairs]
        return items

    async def _get_items(self, message: str, cards: str) -> list[JsonNode]:
        params = {"card_msg_content_type": cards, "with_sender_name": "true"}
        data = await self._rest.call("GET", _path(message), params=params)
        return list(JsonNode(data).items("items"))

    async def get_chat_name(self, chat: str) -> str:
        """Return the name of a group; "" if it has none."""
        data = await self._rest.call("GET", f"{_CHATS}/{quote(chat, safe='')}")
        return JsonNode(data).text("name")

    async def list_members(self, chat: str, page_token: str) -> MemberPage:
        """Return up to 100 members of a group: people only."""
        params = {"member_id_type": "open_id", "page_size": "100"}
        if page_token:
            params["page_token"] = page_token
        path = f"{_CHATS}/{quote(chat, safe='')}/members"
        data = JsonNode(await self._rest.call("GET", path, params=params))
        names = {item.text("member_id"): item.text("name") for item in data.items("items")}
        more = data.text("page_token") if data.flag("has_more") else ""
        return MemberPage(names=names, page_token=more)

    async def list_users(self, users: Sequence[str]) -> Mapping[str, str]:
        """Return the names of up to 50 people by open ID. Omits people whom the app may not see."""
        params: QueryParams = {"user_ids": list(users), "user_id_type": "open_id"}
        data = JsonNode(await self._rest.call("GET", _USERS, params=params))
        return {item.text("open_id"): item.text("name") for item in data.items("items")}

    async def delete(self, message: str) -> None:
        """Delete one of our messages."""
        await self._rest.call("DELETE", _path(message))

    async def add_reaction(self, message: str, emoji: str) -> str:
        """Add a reaction. Return its ID."""
        body = json_body({"reaction_type": {"emoji_type": emoji}})
        data = await self._rest.call("POST", f"{_path(message)}/reactions", body=body)
        return _text(data, "reaction_id")

    async def remove_reaction(self, message: str, reaction: str) -> None:
        """Remove one of our reactions. Does nothing if it is gone."""
        try:
            path = f"{_path(message)}/reactions/{quote(reaction, safe='')}"
            await self._rest.call("DELETE", path)
        except FeishuError as error:
            if error.code != _REACTION_GONE:
                raise

    async def find_reactions(self, message: str, emoji: str, *, app_id: str) -> list[str]:
        """Return the IDs of the app's reactions with an emoji; empty if the app may not list them."""
        try:
            data = await self._rest.call(
                "GET", f"{_path(message)}/reactions", params={"reaction_type": emoji}
            )
        except FeishuError as error:
            if error.retryable:
                raise
            return []
        return [
            _text(item, "reaction_id")
            for item in data.get("items") or ()
            if isinstance(item, dict) and item.get("operator", {}).get("operator_id") == app_id
        ]

    async def upload_image(self, form: RequestBody, *, limit_s: float) -> str:
        """Upload a picture. Return its key."""
        data = await self._rest.call("POST", "/open-apis/im/v1/images", body=form, limit_s=limit_s)
        return _text(data, "image_key")

    async def upload_file(self, form: RequestBody, *, limit_s: float) -> str:
        """Upload a file. Return its key."""
        data = await self._rest.call("POST", "/open-apis/im/v1/files", body=form, limit_s=limit_s)
        return _text(data, "file_key")


def _path(message: str) -> str:
    return f"{_MESSAGES}/{quote(message, safe='')}"


def _dump(content: MessageContent) -> str:
    return dump_json(content.value)


def dump_json(value: Mapping[str, object]) -> str:
    """Return JSON as a string, because the platform expects most contents as strings inside JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def call_limiter(rest: FeishuRestClient) -> AccountLimiter:
    """Return the limiter of one API."""
    return AccountLimiter(
        CALL_WINDOWS,
        max_wait_s=_MAX_WAIT_S,
        divide_limit=lambda limit: rest.divide_limit(limit),  # noqa: PLW0108 - the attribute is set later
    )


@asynccontextmanager
async def rate_limited(limiter: AccountLimiter, *, is_frame: bool = False) -> AsyncIterator[None]:
    """Wait for the rate limit, then make a call inside the block. A 429 for the whole app delays the next calls too.

    Args:
        limiter: The limiter of the called API.
        is_frame: Whether to drop the call instead of delaying it, because a later call will contain everything in this
            one.
    """
    try:
        await limiter.acquire(share=FRAME_SHARE if is_frame else None)
    except DeliveryError as error:
        text = "the app has used up Feishu's rate limit for now"
        raise FeishuError(text, retryable=True, retry_after_s=error.retry_after_s) from None
    try:
        yield
    except FeishuError as error:
        if error.is_app_limit:
            limiter.pause(error.retry_after_s or 0.0)
        raise


def _parse_sent(data: Mapping[str, Any]) -> SentMessage:
    created_at = JsonNode(data).seconds("create_time") or 0.0
    return SentMessage(id=_text(data, "message_id"), created_at=created_at)


def _text(data: Mapping[str, Any], name: str) -> str:
    value = data.get(name)
    if not isinstance(value, str) or not value:
        # Feishu reported success, so the effect may have happened.
        raise FeishuError(f"Feishu's answer has no {name}", retryable=True, ambiguous=True)
    return value
