"""The fake's REST API. It checks every request against the platform's documented arguments and limits."""

import base64
import json
import re
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NoReturn

import anyio
from aiohttp import BodyPartReader, web

from gateway.playground.feishu import cards
from gateway.playground.feishu.cardkit import SCOPE, CardKitService
from gateway.playground.feishu.shown import CARD_FORMS, shown_content
from gateway.playground.feishu.state import (
    BOT_OPEN_ID,
    FeishuApiError,
    FeishuCall,
    FeishuMessage,
    FeishuState,
)

Body = dict[str, Any]
Handler = Callable[[web.Request, Body], Awaitable[dict[str, Any] | web.Response]]

CARD_BYTES = 30 * 1024
TEXT_BYTES = 150 * 1024
IMAGE_BYTES = 10 * 1024 * 1024
FILE_BYTES = 30 * 1024 * 1024
RESOURCE_BYTES = 100 * 1024 * 1024
PATCHES_PER_S = 5
SENDS_PER_S = 5
"""Maximum number of messages that a chat accepts from bots per second."""
UUID_LIFE_S = 3600.0
SCOPES = (
    "im:message.p2p_msg:readonly", "im:message.group_at_msg:readonly", "im:message:send_as_bot",
    "im:message:update", "im:message:readonly", "im:message.reactions:write_only", "im:resource",
)  # fmt: skip
_NEEDED = {
    "message.create": {"im:message:send_as_bot", "im:message"},
    "message.reply": {"im:message:send_as_bot", "im:message"},
    "message.patch": {"im:message:update", "im:message"},
    "reaction.create": {"im:message.reactions:write_only", "im:message"},
    "reaction.delete": {"im:message.reactions:write_only", "im:message"},
    "reaction.list": {"im:message.reactions:read", "im:message:readonly"},
    "resource": {"im:message:readonly", "im:message"},
    "image.create": {"im:resource", "im:resource:upload"},
    "file.create": {"im:resource", "im:resource:upload"},
    "speech": {"speech_to_text:speech"},
    "message.get": {"im:message:readonly", "im:message"},
    "chat.get": {"im:chat", "im:chat:read", "im:chat:readonly"},
    "chat.members": {"im:chat", "im:chat:readonly", "im:chat.members:read"},
    "users.batch": {"contact:contact.base:readonly"},
    "message.delete": {"im:message:recall", "im:message"},
    "card.create": {SCOPE},
    "card.update": {SCOPE},
    "card.settings": {SCOPE},
    "card.content": {SCOPE},
    "card.convert": {SCOPE},
}
"""The scopes of each operation. Any one of them is enough."""
MEMBERS_PAGE = 100
USERS_BATCH = 50
_FILE_TYPES = {"opus", "mp4", "pdf", "doc", "xls", "ppt", "stream"}
_EMOJIS = {"OK", "DONE", "CrossMark", "THUMBSUP", "Typing", "OnIt"}
_MAGIC = (b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"RIFF", b"BM")
_IM = "/open-apis/im/v1"


