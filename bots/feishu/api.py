"""The few calls of Feishu's API that a chat needs, as typed methods."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from bots.feishu.errors import FeishuError
from bots.feishu.rest import Body, Rest, json_body

_MESSAGES: Final = "/open-apis/im/v1/messages"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bot:
    """Who we are: the open id under which people mention us, and our name."""

    open_id: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Content:
    """What a message holds.

    Attributes:
        type: `interactive`, `image`, `file` or `text`.
        value: The content of that type, before it becomes a JSON string.
        uuid: At most 50 characters; the platform sends the same one once in an hour.
    """

    type: str
    value: Mapping[str, object]
    uuid: str


class Api:
    """Messages, cards, reactions and uploads. Every method raises `FeishuError`."""

    def __init__(self, rest: Rest) -> None:
        self._rest = rest

    async def bot(self) -> Bot:
        """Return who we are."""
        data = await self._rest.call("GET", "/open-apis/bot/v3/info")
        bot = data.get("bot")
        if not isinstance(bot, dict) or not bot.get("open_id"):
            raise FeishuError("Feishu did not tell the bot's id: switch the app's bot ability on")
        return Bot(open_id=str(bot["open_id"]), name=str(bot.get("app_name") or ""))

    async def reply(self, message: str, content: Content, *, in_thread: bool) -> str:
        """Answer a message; return the id of the answer."""
        body: dict[str, object] = {
            "msg_type": content.type,
            "content": _dump(content),
            "uuid": content.uuid,
        }
        if in_thread:
            body["reply_in_thread"] = True
        data = await self._rest.call("POST", f"{_path(message)}/reply", body=json_body(body))
        return _text(data, "message_id")

    async def create(self, chat: str, content: Content) -> str:
        """Send a message to a chat; return its id."""
        body = {
            "receive_id": chat,
            "msg_type": content.type,
            "content": _dump(content),
            "uuid": content.uuid,
        }
        params = {"receive_id_type": "chat_id"}
        data = await self._rest.call("POST", _MESSAGES, params=params, body=json_body(body))
        return _text(data, "message_id")

    async def patch(self, message: str, card: Mapping[str, object]) -> None:
        """Replace the card of a message."""
        await self._rest.call(
            "PATCH", _path(message), body=json_body({"content": _dump_value(card)})
        )

    async def react(self, message: str, emoji: str) -> str:
        """Add a reaction; return its id."""
        body = json_body({"reaction_type": {"emoji_type": emoji}})
        data = await self._rest.call("POST", f"{_path(message)}/reactions", body=body)
        return _text(data, "reaction_id")

    async def unreact(self, message: str, reaction: str) -> None:
        """Take one of our reactions away."""
        await self._rest.call("DELETE", f"{_path(message)}/reactions/{quote(reaction, safe='')}")

    async def upload_image(self, form: Body, *, limit_s: float) -> str:
        """Upload a picture; return its key."""
        data = await self._rest.call("POST", "/open-apis/im/v1/images", body=form, limit_s=limit_s)
        return _text(data, "image_key")

    async def upload_file(self, form: Body, *, limit_s: float) -> str:
        """Upload a file; return its key."""
        data = await self._rest.call("POST", "/open-apis/im/v1/files", body=form, limit_s=limit_s)
        return _text(data, "file_key")


def _path(message: str) -> str:
    return f"{_MESSAGES}/{quote(message, safe='')}"


def _dump(content: Content) -> str:
    return _dump_value(content.value)


def _dump_value(value: Mapping[str, object]) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _text(data: Mapping[str, Any], name: str) -> str:
    value = data.get(name)
    if not isinstance(value, str) or not value:
        # It said that all went well, so the effect may be there.
        raise FeishuError(f"Feishu's answer has no {name}", retryable=True, ambiguous=True)
    return value
