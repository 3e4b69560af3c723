"""The Bot API's methods, over the chats of a `TelegramServer`."""

import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio
from typing_extensions import Unpack

from tests.fakes.telegram_chats import ApiError, Chat, Json, Message, Upload, Wire, units
from tests.fakes.telegram_push import Pusher
from tests.fakes.telegram_world import Content, World

_TEXT_UNITS = 4096
_CAPTION_UNITS = 1024
_ENTITIES = 100
_PHOTO_BYTES = 10_000_000
_DOCUMENT_BYTES = 50_000_000
_PICTURES = (b"\xff\xd8\xff", b"\x89PNG", b"RIFF", b"GIF8")
_ENTITY_TYPES = {
    "bold", "italic", "underline", "strikethrough", "spoiler", "blockquote",
    "expandable_blockquote", "code", "pre", "text_link", "text_mention", "custom_emoji",
}  # fmt: skip


@dataclass(slots=True, kw_only=True)
class Call:
    """A call's arguments, with typed access."""

    arguments: Mapping[str, Any]
    files: Mapping[str, Upload] = field(default_factory=dict)

    def text(self, name: str) -> str:
        return str(self.arguments.get(name, ""))

    def number(self, name: str) -> int | None:
        try:
            return int(self.arguments[name])
        except (KeyError, ValueError):
            return None

    def data(self, name: str) -> Wire:
        """Return a JSON argument, or None."""
        value = self.arguments.get(name)
        return json.loads(value) if isinstance(value, str) else value


