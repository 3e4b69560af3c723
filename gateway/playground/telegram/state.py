"""The state of a `TelegramServer`: users, chats, messages, pending updates."""

from collections import deque
from collections.abc import Callable, Sequence
from typing import TypedDict, TypeVar

import anyio
from typing_extensions import Unpack

from gateway.playground import WITHIN_S
from gateway.playground.telegram.chats import (
    ForumTopic,
    Json,
    TelegramApiError,
    TelegramChat,
    TelegramFile,
    TelegramMessage,
    TelegramUpload,
    detect,
    message_json,
    user_json,
)

T = TypeVar("T")

_NOT_BY_DEFAULT = {"chat_member", "message_reaction", "message_reaction_count"}
_SMALLEST_BASIC_GROUP = -1_000_000_000


class TelegramMessageFields(TypedDict, total=False):
    """The content of a message. See `TelegramMessage`."""

    text: str
    entities: list[Json]
    thread: int | None
    reply_to: int | None
    file: TelegramFile | None
    service: Json
    markup: list[list[Json]]
    rich: list[Json]
    silent: bool
    extra: Json


class TelegramMessageOptions(TypedDict, total=False):
    """Options of a person's message.

    Attributes:
        thread: Forum topic.
        reply_to: The message that it replies to.
        entities: Replaces the mentions and commands found in the text.
        file: See `send_file`.
        extra: Further fields of the Message object, such as sender_chat, a poll, or `quote`.
    """

    thread: int | None
    reply_to: int | None
    entities: Sequence[Json]
    file: TelegramFile
    extra: Json


