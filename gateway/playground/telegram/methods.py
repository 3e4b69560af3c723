"""The Bot API's methods, over the chats of a `TelegramServer`."""

import re
import time

import anyio
from typing_extensions import Unpack

from gateway.playground.telegram.calls import TelegramCall
from gateway.playground.telegram.chats import (
    Json,
    TelegramApiError,
    TelegramChat,
    TelegramMessage,
    TelegramUpload,
    Wire,
    mentions,
    units,
)
from gateway.playground.telegram.push import TelegramWebhookSender
from gateway.playground.telegram.rich import checked_blocks, names_in, words_of
from gateway.playground.telegram.state import TelegramMessageFields
from gateway.playground.telegram.users import MessageDraft, TelegramUsers

_TEXT_UNITS = 4096
_CAPTION_UNITS = 1024
_ENTITIES = 100
_PHOTO_BYTES = 10_000_000
_DOCUMENT_BYTES = 50_000_000
_BUTTONS = 100
_ROW_BUTTONS = 8
_DATA_BYTES = 64
_PICTURES = (b"\xff\xd8\xff", b"\x89PNG", b"RIFF", b"GIF8")
_ENTITY_TYPES = {
    "bold", "italic", "underline", "strikethrough", "spoiler", "blockquote",
    "expandable_blockquote", "code", "pre", "text_link", "text_mention", "custom_emoji",
}  # fmt: skip