class Methods:
    """Answers calls; raises ApiError where Telegram would refuse."""

    def __init__(self, server: World, pusher: Pusher, *, group_per_minute: int) -> None:
        self._server = server
        self._pusher = pusher
        self._group_per_minute = group_per_minute
        self._sent_at: dict[int, list[float]] = {}
        self._known = {
            "getMe": self._get_me,
            "getWebhookInfo": self._get_webhook_info,
            "setWebhook": self._set_webhook,
            "deleteWebhook": self._delete_webhook,
            "setMyCommands": self._set_my_commands,
            "getMyCommands": self._get_my_commands,
            "sendMessage": self._send_message,
            "sendPhoto": self._send_photo,
            "sendDocument": self._send_document,
            "sendChatAction": self._send_chat_action,
            "editMessageText": self._edit_message_text,
            "deleteMessage": self._delete_message,
            "setMessageReaction": self._set_message_reaction,
            "getFile": self._get_file,
        }

    async def call(self, method: str, call: Call) -> Wire:
        """Answer one call."""
        if method == "getUpdates":
            return await self._get_updates(call)
        known = self._known.get(method)
        if known is None:
            raise ApiError(404, "Not Found: method not found")
        await anyio.lowlevel.checkpoint()
        return known(call)

    async def _get_updates(self, call: Call) -> list[Json]:
        if self._server.webhook:
            raise ApiError(
                409,
                "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to"
                " delete the webhook first",
            )
        allowed = call.data("allowed_updates")
        if allowed is not None:
            self._server.allowed_updates = allowed
        offset = call.number("offset")
        if offset is not None:
            self._server.confirm(offset)
        limit = min(max(call.number("limit") or 100, 1), 100)
        return await self._server.poll(call.number("timeout") or 0, limit)

    def _get_me(self, _call: Call) -> Json:
        abilities = ("can_join_groups", "supports_inline_queries", "can_connect_to_business")
        return (
            self._server.bot
            | dict.fromkeys(abilities, True)
            | {
                "can_read_all_group_messages": not self._server.privacy,
                "has_main_web_app": False,
            }
        )

    def _get_webhook_info(self, _call: Call) -> Json:
        return self._pusher.info()

    def _set_webhook(self, call: Call) -> bool:
        allowed = call.data("allowed_updates")
        if allowed is not None:
            self._server.allowed_updates = allowed
        self._pusher.set(call.text("url"), secret=call.text("secret_token"))
        return True

    def _delete_webhook(self, call: Call) -> bool:
        self._server.webhook = ""
        if call.text("drop_pending_updates").lower() == "true":
            self._server.forget_updates()
        return True

    def _set_my_commands(self, call: Call) -> bool:
        commands = call.data("commands") or []
        right = len(commands) <= 100 and all(
            re.fullmatch(r"[a-z0-9_]{1,32}", command.get("command", ""))
            and 1 <= len(command.get("description", "")) <= 256
            for command in commands
        )
        if not right:
            raise ApiError(400, "Bad Request: BOT_COMMAND_INVALID")
        self._server.commands = commands
        return True

    def _get_my_commands(self, _call: Call) -> list[Json]:
        return self._server.commands

    def _send_message(self, call: Call) -> Json:
        chat = self._chat(call)
        self._no_markup(call)
        text = call.text("text").strip()
        if not text:
            raise ApiError(400, "Bad Request: message text is empty")
        if units(text) > _TEXT_UNITS:
            raise ApiError(400, "Bad Request: message is too long")
        entities = self._entities(call, "entities", call.text("text"))
        return self._posted(chat, call, text=text, entities=entities)

    def _send_photo(self, call: Call) -> Json:
        upload = self._upload(call, "photo", _PHOTO_BYTES)
        if not upload.content.startswith(_PICTURES):
            raise ApiError(400, "Bad Request: IMAGE_PROCESS_FAILED")
        return self._posted_file(call, "photo", upload)

    def _send_document(self, call: Call) -> Json:
        return self._posted_file(call, "document", self._upload(call, "document", _DOCUMENT_BYTES))

    def _send_chat_action(self, call: Call) -> bool:
        chat = self._chat(call)
        thread = self._thread(chat, call)
        self._server.log.append((call.text("action"), chat.chat_id, thread or ""))
        return True

    def _edit_message_text(self, call: Call) -> Json:
        message = self._own(call, "edit")
        self._no_markup(call)
        text = call.text("text").strip()
        entities = self._entities(call, "entities", call.text("text"))
        if not text:
            raise ApiError(400, "Bad Request: message text is empty")
        if units(text) > _TEXT_UNITS:
            raise ApiError(400, "Bad Request: message is too long")
        if (text, entities) == (message.text, message.entities):
            raise ApiError(
                400,
                "Bad Request: message is not modified: specified new message content and reply markup"
                " are exactly the same as a current content and reply markup of the message",
            )
        message.history.append(message.text)
        message.text, message.entities = text, entities
        return self._server.json_of(message)

    def _delete_message(self, call: Call) -> bool:
        self._own(call, "delete").deleted = True
        return True

    def _set_message_reaction(self, call: Call) -> bool:
        message = self._chat(call).messages.get(call.number("message_id") or 0)
        if message is None:
            raise ApiError(400, "Bad Request: message to react not found")
        message.reactions = [reaction["emoji"] for reaction in call.data("reaction") or []]
        return True

    def _get_file(self, call: Call) -> Json:
        file = self._server.files.get(call.text("file_id"))
        if file is None:
            raise ApiError(400, "Bad Request: wrong file_id or the file is temporarily unavailable")
        if len(file.content) > 20_000_000:
            raise ApiError(400, "Bad Request: file is too big")
        return {
            "file_id": file.file_id,
            "file_unique_id": f"u{file.file_id}",
            "file_size": len(file.content),
            "file_path": file.path,
        }

    def _posted_file(self, call: Call, kind: str, upload: Upload) -> Json:
        chat = self._chat(call)
        caption = call.text("caption")
        if units(caption) > _CAPTION_UNITS:
            raise ApiError(400, "Bad Request: message caption is too long")
        entities = self._entities(call, "caption_entities", caption)
        return self._posted(
            chat, call, text=caption, entities=entities, file=self._server.keep(kind, upload)
        )

    def _posted(self, chat: Chat, call: Call, **content: Unpack[Content]) -> Json:
        content["thread"] = self._thread(chat, call)
        content["reply_to"] = self._reply(chat, call)
        self._flood(chat)
        message = self._server.post(chat, **content)
        return self._server.json_of(message)

    def _upload(self, call: Call, name: str, most: int) -> Upload:
        upload = call.files.get(name)
        if upload is None:
            raise ApiError(400, "Bad Request: there is no file in the request")
        if not upload.content:
            raise ApiError(400, "Bad Request: file must be non-empty")
        if len(upload.content) > most:
            raise ApiError(413, "Request Entity Too Large")
        return upload

    def _chat(self, call: Call) -> Chat:
        """Return the chat of a call: one where somebody has met the bot before."""
        chat = self._server.chats.get(call.number("chat_id") or 0)
        if chat is None:
            raise ApiError(400, "Bad Request: chat not found")
        if chat.moved_to is not None:
            raise ApiError(
                400,
                "Bad Request: group chat was upgraded to a supergroup chat",
                {"migrate_to_chat_id": chat.moved_to},
            )
        if chat.shut:
            raise ApiError(403, chat.shut)
        return chat

    def _thread(self, chat: Chat, call: Call) -> int | None:
        thread = call.number("message_thread_id")
        if thread is None:
            return None
        topic = chat.topics.get(thread)
        if topic is None:
            raise ApiError(400, "Bad Request: message thread not found")
        if topic.closed:
            raise ApiError(400, "Bad Request: TOPIC_CLOSED")
        return thread

    def _reply(self, chat: Chat, call: Call) -> int | None:
        parameters = call.data("reply_parameters")
        if not parameters:
            return None
        message = chat.messages.get(parameters["message_id"])
        if message is not None and not message.deleted:
            return message.message_id
        if parameters.get("allow_sending_without_reply"):
            return None
        raise ApiError(400, "Bad Request: message to be replied not found")

    def _flood(self, chat: Chat) -> None:
        if chat.kind == "private":
            return
        now = time.monotonic()
        recent = [at for at in self._sent_at.get(chat.chat_id, []) if now - at < 60]
        if len(recent) >= self._group_per_minute:
            wait = int(60 - (now - recent[0])) + 1
            raise ApiError(429, f"Too Many Requests: retry after {wait}", {"retry_after": wait})
        self._sent_at[chat.chat_id] = [*recent, now]

    def _own(self, call: Call, what: str) -> Message:
        message = self._chat(call).messages.get(call.number("message_id") or 0)
        if message is None or message.deleted:
            raise ApiError(400, f"Bad Request: message to {what} not found")
        if not message.by_bot:
            raise ApiError(400, f"Bad Request: message can't be {what.removesuffix('e')}ed")
        return message

    def _no_markup(self, call: Call) -> None:
        if call.text("parse_mode"):
            self._server.violations.append("parse_mode is not modelled: send entities")

    def _entities(self, call: Call, name: str, text: str) -> list[Json]:
        entities: list[Json] = call.data(name) or []
        if len(entities) > _ENTITIES:
            self._server.violations.append(f"{len(entities)} entities: only {_ENTITIES} are heeded")
        encoded = text.encode("utf-16-le")
        for entity in entities:
            start, end = entity["offset"], entity["offset"] + entity["length"]
            if entity["type"] not in _ENTITY_TYPES or entity["length"] <= 0:
                raise ApiError(400, "Bad Request: can't parse entities: wrong entity")
            try:
                part = encoded[start * 2 : end * 2].decode("utf-16-le")
            except UnicodeDecodeError as error:
                raise ApiError(
                    400, "Bad Request: can't parse entities: entity splits a character"
                ) from error
            if start < 0 or units(part) != entity["length"]:
                raise ApiError(400, "Bad Request: can't parse entities: entity is out of the text")
        return entities
