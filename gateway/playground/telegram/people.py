"""Telegram in the playground: a private chat for each person, a group, and a forum with topics."""

import time
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from aiohttp.typedefs import Middleware

from gateway.playground.shown import (
    PEOPLE,
    UNTIL_CALM,
    Action,
    Node,
    PlatformEvent,
    SeenMessage,
    SeenPlace,
    SimulatedPerson,
    SimulatedPlace,
    UnknownAction,
)
from gateway.playground.telegram.chats import Json, TelegramMessage, TelegramUpload
from gateway.playground.telegram.server import TelegramFailureOptions, TelegramServer

GROUP = -1_001_000_000_001
FORUM = -1_001_000_000_002
TOPICS = ("Travel", "Cooking")
TYPING_S = 5.0
"""How long Telegram's apps show a typing indicator, seconds."""

SENDING = (
    "sendMessage", "sendRichMessage", "sendMessageDraft", "sendPhoto", "sendDocument", "editMessageText",
    "editMessageReplyMarkup", "deleteMessage", "setMessageReaction", "sendChatAction", "answerCallbackQuery",
)  # fmt: skip
FAILURES: Mapping[str, TelegramFailureOptions] = {
    "rate limit": {"status": 429, "parameters": {"retry_after": 3}},
    "server error": {"status": 502},
    "lost answer": {"drop": "after"},
    "slow": {"delay_s": 3.0},
}
_TAGS = {
    "bold": "strong", "italic": "em", "underline": "u", "strikethrough": "del", "spoiler": "spoiler",
    "blockquote": "blockquote", "expandable_blockquote": "blockquote", "code": "code", "pre": "pre",
    "mention": "mark", "text_mention": "mark", "bot_command": "mark", "marked": "mark",
}  # fmt: skip


