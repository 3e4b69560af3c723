"""Feishu in the playground: a private chat for each person, a group, and a topic in it."""

from base64 import b64decode
from collections.abc import Mapping, Sequence
from typing import Any

from aiohttp.typedefs import Middleware

from gateway.playground.feishu.server import BOT_OPEN_ID, FakeFeishu, FeishuMessageOptions
from gateway.playground.feishu.state import FeishuEvent, FeishuMessage
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
    markdown_tree,
)

GROUP = "oc_room"
TITLE = "Product"
TOPICS = {"omt_launch": "Launch"}
"""The topics of the group, by ID."""

REDELIVER_S = 5.0
"""Pause before Feishu sends an event again. Feishu's own pauses are 15 s, 5 min, 1 h and 6 h."""

OPERATIONS = (
    "token", "endpoint", "bot.info", "message.create", "message.reply", "message.patch", "message.get",
    "message.delete", "chat.get", "chat.members", "users.batch", "reaction.create", "reaction.delete", "image.create",
    "file.create", "resource", "card.create", "card.update", "card.settings", "card.content", "card.convert",
)  # fmt: skip
SENDING = tuple(
    name for name in OPERATIONS if name.startswith(("message.", "reaction.", "card.", "file."))
)
RATE_LIMITED = 99991400
FAILURES: Mapping[str, Mapping[str, Any]] = {
    "rate limit": {"status": 429, "code": RATE_LIMITED, "headers": {"x-ogw-ratelimit-reset": "3"}},
    "server error": {"status": 502, "text": "bad gateway"},
    "lost answer": {"drop": "after"},
    "slow": {"delay_s": 3.0},
}
_EMOJIS = {
    "OK": "👌",
    "DONE": "✅",
    "CrossMark": "❌",
    "THUMBSUP": "👍",
    "Typing": "⌨️",
    "OnIt": "👀",
}