class TelegramState:
    """Chats, people, files and updates, with people's actions and views."""

    def __init__(self, *, bot: Json, privacy: bool) -> None:
        self.bot = bot
        self.privacy = privacy
        self.chats: dict[int, TelegramChat] = {}
        self.files: dict[str, TelegramFile] = {}
        self.violations: list[str] = []
        self.log: list[tuple[str, int, int | str]] = []
        self.confirmed: list[int] = []
        self.webhook = ""
        self.commands: list[Json] = []
        self.translated: dict[str, list[Json]] = {}
        self.languages: dict[int, str] = {}  # The languages of people's apps, by user ID.
        self.people: dict[int, Json] = {}  # Fields that differ from `user_json`, by user ID.
        self.listeners: list[Callable[[], object]] = []  # Called after each change.
        self.withholding = False
        self.conflicts = 0
        self.allowed_updates: list[str] | None = None
        self._updates: deque[Json] = deque()
        self._update_id = 9000
        self._private_id = 0
        self._poller: anyio.Event | None = None
        self._changed = anyio.Event()

    @property
    def username(self) -> str:
        return str(self.bot["username"])

    @property
    def bot_id(self) -> int:
        return int(self.bot["id"])

    # People's actions.

    def dm(self, text: str, *, user: int = 1001, **how: Unpack[TelegramMessageOptions]) -> int:
        """Write to the bot in private; `how` as in `say`."""
        return self.say(user, text, user=user, **how)

    def mention(
        self, chat: int, text: str, *, user: int = 1001, **how: Unpack[TelegramMessageOptions]
    ) -> int:
        """Write `@bot text` in a group; `how` as in `say`."""
        return self.say(chat, f"@{self.username} {text}", user=user, **how)

    def say(
        self, chat: int, text: str, *, user: int = 1001, **how: Unpack[TelegramMessageOptions]
    ) -> int:
        """Write a message and, if the bot may see it, queue its update.

        Args:
            chat: The chat's ID, which is `user` in private.
            text: The text, or the caption of a file.
            user: The author's ID.
            how: See `TelegramMessageOptions`.
        """
        place = self.chat(chat)
        message = self._add(
            place,
            sender=user,
            text=text,
            entities=list(how.get("entities", detect(text))),
            thread=how.get("thread"),
            reply_to=how.get("reply_to"),
            file=how.get("file"),
            extra=how.get("extra", {}),
        )
        if self._visible(place, message):
            self.push({"message": self.json_of(message)})
        self.changed()
        return message.message_id

    def send_file(
        self,
        chat: int,
        upload: TelegramUpload,
        *,
        kind: str = "document",
        caption: str = "",
        user: int = 1001,
    ) -> int:
        """Send a file; `kind` is the field of Message: photo, document, voice, audio, video."""
        return self.say(chat, caption, user=user, file=self.keep(kind, upload))

    def edit(self, chat: int, message_id: int, text: str) -> None:
        """Edit a user's message."""
        message = self.chat(chat).messages[message_id]
        message.history.append(message.text)
        message.text, message.entities = text, detect(text)
        self.push({"edited_message": self.json_of(message) | {"edit_date": message.date}})
        self.changed()

    def push(self, update: Json) -> int:
        """Queue an update of any shape; return its id."""
        self._update_id += 1
        kinds = [kind for kind in update if kind != "update_id"]
        if self._wanted(kinds):
            self._updates.append({"update_id": self._update_id, **update})
        self.changed()
        return self._update_id

    def shuffle(self, *order: int) -> None:
        """Reorder waiting updates: first the one at `order[0]`, and so on."""
        waiting = list(self._updates)
        assert sorted(order) == list(range(len(waiting)))
        for number, place in enumerate(order):
            update_id = waiting[number]["update_id"]
            self._updates[number] = {**waiting[place], "update_id": update_id}

    def add_forum(self, chat: int) -> TelegramChat:
        """Make a supergroup with topics."""
        place = self.chat(chat)
        place.kind, place.forum = "supergroup", True
        place.last_id = max(place.last_id, 1)  # 1 is the ID of the General topic.
        return place

    def add_topic(self, chat: int, name: str, *, by_bot: bool = False) -> int:
        """Open a topic. Return its thread ID, which is the ID of its first message."""
        place = self.chat(chat)
        created = {"forum_topic_created": {"name": name, "icon_color": 7322096}}
        sender = self.bot_id if by_bot else 1001
        message = self._add(place, sender=sender, by_bot=by_bot, service=created)
        message.thread = message.message_id
        place.topics[message.message_id] = ForumTopic(thread=message.message_id, name=name)
        if not by_bot:
            self.push({"message": self.json_of(message)})
        return message.message_id

    def delete_topic(self, chat: int, thread: int) -> None:
        """Delete a topic with all of its messages. Telegram does not notify bots."""
        place = self.chat(chat)
        del place.topics[thread]
        for message in place.messages.values():
            message.deleted = message.deleted or message.thread == thread

    def block(self, chat: int, reason: str = "Forbidden: bot was blocked by the user") -> None:
        """Remove the bot from a chat."""
        self.chat(chat).shut = reason

    def migrate(self, chat: int, to: int) -> None:
        """Turn a group into a supergroup with another ID. Both chats get a service message."""
        self.chat(chat).moved_to = to
        self.chat(to).kind = "supergroup"
        self.push({"message": self._service(chat, {"migrate_to_chat_id": to})})
        self.push({"message": self._service(to, {"migrate_from_chat_id": chat})})

    # The visible content.

    @property
    def last_update(self) -> int:
        """The ID of the newest update."""
        return self._update_id

    @property
    def backlog(self) -> int:
        """Number of unconfirmed updates."""
        return len(self._updates)

    def messages(self, chat: int, *, thread: int | None = None) -> list[TelegramMessage]:
        """Return the visible messages of a chat or of one of its topics, oldest first."""
        seen = self.chat(chat).messages.values()
        return [m for m in seen if not m.deleted and (thread is None or m.thread == thread)]

    def answers(self, chat: int, *, thread: int | None = None) -> list[TelegramMessage]:
        """Return the bot's visible messages of a chat or topic, oldest first."""
        return [message for message in self.messages(chat, thread=thread) if message.by_bot]

    async def wait_for(self, predicate: Callable[[], T], timeout_s: float = WITHIN_S) -> T:
        """Return the predicate's first true value. It is called after every change."""
        with anyio.move_on_after(timeout_s):
            while True:
                event = self._changed
                if value := predicate():
                    return value
                await event.wait()
        raise AssertionError(f"nothing came within {timeout_s} s; {self.described()}")

    def described(self) -> str:
        """Return the latest actions, for a failed test."""
        return f"log: {self.log[-10:]}, violations: {self.violations}"

    # For the methods.

    def chat(self, chat_id: int) -> TelegramChat:
        """Return a chat. Creates it if necessary."""
        if chat_id not in self.chats:
            kind = "private" if chat_id > 0 else "supergroup"
            kind = "group" if _SMALLEST_BASIC_GROUP < chat_id < 0 else kind
            self.chats[chat_id] = TelegramChat(chat_id=chat_id, kind=kind, title=f"Group {chat_id}")
        return self.chats[chat_id]

    def post(self, chat: TelegramChat, **content: Unpack[TelegramMessageFields]) -> TelegramMessage:
        """Add a message of the bot."""
        message = self._add(chat, sender=self.bot_id, by_bot=True, **content)
        self.log.append(("message", chat.chat_id, message.message_id))
        return message

    def keep(self, kind: str, upload: TelegramUpload) -> TelegramFile:
        """Keep a file."""
        file = TelegramFile(
            file_id=f"file{len(self.files) + 1}",
            kind=kind,
            name=upload.name,
            content=upload.content,
            mime=upload.mime,
        )
        self.files[file.file_id] = file
        return file

    def json_of(self, message: TelegramMessage) -> Json:
        """Return a message with the message it replies to."""
        chat = self.chat(message.chat_id)
        body = message_json(chat, message, self._sender(message))
        if "reply_to_message" in message.extra or "external_reply" in message.extra:
            return body
        answered = message.reply_to
        if answered is None and message.thread is not None and not message.service:
            answered = (
                message.thread
            )  # In a topic, every message replies to the topic's first message.
        if answered in chat.messages:
            replied = chat.messages[answered]
            body["reply_to_message"] = message_json(
                chat, replied, self._sender(replied), nested=True
            )
        return body

    def changed(self) -> None:
        """Wake all waiters."""
        event, self._changed = self._changed, anyio.Event()
        event.set()
        for told in self.listeners:
            told()

    def confirm(self, offset: int) -> None:
        """Forget the updates before an offset. A negative offset keeps that many of the last updates."""
        while self._updates and (
            self._updates[0]["update_id"] < offset if offset >= 0 else len(self._updates) > -offset
        ):
            self.confirmed.append(self._updates.popleft()["update_id"])

    def oldest(self) -> Json | None:
        """Return the oldest waiting update."""
        return self._updates[0] if self._updates else None

    def waiting(self) -> list[Json]:
        """Return the unconfirmed updates, oldest first."""
        return list(self._updates)

    async def change(self) -> None:
        """Wait until something changes."""
        await self._changed.wait()

    def forget_updates(self) -> None:
        self._updates.clear()

    @property
    def is_waited_for(self) -> bool:
        """Whether a poll waits and has received all updates so far."""
        return self._poller is not None and not self._updates

    async def poll(self, timeout_s: float, limit: int) -> list[Json]:
        """Wait for updates. A later poll ends this one."""
        if self._poller is not None:
            self._poller.set()
            self.changed()
        ended = self._poller = anyio.Event()
        try:
            with anyio.move_on_after(timeout_s):
                while (self.withholding or not self._updates) and not ended.is_set():
                    await self._changed.wait()
        finally:
            if self._poller is ended:
                self._poller = None
        if ended.is_set():
            self.conflicts += 1
            raise TelegramApiError(
                409,
                "Conflict: terminated by other getUpdates request; make sure that only one bot"
                " instance is running",
            )
        return [] if self.withholding else list(self._updates)[:limit]

    def _add(
        self,
        chat: TelegramChat,
        *,
        sender: int,
        by_bot: bool = False,
        **content: Unpack[TelegramMessageFields],
    ) -> TelegramMessage:
        if chat.kind == "supergroup":
            message_id = chat.next_id()
        else:  # Private chats and basic groups share one sequence.
            self._private_id += 1
            message_id = self._private_id
        message = TelegramMessage(
            message_id=message_id, chat_id=chat.chat_id, sender=sender, by_bot=by_bot, **content
        )
        return chat.add(message)

    def _service(self, chat: int, service: Json) -> Json:
        return self.json_of(self._add(self.chat(chat), sender=0, service=service))

    def _sender(self, message: TelegramMessage) -> Json | None:
        if message.by_bot:
            return self.bot
        if not message.sender:
            return None
        return self.person(message.sender, self.languages.get(message.sender, ""))

    def person(self, user: int, language: str = "") -> Json:
        """Return a person, with the language of the app if it is known."""
        known = user_json(user) | self.people.get(user, {})
        return known | ({"language_code": language} if language else {})

    def _wanted(self, kinds: Sequence[str]) -> bool:
        if not self.allowed_updates:
            return not set(kinds) <= _NOT_BY_DEFAULT
        return any(kind in self.allowed_updates for kind in kinds)

    def _visible(self, chat: TelegramChat, message: TelegramMessage) -> bool:
        if chat.kind == "private" or not self.privacy:
            return True
        replied = chat.messages.get(message.reply_to or 0)
        if replied is not None and replied.by_bot:
            return True
        return any(self._concerns(message.text, entity) for entity in message.entities)

    def _concerns(self, text: str, entity: Json) -> bool:
        """Return whether a mention or command addresses the bot."""
        encoded = text.encode("utf-16-le", "surrogatepass")[entity["offset"] * 2 :]
        shown = encoded[: entity["length"] * 2].decode("utf-16-le", "replace").lower()
        name = self.username.lower()
        match entity["type"]:
            case "bot_command":
                return shown.partition("@")[2] in {"", name}
            case "mention":
                return shown == f"@{name}"
            case "text_mention":
                return bool(entity["user"]["id"] == self.bot_id)
            case _:
                return False