class SimulatedTelegram:
    """The server with its people. Ann and Ben are approved, the others are not."""

    name = "telegram"

    def __init__(self, middlewares: Sequence[Middleware] = ()) -> None:
        self.server = TelegramServer(middlewares=middlewares)
        self._sent: set[int] = set()
        self._confirmed = 0
        self._typed = 0
        self._typing: dict[tuple[int, int | str], float] = {}
        self._query = ""
        for person in PEOPLE:
            known = {
                "first_name": person.name,
                "username": person.key,
                "is_bot": person.role == "bot",
            }
            self.server.people[_user(person)] = known
        self.server.chat(GROUP).title = "Team"
        self.server.add_forum(FORUM).title = "Forum"
        for topic in TOPICS:
            self.server.add_topic(FORUM, topic)
        self.server.forget_updates()

    @property
    def settings(self) -> Mapping[str, Any]:
        """The section of a configuration that connects to the server. Sam must be approved."""
        members = [str(_user(one)) for one in PEOPLE if one.role == "colleague"]
        return {
            **self.server.settings,
            "dm_policy": "pairing",
            "group_policy": "mention",
            "allowed_users": members,
        }

    def places(self) -> Sequence[SimulatedPlace]:
        """Return the private chats, the group and the topics."""
        commands = [(f"/{one['command']}", str(one["description"])) for one in self.server.commands]
        me = f"@{self.server.username} "
        found = [
            _place(str(_user(one)), "private", "Parley", only_for=one.key, commands=commands)
            for one in PEOPLE
            if one.role != "bot"
        ]
        found.append(_place(str(GROUP), "group", "Team", calls_bot=me, commands=commands))
        found += [
            _place(f"{FORUM}/{topic.thread}", "topic", topic.name, calls_bot=me, commands=commands)
            for topic in self.server.chat(FORUM).topics.values()
        ]
        return found

    def seen(self, place: SimulatedPlace) -> SeenPlace:
        """Return the messages of a chat or topic, its draft, and whether the bot types."""
        chat, thread = _address(place)
        messages = [
            self._seen(one) for one in self.server.messages(chat, thread=thread) if not one.service
        ]
        drafts = [d for d in self.server.drafts if (d.chat, d.thread) == (chat, thread) and d.text]
        if drafts and self._typing.get((chat, thread or ""), 0) > time.monotonic():
            body: list[Node] = [["p", {}, drafts[-1].text]]
            messages.append(SeenMessage(id="draft", author="parley", body=body, grows=True))
        types = self._typing.get((chat, thread or ""), 0) > time.monotonic()
        query = self.server.queries.get(self._query)
        notice = (query.answer or "") if query and place.only_for else ""
        return SeenPlace(messages=messages, working="typing" if types else "", notice=notice)

    def _seen(self, message: TelegramMessage) -> SeenMessage:
        person = next((one.key for one in PEOPLE if _user(one) == message.sender), "")
        body: list[Node] = rich_nodes(message.rich)
        if not message.rich and message.text:
            body = [["p", {}, *entity_nodes(message.text, message.entities)]]
        file = message.file
        files = [{"id": file.file_id, "name": file.name, "mime": file.mime}] if file else []
        return SeenMessage(
            id=str(message.message_id),
            author="parley" if message.by_bot else person,
            body=body,
            text=message.text,
            reply_to=str(message.reply_to or ""),
            edited=bool(message.history),
            reactions=tuple(message.reactions),
            buttons=tuple(str(button["text"]) for row in message.markup for button in row),
            files=files,
        )

    async def act(self, place: SimulatedPlace, person: SimulatedPerson, action: Action) -> None:
        """Write, edit a message, or press a button. Telegram notifies bots of nothing else."""
        chat, thread = _address(place)
        user, text = _user(person), str(action.get("text", ""))
        match action["do"]:
            case "send":
                reply_to = int(action["reply_to"]) if action.get("reply_to") else None
                for file in action.get("files", ()) or [None]:
                    kept = self._kept(file) if file else None
                    options: dict[str, Any] = {"file": kept} if kept else {}
                    self.server.say(
                        chat, text, user=user, thread=thread, reply_to=reply_to, **options
                    )
                    text = ""
            case "edit":
                self.server.edit(chat, int(action["message"]), text)
            case "press":
                message = self.server.chat(chat).messages[int(action["message"])]
                token = next(
                    str(button["callback_data"])
                    for row in message.markup
                    for button in row
                    if button["text"] == action["label"]
                )
                self._query = self.server.press_token(message, token, user=user)
            case other:
                raise UnknownAction(f"Telegram does not tell bots of this: {other}")

    def _kept(self, file: Mapping[str, Any]) -> Any:  # noqa: ANN401 - an option of `say`
        kind = "photo" if str(file["mime"]).startswith("image/") else "document"
        content = b64decode(file["data"])
        upload = TelegramUpload(name=file["name"], content=content, mime=file["mime"])
        return self.server.keep(kind, upload)

    async def push(self, content: Any) -> None:  # noqa: ANN401 - any JSON
        """Queue an update with this content, under the next number."""
        self.server.push({name: value for name, value in content.items() if name != "update_id"})

    async def calm(self) -> None:
        """End all faults."""
        self.server.stop_failing()
        if self.server.is_away:
            await self.server.accept()

    async def weather(self, kind: str) -> None:
        """Start a fault. Raises UnknownAction."""
        if kind in FAILURES:
            for method in SENDING:
                self.server.fail(method, times=UNTIL_CALM, **FAILURES[kind])
            return
        match kind:
            case "outage":
                await self.server.refuse()
            case "dropped connections":
                self.server.disconnect_all()
            case "redelivery":  # Telegram sends updates again if their confirmation was lost.
                self.server.fail("getUpdates", drop="after")
            case other:
                raise UnknownAction(f"Telegram has no such weather: {other}")

    def file(self, file_id: str) -> tuple[str, str, bytes] | None:
        """Return the name, type and content of a file."""
        found = self.server.files.get(file_id)
        return (found.name, found.mime, found.content) if found else None

    def new_events(self) -> Sequence[PlatformEvent]:
        """Return the updates that were queued and confirmed since the last call."""
        found = [
            PlatformEvent(kind="event", name=_kind(update), content=update)
            for update in self.server.waiting()
            if update["update_id"] not in self._sent
        ]
        self._sent |= {update["update_id"] for update in self.server.waiting()}
        confirmed = self.server.confirmed[self._confirmed :]
        self._confirmed = len(self.server.confirmed)
        found += [
            PlatformEvent(kind="acknowledged", name=f"update {number}", content=None)
            for number in confirmed
        ]
        self._note_typing()
        return found

    def _note_typing(self) -> None:
        for kind, chat, thread in self.server.log[self._typed :]:
            if kind == "message":
                for key in [key for key in self._typing if key[0] == chat]:
                    del self._typing[key]
            else:
                place = (chat, "" if kind == "draft" else thread)
                self._typing[place] = time.monotonic() + TYPING_S
        self._typed = len(self.server.log)