class RestApi:
    """Tokens, messages, cards, reactions and uploads."""

    def __init__(
        self,
        state: FeishuState,
        *,
        app_id: str,
        app_secret: str,
        token_s: float,
        app_calls_per_s: int,
    ) -> None:
        self._state = state
        self.cardkit = CardKitService(state)
        self._app_id = app_id
        self._app_secret = app_secret
        self.token_s = token_s
        self.scopes = set(SCOPES)
        self.activate_status = 2
        self.has_bot = True
        self.sends_per_s = SENDS_PER_S
        self._app_calls_per_s = app_calls_per_s
        self._recent: deque[float] = deque()
        self.recognized_text = ""
        self.recognized_s: list[float] = []
        self._tokens: dict[str, float] = {}
        self._uuids: dict[str, tuple[float, FeishuMessage]] = {}

    def routes(self) -> list[web.RouteDef]:
        table: list[tuple[str, str, str, Handler]] = [
            ("POST", "/open-apis/auth/v3/tenant_access_token/internal", "token", self._token),
            ("GET", "/open-apis/bot/v3/info", "bot.info", self._bot_info),
            ("GET", "/open-apis/application/v6/scopes", "scopes", self._scopes),
            ("POST", f"{_IM}/messages", "message.create", self._create),
            ("POST", f"{_IM}/messages/{{id}}/reply", "message.reply", self._reply),
            ("PATCH", f"{_IM}/messages/{{id}}", "message.patch", self._patch),
            ("GET", f"{_IM}/messages/{{id}}", "message.get", self._get),
            ("DELETE", f"{_IM}/messages/{{id}}", "message.delete", self._delete),
            ("GET", f"{_IM}/chats/{{id}}", "chat.get", self._chat),
            ("GET", f"{_IM}/chats/{{id}}/members", "chat.members", self._members),
            ("GET", "/open-apis/contact/v3/users/batch", "users.batch", self._users),
            *self.cardkit.table(),
            ("POST", f"{_IM}/messages/{{id}}/reactions", "reaction.create", self._react),
            ("GET", f"{_IM}/messages/{{id}}/reactions", "reaction.list", self._reactions),
            (
                "DELETE",
                f"{_IM}/messages/{{id}}/reactions/{{reaction}}",
                "reaction.delete",
                self._unreact,
            ),
            ("GET", f"{_IM}/messages/{{id}}/resources/{{key}}", "resource", self._resource),
            ("POST", f"{_IM}/images", "image.create", self._image),
            ("POST", f"{_IM}/files", "file.create", self._file),
            ("POST", "/open-apis/speech_to_text/v1/speech/file_recognize", "speech", self._speech),
        ]
        routes = [
            web.route(verb, path, self.guarded(op, handler)) for verb, path, op, handler in table
        ]
        return [*routes, web.route("*", "/open-apis/{rest:.*}", self._unknown)]

    def revoke_tokens(self) -> None:
        """Invalidate every token before it expires."""
        self._tokens.clear()

    def guarded(
        self, op: str, handler: Handler
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        """Wrap a handler: record the call, apply scripted failures, and convert refusals to responses."""

        async def answer(request: web.Request) -> web.StreamResponse:
            body = await _body(request)
            self._state.calls.append(FeishuCall(op, dict(request.query), body, time.monotonic()))
            self._state.changed()
            failure = self._state.take_failure(op)
            if failure is not None:
                await anyio.sleep(failure.delay_s)
                if failure.drop == "before":
                    return _drop(request)
                if failure.status and failure.text is not None:
                    return web.Response(
                        status=failure.status, text=failure.text, headers=failure.headers
                    )
                if failure.status:
                    wrong = {"code": failure.code, "msg": "told to fail"}
                    return web.json_response(wrong, status=failure.status, headers=failure.headers)
            try:
                self._check_app(op, request)
                found = await handler(request, body)
                response = (
                    found
                    if isinstance(found, web.Response)
                    else web.json_response({"code": 0, "msg": "success"} | found)
                )
            except FeishuApiError as error:
                wrong = {"code": error.code, "msg": error.msg}
                response = web.json_response(wrong, status=error.status, headers=error.headers)
            self._state.changed()
            return _drop(request) if failure is not None and failure.drop == "after" else response

        return answer

    def _check_app(self, op: str, request: web.Request) -> None:
        if op in {"token", "endpoint"}:
            return
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if not token:
            raise FeishuApiError(99991661, "Missing access token for authorization")
        if token not in self._tokens:
            raise FeishuApiError(99991663, "Invalid access token for authorization")
        if self._tokens[token] < time.monotonic():
            raise FeishuApiError(99991677, "Authentication token expired")
        needed = _NEEDED.get(op, set())
        if needed and not needed & self.scopes:
            raise FeishuApiError(
                99991672, f"Access denied. One of the scopes is required: {needed}"
            )
        now = time.monotonic()
        while self._recent and self._recent[0] < now - 1:
            self._recent.popleft()
        if len(self._recent) >= self._app_calls_per_s:
            headers = {
                "x-ogw-ratelimit-limit": str(self._app_calls_per_s),
                "x-ogw-ratelimit-reset": "1",
            }
            raise FeishuApiError(
                99991400, "request trigger frequency limit", status=429, headers=headers
            )
        self._recent.append(now)

    async def _unknown(self, request: web.Request) -> web.StreamResponse:
        self._state.violation(f"unknown method {request.method} {request.path}")
        return web.Response(status=404, text="404 page not found")

    async def _token(self, request: web.Request, body: Body) -> dict[str, Any]:
        self._arguments("token", body, {"app_id": str, "app_secret": str})
        if (body["app_id"], body["app_secret"]) != (self._app_id, self._app_secret):
            raise FeishuApiError(10014, "app secret invalid", status=200)
        token = self._state.next_id("t-")
        self._tokens[token] = time.monotonic() + self.token_s
        return {"tenant_access_token": token, "expire": self.token_s}

    async def _bot_info(self, request: web.Request, body: Body) -> dict[str, Any]:
        bot = {
            "activate_status": self.activate_status,
            "app_name": "Parley",
            "open_id": BOT_OPEN_ID,
        }
        return {"bot": bot if self.has_bot else {}}

    async def _scopes(self, request: web.Request, body: Body) -> dict[str, Any]:
        known = [
            {"scope_name": name, "grant_status": 1 if name in self.scopes else 2}
            for name in sorted({*SCOPES, *self.scopes})
        ]
        return {"data": {"scopes": known}}

    async def _create(self, request: web.Request, body: Body) -> dict[str, Any]:
        kind = request.query.get("receive_id_type")
        if set(request.query) != {"receive_id_type"} or kind not in {"chat_id", "open_id"}:
            self._bad("message.create", f"query {dict(request.query)}")
        fields = {"receive_id": str, "msg_type": str, "content": str, "uuid": str}
        self._arguments("message.create", body, fields, optional={"uuid"})
        chat = body["receive_id"]
        if not chat.startswith("ou_" if kind == "open_id" else "oc_"):
            self._bad("message.create", f"{kind} {chat}")
        if kind == "open_id":
            chat = f"oc_dm_{chat}"
            self._state.chats.add(chat)
        return self._send(body, FeishuMessage("", chat, BOT_OPEN_ID, body["msg_type"], {}))

    async def _reply(self, request: web.Request, body: Body) -> dict[str, Any]:
        fields = {"msg_type": str, "content": str, "uuid": str, "reply_in_thread": bool}
        self._arguments("message.reply", body, fields, optional={"uuid", "reply_in_thread"})
        parent = self._find(request, "message.reply")
        message = FeishuMessage(
            "", parent.chat, BOT_OPEN_ID, body["msg_type"], {}, reply_to=parent.id
        )
        message.root = parent.root or parent.id
        message.thread = parent.thread or (
            self._state.next_id("omt_") if body.get("reply_in_thread") else ""
        )
        return self._send(body, message)

    def _send(self, body: Body, message: FeishuMessage) -> dict[str, Any]:
        uuid = body.get("uuid", "")
        if len(uuid) > 50:
            self._bad("message", "uuid is longer than 50")
        sent_at, first = self._uuids.get(uuid, (0.0, None))
        if uuid and first and time.monotonic() - sent_at < UUID_LIFE_S:
            return {"data": _shown(first)}
        if len(self._state.recent(message.chat)) >= self.sends_per_s:
            raise FeishuApiError(230020, "This operation triggers the frequency limit.")
        if message.chat not in self._state.chats or message.chat in self._state.left:
            raise FeishuApiError(230002, "Bot/User can NOT be out of the chat.")
        message.id, message.uuid = self._state.next_id("om_bot"), uuid
        message.content = self._content(message, body["content"])
        self._state.add(message)
        if uuid:
            self._uuids[uuid] = (time.monotonic(), message)
        return {"data": _shown(message)}

    def _content(self, message: FeishuMessage, content: str) -> dict[str, Any]:
        """Return the content of a message if it is valid for its type, or refuse it."""
        kind = message.type
        try:
            value = json.loads(content)
        except ValueError:
            self._bad("message", "content is not JSON")
        if kind == "interactive" and isinstance(value, dict) and value.get("type") == "card":
            return self.cardkit.sent(str(value.get("data", {}).get("card_id")), message)
        if kind == "interactive":
            return self._card(content, value)
        if kind == "text" and len(content.encode()) > TEXT_BYTES:
            raise FeishuApiError(230025, "The length of the message content reaches its limit.")
        key = {"image": "image_key", "file": "file_key", "text": "text"}.get(kind)
        if key is None or not isinstance(value, dict) or set(value) != {key}:
            self._bad("message", f"content of {kind}: {content[:100]}")
        if key != "text" and (value[key] not in self._state.files):
            self._bad("message", f"unknown {key}")
        if kind == "file" and self._state.files[value[key]][0] in {"opus", "mp4"}:
            raise FeishuApiError(
                230055, "The type of file upload does not match the type of message being sent."
            )
        return dict(value)

    def _card(self, content: str, value: object) -> dict[str, Any]:
        if len(json.dumps({"content": content}, ensure_ascii=False).encode()) > CARD_BYTES:
            raise FeishuApiError(230025, "The length of the message content reaches its limit.")
        try:
            card = cards.check(value)
        except cards.InvalidCard as error:
            if error.sub != 11310:
                self._state.violation(f"card: {error}")
            said = f"Failed to create card content, ext=ErrCode: {error.sub}; ErrMsg: {error}; "
            raise FeishuApiError(230099, said) from error
        if _broken_image(card):
            raise FeishuApiError(
                230099,
                "Failed to create card content, ext=ErrCode: 200570; ErrMsg: invalid image key;",
            )
        return card

    async def _patch(self, request: web.Request, body: Body) -> dict[str, Any]:
        self._arguments("message.patch", body, {"content": str})
        message = self._find(request, "message.patch")
        if message.chat in self._state.left:
            raise FeishuApiError(230002, "Bot/User can NOT be out of the chat.")
        if not message.by_bot or message.type != "interactive":
            raise FeishuApiError(230001, "This message is NOT a card.")
        if message.entity:
            raise FeishuApiError(230001, "a card entity is not updated by its message")
        if message.too_old:
            raise FeishuApiError(230031, "The message is expired and can not be updated.")
        now = time.monotonic()
        if len([at for at in message.patched_at if at > now - 1]) >= PATCHES_PER_S:
            raise FeishuApiError(230020, "This operation triggers the frequency limit.")
        message.patched_at.append(now)
        card = self._content(message, body["content"])
        for version in (message.content, card):
            if not version.get("config", {}).get("update_multi"):
                self._bad("message.patch", "update_multi is not true")
        message.content = card
        message.edits.append(card)
        return {"data": {}}

    async def _get(self, request: web.Request, body: Body) -> dict[str, Any]:
        form = request.query.get("card_msg_content_type")
        names = request.query.get("with_sender_name", "false")
        known = {"user_id_type", "card_msg_content_type", "with_sender_name"}
        if set(request.query) - known or form not in CARD_FORMS or names not in {"true", "false"}:
            self._bad("message.get", f"query {dict(request.query)}")
        message = self._state.messages.get(request.match_info["id"])
        if message is None:
            self._bad("message.get", f"no message {request.match_info['id']}")
        if message.chat in self._state.left:
            raise FeishuApiError(230002, "Bot/User can NOT be out of the chat.")
        held = self._state.forwards.get(message.id, [])
        items = [
            self._item(one, above, form, named=names == "true")
            for one, above in [(message, ""), *held]
        ]
        return {"data": {"items": items}}

    def _item(
        self, message: FeishuMessage, above: str, form: str | None, *, named: bool
    ) -> dict[str, Any]:
        writer = {"id": message.sender, "id_type": "open_id", "sender_type": "user"}
        if message.by_bot:
            writer = {"id": self._app_id, "id_type": "app_id", "sender_type": "app"}
        elif message.sender.startswith("cli_"):
            writer |= {"id_type": "app_id", "sender_type": "app"}
        if named and (name := self._state.people.get(message.sender)):
            writer["sender_name"] = name
        item = {**_shown(message), "deleted": message.gone, "sender": writer, "body": {}}
        if not message.gone:
            item["body"] = {"content": shown_content(message, form)}
        if message.mentions:
            item["mentions"] = [
                {**mention, "id": mention["id"]["open_id"], "id_type": "open_id"}
                for mention in message.mentions
            ]
        return item | ({"upper_message_id": above} if above else {})

    async def _chat(self, request: web.Request, body: Body) -> dict[str, Any]:
        title = self._state.titles.get(request.match_info["id"])
        return {"data": {"chat_mode": "group"} | ({"name": title} if title else {})}

    async def _members(self, request: web.Request, body: Body) -> dict[str, Any]:
        chat, query = request.match_info["id"], request.query
        known = {"member_id_type", "page_size", "page_token"}
        size = query.get("page_size", "20")
        if set(query) - known or not size.isdigit() or not 1 <= int(size) <= MEMBERS_PAGE:
            self._bad("chat.members", f"query {dict(query)}")
        if chat in self._state.left or chat not in self._state.chats:
            raise FeishuApiError(232011, "Operator can NOT be out of the chat.")
        start = query.get("page_token", "members-0").removeprefix("members-")
        if not start.isdigit():
            self._bad("chat.members", f"page_token {query['page_token']}")
        members = self._state.members.get(chat, [])
        end = int(start) + int(size)
        items = [
            {
                "member_id_type": "open_id",
                "member_id": user,
                "name": self._state.people.get(user, ""),
            }
            for user in members[int(start) : end]
        ]
        more = {"page_token": f"members-{end}"} if end < len(members) else {}
        told = {"items": items, "has_more": bool(more), "member_total": len(members)}
        return {"data": told | more}

    async def _users(self, request: web.Request, body: Body) -> dict[str, Any]:
        users = request.query.getall("user_ids", [])
        if set(request.query) - {"user_ids", "user_id_type"} or not 1 <= len(users) <= USERS_BATCH:
            self._bad("users.batch", f"query {request.query}")
        named = "contact:user.base:readonly" in self.scopes
        people = self._state.people
        items = [
            {"open_id": user} | ({"name": people[user]} if named else {})
            for user in users
            if user in people
        ]
        return {"data": {"items": items}}

    async def _delete(self, request: web.Request, body: Body) -> dict[str, Any]:
        message = self._find(request, "message.delete")
        if not message.by_bot:
            raise FeishuApiError(230026, "No permission to recall this message.")
        message.gone = True
        return {"data": {}}

    async def _react(self, request: web.Request, body: Body) -> dict[str, Any]:
        self._arguments("reaction.create", body, {"reaction_type": dict})
        emoji = body["reaction_type"].get("emoji_type")
        if set(body["reaction_type"]) != {"emoji_type"} or emoji not in _EMOJIS:
            raise FeishuApiError(231001, "reaction type is invalid.")
        message = self._find(request, "reaction.create")
        # A repeated reaction returns the existing one.
        same = next((one for one, name in message.reactions.items() if name == emoji), "")
        reaction = same or self._state.next_id("react_")
        message.reactions[reaction] = emoji
        return {"data": {"reaction_id": reaction, "reaction_type": {"emoji_type": emoji}}}

    async def _reactions(self, request: web.Request, body: Body) -> dict[str, Any]:
        message = self._find(request, "reaction.list")
        wanted = request.query.get("reaction_type", "")
        items = [
            {
                "reaction_id": reaction,
                "operator": {"operator_id": self._app_id, "operator_type": "app"},
                "action_time": "1626086391570",
                "reaction_type": {"emoji_type": emoji},
            }
            for reaction, emoji in message.reactions.items()
            if wanted in {"", emoji}
        ]
        return {"data": {"items": items, "has_more": False}}

    async def _unreact(self, request: web.Request, body: Body) -> dict[str, Any]:
        message = self._find(request, "reaction.delete")
        if message.reactions.pop(request.match_info["reaction"], None) is None:
            raise FeishuApiError(231007, "The reaction does not exist.")
        return {"data": {}}

    async def _resource(self, request: web.Request, body: Body) -> web.Response:
        """Return a file that a person sent."""
        message, key = request.match_info["id"], request.match_info["key"]
        if request.query.get("type") not in {"image", "file"}:
            self._bad("resource", f"query {dict(request.query)}")
        found, said = self._state.resources.get(key), self._state.messages.get(message)
        if said is not None and said.type == "interactive":
            raise FeishuApiError(234043, "Unsupported message type.")
        held = [one for one, _ in self._state.forwards.get(message, [])]
        holders = [one for one in [said, *held] if one is not None]
        if found is None or not any(key in json.dumps(one.content) for one in holders):
            # Files of forwarded messages are available only under the message that contains them.
            raise FeishuApiError(234003, "File not in msg.")
        kind, mime, content = found
        if kind != request.query["type"]:
            raise FeishuApiError(234001, "Invalid request param.")
        if len(content) > RESOURCE_BYTES:
            raise FeishuApiError(234037, "Downloaded file size exceeds limit.")
        return web.Response(body=content, content_type=mime)

    async def _image(self, request: web.Request, body: Body) -> dict[str, Any]:
        self._arguments("image.create", body, {"image_type": str, "image": bytes})
        image: bytes = body["image"]
        self._size(image, IMAGE_BYTES)
        if body["image_type"] != "message":
            self._bad("image.create", f"image_type {body['image_type']}")
        if not image.startswith(_MAGIC):
            raise FeishuApiError(234011, "Can't recognize the image format.")
        return {"data": {"image_key": self._keep("img_", "image", "", image)}}

    async def _speech(self, request: web.Request, body: Body) -> dict[str, Any]:
        """Recognize raw samples: 16 kHz, 16 bits, mono, at most a minute."""
        del request
        self._arguments("speech", body, {"speech": dict, "config": dict})
        samples = base64.b64decode(body["speech"].get("speech", ""), validate=True)
        config = body["config"]
        if not 0 < len(samples) <= 60 * 32_000 or samples[:4] in (b"OggS", b"RIFF"):
            self._bad("speech", f"{len(samples)} bytes, beginning with {samples[:4]!r}")
        if not re.fullmatch(r"\w{16}", config.get("file_id", "")):
            self._bad("speech", f"file_id {config.get('file_id')}")
        if (config.get("format"), config.get("engine_type")) != ("pcm", "16k_auto"):
            self._bad("speech", f"config {config}")
        self.recognized_s.append(len(samples) / 32_000)
        return {"data": {"recognition_text": self.recognized_text}}

    async def _file(self, request: web.Request, body: Body) -> dict[str, Any]:
        fields = {"file_type": str, "file_name": str, "file": bytes, "duration": str}
        self._arguments("file.create", body, fields, optional={"duration"})
        if body["file_type"] not in _FILE_TYPES:
            self._bad("file.create", f"file_type {body['file_type']}")
        self._size(body["file"], FILE_BYTES)
        return {
            "data": {
                "file_key": self._keep("file_", body["file_type"], body["file_name"], body["file"])
            }
        }

    def _size(self, data: bytes, limit: int) -> None:
        if not data:
            raise FeishuApiError(234010, "File's size can't be 0.")
        if len(data) > limit:
            raise FeishuApiError(234006, "The file size exceed the max value.")

    def _keep(self, prefix: str, kind: str, name: str, data: bytes) -> str:
        key = self._state.next_id(prefix)
        self._state.files[key] = (kind, name, data)
        return key

    def _find(self, request: web.Request, op: str) -> FeishuMessage:
        message = self._state.messages.get(request.match_info["id"])
        if message is None:
            self._bad(op, f"no message {request.match_info['id']}")
        if message.gone:
            raise FeishuApiError(230011, "The message has been recalled.")
        return message

    def _arguments(
        self, op: str, body: Body, fields: Mapping[str, type], *, optional: set[str] | None = None
    ) -> None:
        """Refuse unknown, missing and mistyped arguments."""
        if unknown := set(body) - set(fields):
            self._bad(op, f"unknown arguments {sorted(unknown)}")
        if missing := set(fields) - set(body) - (optional or set()):
            self._bad(op, f"missing arguments {sorted(missing)}")
        wrong = [name for name, value in body.items() if not isinstance(value, fields[name])]
        if wrong:
            self._bad(op, f"wrong types of {wrong}")

    def _bad(self, op: str, text: str) -> NoReturn:
        self._state.violation(f"{op}: {text}")
        raise FeishuApiError(230001, f"Your request contains an invalid request parameter: {text}")


def _shown(message: FeishuMessage) -> dict[str, Any]:
    return {
        "message_id": message.id,
        "chat_id": message.chat,
        "msg_type": message.type,
        "root_id": message.root,
        "parent_id": message.reply_to,
        "thread_id": message.thread,
        "create_time": str(int(message.made_at * 1000)),
    }


def _broken_image(card: dict[str, Any]) -> bool:
    return any(re.search(r"!\[[^\]]*\]\((?!img_)", text) for text in cards.markdown(card))


def _drop(request: web.Request) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


async def _body(request: web.Request) -> Body:
    """Return the request's arguments. A body that is not an object has none."""
    if request.content_type == "multipart/form-data":
        return await _form(request)
    try:
        body = await request.json() if request.method in {"POST", "PATCH", "PUT"} else {}
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


async def _form(request: web.Request) -> Body:
    fields: Body = {}
    reader = await request.multipart()
    while (part := await reader.next()) is not None:
        if isinstance(part, BodyPartReader):
            data = bytes(await part.read(decode=False))
            fields[part.name or ""] = data if part.filename else data.decode()
    return fields