class SimulatedFeishu:
    """The tenant with its people. Sam and Gil are from another tenant."""

    name = "feishu"

    def __init__(self, middlewares: Sequence[Middleware] = ()) -> None:
        self.server = FakeFeishu(redeliver_s=REDELIVER_S, middlewares=middlewares)
        self.server.allow_cardkit()
        self.server.allow_names()
        self._told: dict[str, tuple[int, bool]] = {}
        self._is_out = False
        state = self.server.state
        for person in PEOPLE:
            state.people[_user(person)] = person.name
            if person.role in {"stranger", "guest"}:
                self.server.outsiders[_user(person)] = "tenant_2"
        state.titles[GROUP] = TITLE
        state.members[GROUP] = [_user(one) for one in PEOPLE if one.role != "bot"]
        state.chats.add(GROUP)

    @property
    def settings(self) -> Mapping[str, Any]:
        """The section of a configuration that connects to the server."""
        return self.server.settings

    def places(self) -> Sequence[SimulatedPlace]:
        """Return the private chats and the group."""
        found = [
            SimulatedPlace(
                id=f"feishu:oc_dm_{_user(one)}", platform="feishu", kind="private", name="Parley",
                only_for=one.key,
            )
            for one in PEOPLE
            if one.role != "bot"
        ]  # fmt: skip
        chats = {GROUP: TITLE, **{f"{GROUP}/{key}": name for key, name in TOPICS.items()}}
        found += [
            SimulatedPlace(
                id=f"feishu:{chat}", platform="feishu", kind="topic" if "/" in chat else "group", name=name,
                calls_bot="@Parley ",
            )
            for chat, name in chats.items()
        ]  # fmt: skip
        return found

    def seen(self, place: SimulatedPlace) -> SeenPlace:
        """Return the messages of a chat, and the toast in response to the last button press."""
        chat, topic = _address(place)
        pressed = [one for one in self.server.state.events if one.once and one.answer]
        answer: Any = pressed[-1].answer if pressed and place.only_for else {}
        toast = ((answer or {}).get("toast") or {}).get("content", "")
        messages = [one for one in self.server.messages(chat) if one.thread == topic]
        return SeenPlace(messages=[self._seen(one) for one in messages], notice=str(toast))

    def _seen(self, message: FeishuMessage) -> SeenMessage:
        person = next((one.key for one in PEOPLE if _user(one) == message.sender), "")
        config = message.content.get("config", {})
        text = str(message.content.get("text", ""))
        for mention in message.mentions:
            text = text.replace(mention["key"], f"@{mention['name']}")
        return SeenMessage(
            id=message.id,
            author="parley" if message.by_bot else person,
            body=self._body(message, text),
            text=text,
            reply_to=message.reply_to,
            edited=len(message.edits) > 1 and not message.by_bot,
            grows=bool(config.get("streaming_mode")),
            reactions=[_EMOJIS.get(name, name) for name in message.emojis],
            buttons=tuple(message.buttons),
            files=self._files(message),
        )

    def _body(self, message: FeishuMessage, text: str) -> list[Node]:
        if message.type == "text":
            return [["p", {}, text]] if text else []
        if message.type != "interactive" or "body" not in message.content:
            return []
        header = message.content.get("header", {}).get("title", {}).get("content", "")
        body = [node for one in message.content["body"]["elements"] for node in card_nodes(one)]
        return [["h", {}, header], *body] if header else body

    def _files(self, message: FeishuMessage) -> list[dict[str, Any]]:
        key = message.content.get("file_key") or message.content.get("image_key")
        if not key:
            return []
        found = self.file(key)
        name, mime, _ = found or (str(message.content.get("file_name", "file")), "", b"")
        return [{"id": key, "name": message.content.get("file_name", name), "mime": mime}]

    async def act(self, place: SimulatedPlace, person: SimulatedPerson, action: Action) -> None:
        """Write (also in a topic or as a reply), withdraw a message, or press a button."""
        user = _user(person)
        match action["do"]:
            case "send":
                await self._send(place, person, action)
            case "delete":
                await self.server.withdraw(self._message(action))
            case "press":
                await self.server.press(self._message(action), str(action["label"]), user=user)
            case "edit":
                raise UnknownAction("Feishu does not tell bots of edited messages.")
            case other:
                raise UnknownAction(f"Feishu has no such action: {other}")

    async def _send(self, place: SimulatedPlace, person: SimulatedPerson, action: Action) -> None:
        (chat, topic), user = _address(place), _user(person)
        text, mentions = self._mentioned(str(action.get("text", "")))
        extra: FeishuMessageOptions = {
            "private": bool(place.only_for),
            "thread": topic,
            "reply_to": str(action.get("reply_to", "")),
            "mentions": mentions,
        }
        if person.role == "bot":
            extra["sender_type"] = "app"
        for file in action.get("files", ()):
            kind = "image" if str(file["mime"]).startswith("image/") else "file"
            key = self.server.state.next_id("img_v3_" if kind == "image" else "file_v3_")
            self.server.state.resources[key] = (kind, file["mime"], b64decode(file["data"]))
            content = {f"{kind}_key": key}
            if kind == "file":
                content["file_name"] = file["name"]
            await self.server.message(kind, content, chat=chat, user=user, **extra)
        if text:
            await self.server.say(text, chat=chat, user=user, **extra)

    def _mentioned(self, text: str) -> tuple[str, list[dict[str, Any]]]:
        """Return a text with keys in place of names, and the mentions with these keys."""
        found: list[dict[str, Any]] = []
        for name, open_id in (("Parley", BOT_OPEN_ID), *((one.name, _user(one)) for one in PEOPLE)):
            if f"@{name}" in text:
                key = f"@_user_{len(found) + 1}"
                text = text.replace(f"@{name}", key)
                mention = {"key": key, "id": {"open_id": open_id}, "name": name}
                found.append({**mention, "tenant_key": self.server.tenant_of(open_id)})
        return text, found

    def _message(self, action: Action) -> FeishuMessage:
        found = self.server.state.messages.get(str(action["message"]))
        if found is None or found.gone:
            raise UnknownAction("This message is gone.")
        return found

    async def push(self, content: Any) -> None:  # noqa: ANN401 - any JSON
        """Push a new event with this content."""
        await self.server.push(str(content["header"]["event_type"]), content["event"])

    async def calm(self) -> None:
        """End all faults."""
        self.server.stop_failing()
        self.server.refuse_handshakes(None)

    async def weather(self, kind: str) -> None:
        """Start a fault. Raises UnknownAction."""
        if kind in FAILURES:
            for name in SENDING:
                self.server.fail(name, times=UNTIL_CALM, **FAILURES[kind])
            return
        match kind:
            case "outage":
                self.server.refuse_handshakes({})
                for name in OPERATIONS:
                    self.server.fail(name, times=UNTIL_CALM, drop="before")
                self.server.disconnect_all()
            case "dropped connections":
                self.server.disconnect_all()
            case "redelivery":
                received = [one for one in self.server.state.events if one.message and one.acked]
                for event in received[-1:]:
                    self.server.push_again(event)
            case other:
                raise UnknownAction(f"Feishu has no such weather: {other}")

    def file(self, file_id: str) -> tuple[str, str, bytes] | None:
        """Return the name, type and content of a file."""
        if file_id in self.server.files:
            kind, name, content = self.server.files[file_id]
            return name, "image/png" if kind == "image" else "application/octet-stream", content
        if file_id in self.server.state.resources:
            kind, mime, content = self.server.state.resources[file_id]
            return kind, mime, content
        return None

    def new_events(self) -> Sequence[PlatformEvent]:
        """Return the events that were pushed and acknowledged since the last call."""
        return [news for event in self.server.state.events[-100:] for news in self._news(event)]

    def _news(self, event: FeishuEvent) -> list[PlatformEvent]:
        before, now = self._told.get(event.id, (0, False)), (event.pushes, event.acked)
        self._told[event.id] = now
        name = str(event.payload.get("header", {}).get("event_type", event.kind))
        found = []
        if now[0] > before[0]:
            kind: Any = "event" if now[0] == 1 else "redelivery"
            found.append(PlatformEvent(kind=kind, name=name, content=event.payload))
        if now[1] and not before[1]:
            found.append(PlatformEvent(kind="acknowledged", name=name, content=event.answer))
        return found