def _place(chat: str, kind: Any, name: str, **more: Any) -> SimulatedPlace:  # noqa: ANN401 - fields of the place
    return SimulatedPlace(id=f"telegram:{chat}", platform="telegram", kind=kind, name=name, **more)


def _user(person: SimulatedPerson) -> int:
    return 1000 + person.number


def _address(place: SimulatedPlace) -> tuple[int, int | None]:
    chat, _, thread = place.id.partition(":")[2].partition("/")
    return int(chat), int(thread) if thread else None


def _kind(update: Json) -> str:
    return next(name for name in update if name != "update_id")


def entity_nodes(text: str, entities: Sequence[Json]) -> list[Node]:
    """Return the tree of a text with entities, whose places are in UTF-16 units.

    >>> entity_nodes("a bc", [{"type": "bold", "offset": 2, "length": 2}])
    ['a ', ['strong', {}, 'bc']]
    """
    units = text.encode("utf-16-le", "surrogatepass")
    ordered = sorted(entities, key=lambda one: (one["offset"], -one["length"]))
    return list(_spans(units, ordered, 0, len(units) // 2))


def _spans(units: bytes, entities: Sequence[Json], start: int, end: int) -> Iterator[Node]:
    at = start
    for index, entity in enumerate(entities):
        first, last = entity["offset"], entity["offset"] + entity["length"]
        if first < at or last > end:
            continue
        yield from _words(units, at, first)
        inner = [one for one in entities[index + 1 :] if one["offset"] < last]
        link = entity["type"] == "text_link"
        tag = "a" if link else _TAGS.get(entity["type"], "span")
        yield [tag, {"href": entity["url"]} if link else {}, *_spans(units, inner, first, last)]
        at = last
    yield from _words(units, at, end)


def _words(units: bytes, start: int, end: int) -> Iterator[Node]:
    if end > start:
        yield units[start * 2 : end * 2].decode("utf-16-le", "replace")


def rich_nodes(blocks: Sequence[Json]) -> list[Node]:
    """Return the trees of a rich message."""
    return [_block(block) for block in blocks]


def _block(block: Json) -> Node:  # noqa: PLR0911 - one return per kind
    match block["type"]:
        case "list":
            ordered = any(item.get("type") not in {None, "", "disc"} for item in block["items"])
            items: list[Node] = [["li", {}, *_item(item)] for item in block["items"]]
            return ["ol" if ordered else "ul", {}, *items]
        case "blockquote":
            return ["blockquote", {}, *rich_nodes(block["blocks"])]
        case "details":
            return [
                "details",
                {},
                ["summary", {}, *_inline(block["summary"])],
                *rich_nodes(block["blocks"]),
            ]
        case "table":
            return ["table", {}, *(["tr", {}, *map(_cell, row)] for row in block["cells"])]
        case "divider":
            return ["hr", {}]
        case "mathematical_expression":
            return ["code", {}, block["expression"]]
        case kind:
            tag = {"heading": "h", "pre": "pre"}.get(kind, "p")
            return [tag, {}, *_inline(block["text"])]


def _item(item: Json) -> list[Node]:
    box = ["☑ " if item.get("is_checked") else "☐ "] if item.get("has_checkbox") else []
    return [*box, *rich_nodes(item["blocks"])]


def _cell(cell: Json) -> Node:
    return ["th" if cell.get("is_header") else "td", {}, *_inline(cell.get("text", ""))]


def _inline(text: Any) -> list[Node]:  # noqa: ANN401 - Telegram's RichText
    if isinstance(text, list):
        return [node for part in text for node in _inline(part)]
    if not isinstance(text, dict):
        return [str(text)]
    match text["type"]:
        case "mathematical_expression":
            return [["code", {}, text["expression"]]]
        case "url":
            return [["a", {"href": text["url"]}, *_inline(text["text"])]]
        case kind:
            return [[_TAGS.get(kind, "span"), {}, *_inline(text["text"])]]