class TelegramMethods:
    """Responds to calls. Raises TelegramApiError if Telegram would refuse."""

    def __init__(
        self,
        server: TelegramUsers,
        pusher: TelegramWebhookSender,
        *,
        group_per_minute: int,
        classic: bool,
    ) -> None:
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
            "getChatMember": self._get_chat_member,
            "sendMessage": self._send_message,
            "sendPhoto": self._send_photo,
            "sendDocument": self._send_document,
            "sendChatAction": self._send_chat_action,
            "editMessageText": self._edit_message_text,
            "deleteMessage": self._delete_message,
            "setMessageReaction": self._set_message_reaction,
            "getFile": self._get_file,
            "answerCallbackQuery": self._answer_callback_query,
            "editMessageReplyMarkup": self._edit_message_reply_markup,
        }
        if not classic:
            self._known |= {
                "sendMessageDraft": self._send_message_draft,
                "sendRichMessage": self._send_rich_message,
            }
        self._classic = classic

    async def call(self, method: str, call: TelegramCall) -> Wire:
        """Respond to one call."""
        if method == "getUpdates":
            return await self._get_updates(call)
        known = self._known.get(method)
        if known is None:
            raise TelegramApiError(404, "Not Found: method not found")
        await anyio.lowlevel.checkpoint()
        return known(call)

    async def _get_updates(self, call: TelegramCall) -> list[Json]:
        if self._server.webhook:
            raise TelegramApiError(
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

    def _get_me(self, _call: TelegramCall) -> Json:
        abilities = ("can_join_groups", "supports_inline_queries", "can_connect_to_business")
        return (
            self._server.bot
            | dict.fromkeys(abilities, True)
            | {
                "can_read_all_group_messages": not self._server.privacy,
                "has_main_web_app": False,
            }
        )

    def _get_webhook_info(self, _call: TelegramCall) -> Json:
        return self._pusher.info()

    def _set_webhook(self, call: TelegramCall) -> bool:
        allowed = call.data("allowed_updates")
        if allowed is not None:
            self._server.allowed_updates = allowed
        self._pusher.set(call.text("url"), secret=call.text("secret_token"))
        return True

    def _delete_webhook(self, call: TelegramCall) -> bool:
        self._server.webhook = ""
        if call.text("drop_pending_updates").lower() == "true":
            self._server.forget_updates()
        return True

    def _set_my_commands(self, call: TelegramCall) -> bool:
        commands = call.data("commands") or []
        right = len(commands) <= 100 and all(
            re.fullmatch(r"[a-z0-9_]{1,32}", command.get("command", ""))
            and 1 <= len(command.get("description", "")) <= 256
            for command in commands
        )
        if not right:
            raise TelegramApiError(400, "Bad Request: BOT_COMMAND_INVALID")
        language = call.text("language_code")
        if language and not re.fullmatch(r"[a-z]{2}", language):
            raise TelegramApiError(400, "Bad Request: LANG_CODE_INVALID")
        if language:
            self._server.translated[language] = commands
        else:
            self._server.commands = commands
        return True

    def _get_my_commands(self, _call: TelegramCall) -> list[Json]:
        return self._server.commands

    def _send_message(self, call: TelegramCall) -> Json:
        chat = self._chat(call)
        text, entities = self._text(call)
        return self._posted(chat, call, text=text, entities=entities)

    def _send_rich_message(self, call: TelegramCall) -> Json:
        chat = self._chat(call)
        blocks = checked_blocks(call.data("rich_message"))
        self._calls_nobody(names_in(blocks))
        return self._posted(chat, call, text=words_of(blocks), rich=blocks)

    def _send_message_draft(self, call: TelegramCall) -> bool:
        chat = self._chat(call)
        if chat.kind != "private":
            raise TelegramApiError(400, "Bad Request: TEXTDRAFT_PEER_INVALID")
        number = call.number("draft_id")
        if not number:
            raise TelegramApiError(400, "Bad Request: draft_id must be non-zero")
        text = self._text(call)[0] if call.text("text") else ""
        draft = MessageDraft(
            chat=chat.chat_id,
            number=number,
            text=text,
            thread=self._thread(chat, call),
            can_stop=call.text("can_stop").lower() == "true",
        )
        self._server.drafts.append(draft)
        self._server.log.append(("draft", chat.chat_id, draft.number))
        return True

    def _answer_callback_query(self, call: TelegramCall) -> bool:
        alert = call.text("show_alert").lower() == "true"
        self._server.answer_query(call.text("callback_query_id"), call.text("text"), alert=alert)
        return True

    def _send_photo(self, call: TelegramCall) -> Json:
        upload = self._upload(call, "photo", _PHOTO_BYTES)
        if not upload.content.startswith(_PICTURES):
            raise TelegramApiError(400, "Bad Request: IMAGE_PROCESS_FAILED")
        return self._posted_file(call, "photo", upload)

    def _send_document(self, call: TelegramCall) -> Json:
        return self._posted_file(call, "document", self._upload(call, "document", _DOCUMENT_BYTES))

    def _send_chat_action(self, call: TelegramCall) -> bool:
        chat = self._chat(call)
        thread = self._thread(chat, call)
        self._server.log.append((call.text("action"), chat.chat_id, thread or ""))
        return True

    def _edit_message_text(self, call: TelegramCall) -> Json:
        message = self._own(call, "edit")
        if message.file is not None:
            raise TelegramApiError(400, "Bad Request: there is no text in the message to edit")
        rich = call.data("rich_message")
        if rich is not None and not self._classic:
            blocks = checked_blocks(rich)
            self._calls_nobody(names_in(blocks))
            return self._changed(message, call, text=words_of(blocks), rich=blocks)
        text, entities = self._text(call)
        return self._changed(message, call, text=text, entities=entities)

    def _edit_message_reply_markup(self, call: TelegramCall) -> Json:
        message = self._own(call, "edit")
        return self._changed(
            message, call, text=message.text, entities=message.entities, rich=message.rich
        )

    def _changed(
        self, message: TelegramMessage, call: TelegramCall, **content: Unpack[TelegramMessageFields]
    ) -> Json:
        """Change a message's text and buttons. Removes the buttons if the call has none."""
        markup = self._markup(call)
        text, entities = content.get("text", ""), content.get("entities", [])
        rich = content.get("rich", [])
        before = (message.text, message.entities, message.rich, message.markup)
        if (text, entities, rich, markup) == before:
            raise TelegramApiError(
                400,
                "Bad Request: message is not modified: specified new message content and reply markup"
                " are exactly the same as a current content and reply markup of the message",
            )
        self._flood(self._server.chat(message.chat_id))
        if text != message.text:
            message.history.append(message.text)
        message.text, message.entities, message.rich, message.markup = text, entities, rich, markup
        return self._server.json_of(message)

    def _calls_nobody(self, names: list[str]) -> None:
        if names:
            self._server.violations.append(f"a text mentions {', '.join(names)}")

    def _text(self, call: TelegramCall) -> tuple[str, list[Json]]:
        self._no_markup(call)
        text = call.text("text").strip()
        entities = self._entities(call, "entities", call.text("text"))
        self._calls_nobody(mentions(call.text("text"), entities))
        if not text:
            raise TelegramApiError(400, "Bad Request: message text is empty")
        if units(text) > _TEXT_UNITS:
            raise TelegramApiError(400, "Bad Request: message is too long")
        return text, entities

    def _markup(self, call: TelegramCall) -> list[list[Json]]:
        """Return the rows of an inline keyboard."""
        rows: list[list[Json]] = (call.data("reply_markup") or {}).get("inline_keyboard", [])
        if sum(map(len, rows)) > _BUTTONS or any(len(row) > _ROW_BUTTONS for row in rows):
            raise TelegramApiError(400, "Bad Request: REPLY_MARKUP_TOO_LONG")
        for button in (button for row in rows for button in row):
            if not button.get("text"):
                raise TelegramApiError(
                    400, "Bad Request: can't parse inline keyboard button: text is empty"
                )
            if not 1 <= len(button.get("callback_data", "").encode()) <= _DATA_BYTES:
                raise TelegramApiError(400, "Bad Request: BUTTON_DATA_INVALID")
        return rows

    def _delete_message(self, call: TelegramCall) -> bool:
        self._own(call, "delete").deleted = True
        return True

    def _set_message_reaction(self, call: TelegramCall) -> bool:
        message = self._chat(call).messages.get(call.number("message_id") or 0)
        if message is None:
            raise TelegramApiError(400, "Bad Request: message to react not found")
        message.reactions = [reaction["emoji"] for reaction in call.data("reaction") or []]
        return True

    def _get_file(self, call: TelegramCall) -> Json:
        file = self._server.files.get(call.text("file_id"))
        if file is None:
            raise TelegramApiError(
                400, "Bad Request: wrong file_id or the file is temporarily unavailable"
            )
        if len(file.content) > 20_000_000:
            raise TelegramApiError(400, "Bad Request: file is too big")
        return {
            "file_id": file.file_id,
            "file_unique_id": f"u{file.file_id}",
            "file_size": len(file.content),
            "file_path": file.path,
        }

    def _posted_file(self, call: TelegramCall, kind: str, upload: TelegramUpload) -> Json:
        chat = self._chat(call)
        caption = call.text("caption")
        if units(caption) > _CAPTION_UNITS:
            raise TelegramApiError(400, "Bad Request: message caption is too long")
        entities = self._entities(call, "caption_entities", caption)
        return self._posted(
            chat, call, text=caption, entities=entities, file=self._server.keep(kind, upload)
        )

    def _posted(
        self, chat: TelegramChat, call: TelegramCall, **content: Unpack[TelegramMessageFields]
    ) -> Json:
        content["thread"] = self._thread(chat, call)
        content["reply_to"] = self._reply(chat, call)
        content["markup"] = self._markup(call)
        content["silent"] = call.text("disable_notification").lower() == "true"
        self._flood(chat)
        message = self._server.post(chat, **content)
        return self._server.json_of(message)

    def _upload(self, call: TelegramCall, name: str, most: int) -> TelegramUpload:
        upload = call.files.get(name)
        if upload is None:
            raise TelegramApiError(400, "Bad Request: there is no file in the request")
        if not upload.content:
            raise TelegramApiError(400, "Bad Request: file must be non-empty")
        if len(upload.content) > most:
            raise TelegramApiError(413, "Request Entity Too Large")
        return upload

    def _get_chat_member(self, call: TelegramCall) -> Json:
        chat, person = self._chat(call), call.number("user_id") or 0
        if chat.hides_members:
            raise TelegramApiError(400, "Bad Request: CHAT_ADMIN_REQUIRED")
        user = {"id": person, "is_bot": False, "first_name": f"User{person}"}
        return {"status": "member", **chat.standings.get(person, {}), "user": user}

    def _chat(self, call: TelegramCall) -> TelegramChat:
        """Return the chat of a call. In a private chat, the person must have started the bot."""
        chat = self._server.chats.get(call.number("chat_id") or 0)
        if chat is None:
            raise TelegramApiError(400, "Bad Request: chat not found")
        if chat.moved_to is not None:
            raise TelegramApiError(
                400,
                "Bad Request: group chat was upgraded to a supergroup chat",
                {"migrate_to_chat_id": chat.moved_to},
            )
        if chat.shut:
            raise TelegramApiError(403, chat.shut)
        return chat

    def _thread(self, chat: TelegramChat, call: TelegramCall) -> int | None:
        thread = call.number("message_thread_id")
        if thread is None:
            return None
        topic = chat.topics.get(thread)
        if topic is None:
            raise TelegramApiError(400, "Bad Request: message thread not found")
        if topic.closed:
            raise TelegramApiError(400, "Bad Request: TOPIC_CLOSED")
        return thread

    def _reply(self, chat: TelegramChat, call: TelegramCall) -> int | None:
        parameters = call.data("reply_parameters")
        if not parameters:
            return None
        message = chat.messages.get(parameters["message_id"])
        if message is not None and not message.deleted:
            return message.message_id
        if parameters.get("allow_sending_without_reply"):
            return None
        raise TelegramApiError(400, "Bad Request: message to be replied not found")

    def _flood(self, chat: TelegramChat) -> None:
        if chat.kind == "private":
            return
        now = time.monotonic()
        recent = [at for at in self._sent_at.get(chat.chat_id, []) if now - at < 60]
        if len(recent) >= self._group_per_minute:
            wait = int(60 - (now - recent[0])) + 1
            raise TelegramApiError(
                429, f"Too Many Requests: retry after {wait}", {"retry_after": wait}
            )
        self._sent_at[chat.chat_id] = [*recent, now]

    def _own(self, call: TelegramCall, what: str) -> TelegramMessage:
        message = self._chat(call).messages.get(call.number("message_id") or 0)
        if message is None or message.deleted:
            raise TelegramApiError(400, f"Bad Request: message to {what} not found")
        if not message.by_bot:
            raise TelegramApiError(400, f"Bad Request: message can't be {what.removesuffix('e')}ed")
        return message

    def _no_markup(self, call: TelegramCall) -> None:
        if call.text("parse_mode"):
            self._server.violations.append("parse_mode is not modelled: send entities")

    def _entities(self, call: TelegramCall, name: str, text: str) -> list[Json]:
        entities: list[Json] = call.data(name) or []
        if len(entities) > _ENTITIES:
            self._server.violations.append(f"{len(entities)} entities: only {_ENTITIES} are heeded")
        encoded = text.encode("utf-16-le")
        for entity in entities:
            start, end = entity["offset"], entity["offset"] + entity["length"]
            if entity["type"] not in _ENTITY_TYPES or entity["length"] <= 0:
                raise TelegramApiError(400, "Bad Request: can't parse entities: wrong entity")
            try:
                part = encoded[start * 2 : end * 2].decode("utf-16-le")
            except UnicodeDecodeError as error:
                raise TelegramApiError(
                    400, "Bad Request: can't parse entities: entity splits a character"
                ) from error
            if start < 0 or units(part) != entity["length"]:
                raise TelegramApiError(
                    400, "Bad Request: can't parse entities: entity is out of the text"
                )
        return entities