def _user(person: SimulatedPerson) -> str:
    return f"cli_{person.key}" if person.role == "bot" else f"ou_{person.key}"


def _address(place: SimulatedPlace) -> tuple[str, str]:
    """Return the chat and topic of a place."""
    chat, _, topic = place.id.partition(":")[2].partition("/")
    return chat, topic


def card_nodes(element: Mapping[str, Any]) -> list[Node]:  # noqa: PLR0911 - one return per kind
    """Return the trees of an element of a card. Buttons are shown below the message."""
    inner = [node for one in element.get("elements", []) for node in card_nodes(one)]
    match element["tag"]:
        case "markdown":
            return markdown_tree(str(element["content"]))
        case "div":
            return [["p", {}, str(element["text"]["content"])]]
        case "hr":
            return [["hr", {}]]
        case "column_set":
            return [node for one in element.get("columns", []) for node in card_nodes(one)]
        case "collapsible_panel":
            title = element.get("header", {}).get("title", {}).get("content", "")
            return [["details", {}, ["summary", {}, title], *inner]]
        case "table":
            columns = element.get("columns", [])
            head = ["tr", {}, *(["th", {}, str(one.get("display_name", ""))] for one in columns)]
            rows = [
                ["tr", {}, *(["td", {}, str(row.get(one["name"], ""))] for one in columns)]
                for row in element.get("rows", [])
            ]
            return [["table", {}, head, *rows]]
        case _:
            return inner
