"""Slack in the playground: a private chat for each person, and two channels with threads."""

import re
from base64 import b64decode
from collections.abc import Mapping, Sequence
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
    markdown_tree,
)
from gateway.playground.slack.http import SlackFailureOptions
from gateway.playground.slack.payloads import BOT_ID, BOT_USER, escape
from gateway.playground.slack.server import FakeSlack
from gateway.playground.slack.sockets import SlackEnvelope
from gateway.playground.slack.state import SlackMessage

CHANNELS = {"C1": "general", "C2": "projects"}
COMMAND = "/parley"
OTHER_BOT = "U2OTHER"
ACK_WINDOW_S = 3.0
RETRIES_S = (1.0, 10.0, 60.0)

SENDING = (
    "chat.postMessage", "chat.update", "chat.startStream", "chat.appendStream", "chat.stopStream", "reactions.add",
    "reactions.remove", "assistant.threads.setStatus", "files.getUploadURLExternal", "upload", "response_url",
    "files.completeUploadExternal",
)  # fmt: skip
FAILURES: Mapping[str, SlackFailureOptions] = {
    "rate limit": {"status": 429, "error": "ratelimited", "headers": {"Retry-After": "3"}},
    "server error": {"status": 503},
    "lost answer": {"drop": "after"},
    "slow": {"delay_s": 3.0},
}
_EMOJIS = {
    "eyes": "👀",
    "white_check_mark": "✅",
    "x": "❌",
    "no_entry": "⛔",
    "no_entry_sign": "🚫",
}
_MARKUP = re.compile(
    r"<(?P<token>[^<>]+)>|```\n?(?P<pre>.+?)```|`(?P<code>[^`\n]+)`|\*(?P<strong>[^*\n]+)\*"
    r"|\b_(?P<em>[^_\n]+)_\b|~(?P<del>[^~\n]+)~",
    re.DOTALL,
)


class SimulatedSlack:
    """The workspace with its people. Gil is a guest, and Sam is from another organization."""

    name = "slack"

    def __init__(self, middlewares: Sequence[Middleware] = ()) -> None:
        self.server = FakeSlack(
            ack_window_s=ACK_WINDOW_S, retries_s=RETRIES_S, middlewares=middlewares
        )
        self._told: dict[int, tuple[int, bool, bool]] = {}
        self._open: list[SlackEnvelope] = []
        self._seen_envelopes = 0
        for person in PEOPLE:
            known: dict[str, object] = {"name": person.key, "real_name": person.name}
            known["profile"] = {"display_name": person.name, "real_name": person.name}
            if person.role == "guest":
                known["is_restricted"] = True
            if person.role == "stranger":
                known |= {"team_id": "T9ELSEWHERE", "is_stranger": True}
            self.server.person(_user(person), **known)
        for channel, name in CHANNELS.items():
            self.server.name_channel(channel, name)

    @property
    def settings(self) -> Mapping[str, Any]:
        """The section of a configuration that connects to the server."""
        return {
            "enabled": True,
            "base_url": self.server.base_url,
            "bot_token": self.server.bot_token,
            "app_token": self.server.app_token,
        }

    def places(self) -> Sequence[SimulatedPlace]:
        """Return the private chats and the channels."""
        commands = [(COMMAND, "Commands of the bot: /parley help")]
        found = [
            SimulatedPlace(
                id=f"slack:D{_user(one)}", platform="slack", kind="private", name="Parley", only_for=one.key,
                commands=commands,
            )
            for one in PEOPLE
            if one.role != "bot"
        ]  # fmt: skip
        found += [
            SimulatedPlace(
                id=f"slack:{channel}", platform="slack", kind="channel", name=name, calls_bot="@Parley ",
                commands=commands,
            )
            for channel, name in CHANNELS.items()
        ]  # fmt: skip
        return found

    def seen(self, place: SimulatedPlace) -> SeenPlace:
        """Return the messages of a channel, and the status that the bot shows."""
        channel = _channel(place)
        found = [one for one in self.server.workspace.posted if one.channel == channel]
        statuses = self.server.workspace.statuses.items()
        working = [one.text for (at, _), one in statuses if at == channel and one.text]
        return SeenPlace(messages=[self._seen(one) for one in found], working="".join(working[-1:]))

    def _seen(self, message: SlackMessage) -> SeenMessage:
        body = [node for block in message.blocks for node in block_nodes(block)]
        if not body and message.text:
            body = [["p", {}, *mrkdwn_nodes(message.text)]]
        return SeenMessage(
            id=message.ts,
            author="parley" if message.bot_id == BOT_ID else _key(message.user),
            body=body,
            text=_typed(message.text),
            thread=message.thread_ts if message.thread_ts != message.ts else "",
            edited=bool(message.earlier),
            grows=message.streams,
            only_for=_key(message.only_for),
            reactions=[
                _EMOJIS.get(name, f":{name}:") for name, users in message.reactions.items() if users
            ],
            buttons=tuple(message.buttons),
            files=[
                {"id": file["id"], "name": file["name"], "mime": file.get("mimetype", "")}
                for file in message.files
            ],
        )

    async def act(self, place: SimulatedPlace, person: SimulatedPerson, action: Action) -> None:
        """Write (also in a thread), type the slash command, edit or delete a message, or press a button."""
        channel, user = _channel(place), _user(person)
        match action["do"]:
            case "send" if str(action.get("text", "")).startswith("/"):
                self._command(str(action["text"]), channel, user)
            case "send":
                self._send(channel, person, action)
            case "edit":
                self.server.edit(self._message(place, action), _marked(action["text"]), marked=True)
            case "delete":
                self.server.delete(self._message(place, action))
            case "press":
                self.server.press(self._message(place, action), str(action["label"]), user=user)
            case other:
                raise UnknownAction(f"Slack has no such action: {other}")

    def _command(self, text: str, channel: str, user: str) -> None:
        command, _, rest = text.partition(" ")
        if command != COMMAND:
            raise UnknownAction(
                f"Slack does not know the command {command}: type {COMMAND}{command.replace('/', ' ')}"
            )
        self.server.slash(rest, channel=channel, user=user, command=command)

    def _send(self, channel: str, person: SimulatedPerson, action: Action) -> None:
        text, thread = _marked(str(action.get("text", ""))), str(action.get("thread", ""))
        if person.role == "bot":
            self.server.bot_says(text, channel=channel, thread_ts=thread)
            return
        files = [
            self.server.file(one["name"], b64decode(one["data"]), one["mime"])
            for one in action.get("files", ())
        ]
        more: dict[str, object] = {"files": files, "subtype": "file_share"} if files else {}
        self.server.say(
            text, channel=channel, user=_user(person), thread_ts=thread, marked=True, **more
        )

    def _message(self, place: SimulatedPlace, action: Action) -> SlackMessage:
        found = self.server.workspace.find(_channel(place), str(action["message"]))
        if found is None:
            raise UnknownAction("This message is gone.")
        return found

    async def push(self, content: Any) -> None:  # noqa: ANN401 - any JSON
        """Send an envelope with this payload."""
        kinds = {"event": "events_api", "command": "slash_commands"}
        kind = next((kind for name, kind in kinds.items() if name in content), "interactive")
        self.server.push(kind, content)

    async def calm(self) -> None:
        """End all faults."""
        self.server.stop_failing()
        if self.server.is_away:
            await self.server.come_back()

    async def weather(self, kind: str) -> None:
        """Start a fault. Raises UnknownAction."""
        if kind in FAILURES:
            failure: SlackFailureOptions = {**FAILURES[kind], "times": UNTIL_CALM}
            for method in SENDING:
                self.server.fail(method, **failure)
            return
        match kind:
            case "outage":
                await self.server.go_offline()
            case "dropped connections":
                self.server.cut_all()
            case "redelivery":
                events = [e for e in self.server.sockets.envelopes if e.kind == "events_api"]
                for envelope in events[-1:]:
                    self.server.send_again(envelope)
            case other:
                raise UnknownAction(f"Slack has no such weather: {other}")

    def file(self, file_id: str) -> tuple[str, str, bytes] | None:
        """Return the name, type and content of a file."""
        found = self.server.workspace.files.get(file_id)
        if found is None or found.content is None:
            return None
        return found.name, found.mimetype, found.content

    def new_events(self) -> Sequence[PlatformEvent]:
        """Return the envelopes that were sent, acknowledged or given up since the last call."""
        envelopes = self.server.sockets.envelopes
        self._open += envelopes[self._seen_envelopes :]
        self._seen_envelopes = len(envelopes)
        found = [event for envelope in self._open for event in self._news(envelope)]
        self._open = envelopes[-100:]
        return found

    def _news(self, envelope: SlackEnvelope) -> list[PlatformEvent]:
        before = self._told.get(id(envelope), (0, False, False))
        now = (envelope.attempts, envelope.acked, envelope.dropped)
        self._told[id(envelope)] = now
        name = _name(envelope)
        found = []
        if now[0] > before[0]:
            kind: Any = "event" if now[0] == 1 else "redelivery"
            found.append(PlatformEvent(kind=kind, name=name, content=envelope.payload))
        if now[1] and not before[1]:
            found.append(PlatformEvent(kind="acknowledged", name=name, content=envelope.answer))
        if now[2] and not before[2]:
            found.append(PlatformEvent(kind="given up", name=name))
        return found


def _user(person: SimulatedPerson) -> str:
    return OTHER_BOT if person.role == "bot" else f"U{person.number}{person.key.upper()}"


_KEYS = {_user(person): person.key for person in PEOPLE}


def _key(user: str) -> str:
    return _KEYS.get(user, "")


def _channel(place: SimulatedPlace) -> str:
    return place.id.partition(":")[2]


def _name(envelope: SlackEnvelope) -> str:
    event = envelope.payload.get("event")
    return str(event["type"]) if event else envelope.kind


def _marked(text: str) -> str:
    """Return a typed text in Slack's mark-up: escape special characters, and turn people's names into mentions.

    >>> _marked("@Parley <hi>")
    '<@U0PARLEY> &lt;hi&gt;'
    """
    names = {"parley": BOT_USER, **{one.name.lower(): _user(one) for one in PEOPLE}}
    pattern = re.compile(rf"(?<!\w)@({'|'.join(names)})\b", re.IGNORECASE)
    return pattern.sub(lambda found: f"<@{names[found[1].lower()]}>", escape(text))


def _typed(text: str) -> str:
    """Return the text that a person would type to get this mark-up."""
    names = {BOT_USER: "Parley", **{_user(one): one.name for one in PEOPLE}}
    text = re.sub(r"<@(\w+)>", lambda found: f"@{names.get(found[1], found[1])}", text)
    return _unescaped(text)


def _unescaped(text: str) -> str:
    return text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def mrkdwn_nodes(text: str) -> list[Node]:
    """Return the tree of a text in Slack's mark-up.

    >>> mrkdwn_nodes("*a* <https://b.test|c> <@U1ANN>")
    [['strong', {}, 'a'], ' ', ['a', {'href': 'https://b.test'}, 'c'], ' ', ['mark', {}, '@Ann']]
    """
    found: list[Node] = []
    at = 0
    for match in _MARKUP.finditer(text):
        found += [_unescaped(text[at : match.start()])] if match.start() > at else []
        kind, inner = str(match.lastgroup), str(match[str(match.lastgroup)])
        is_plain = kind in {"code", "pre"}
        if kind == "token":
            found.append(_token(inner))
        else:
            found.append([kind, {}, *([_unescaped(inner)] if is_plain else mrkdwn_nodes(inner))])
        at = match.end()
    return [*found, _unescaped(text[at:])] if at < len(text) else found


def _token(token: str) -> Node:
    target, _, label = token.partition("|")
    if target[:1] in {"@", "#", "!"}:
        shown = _typed(f"<{target}>") if target[0] == "@" else label or target
        return ["mark", {}, shown]
    return ["a", {"href": _unescaped(target)}, _unescaped(label or target)]


def block_nodes(block: Mapping[str, Any]) -> list[Node]:  # noqa: PLR0911 - one return per kind
    """Return the trees of a block. Buttons are shown below the message."""
    match block.get("type"):
        case "markdown":
            return markdown_tree(str(block["text"]))
        case "section" | "context" as kind:
            texts = [block.get("text")] if kind == "section" else block.get("elements", [])
            return [["p", {}, *mrkdwn_nodes(str(one["text"]))] for one in texts if one]
        case "rich_text":
            return [_element(one) for one in block["elements"]]
        case "table":
            rows: list[Node] = [
                ["tr", {}, *(["td", {}, *_cell(cell)] for cell in row)] for row in block["rows"]
            ]
            return [["table", {}, *rows]]
        case "divider":
            return [["hr", {}]]
        case _:
            return []


def _cell(cell: Mapping[str, Any]) -> list[Node]:
    if cell.get("type") == "rich_text":
        return [_element(one) for one in cell["elements"]]
    return [str(cell.get("text", ""))]


def _element(element: Mapping[str, Any]) -> Node:
    inner = element.get("elements", [])
    match element.get("type"):
        case "rich_text_list":
            tag = "ol" if element.get("style") == "ordered" else "ul"
            return [tag, {}, *(["li", {}, *_parts(one.get("elements", []))] for one in inner)]
        case "rich_text_quote":
            return ["blockquote", {}, *_parts(inner)]
        case "rich_text_preformatted":
            return ["pre", {}, *_parts(inner)]
        case _:
            return ["p", {}, *_parts(inner)]


def _parts(parts: Sequence[Mapping[str, Any]]) -> list[Node]:
    return [_part(part) for part in parts]


def _part(part: Mapping[str, Any]) -> Node:
    node: Node
    match part.get("type"):
        case "user":
            node = ["mark", {}, _typed(f"<@{part['user_id']}>")]
        case "link":
            node = ["a", {"href": part["url"]}, str(part.get("text") or part["url"])]
        case _:
            node = str(part.get("text") or part.get("name") or part.get("range") or "")
    for style, tag in (("code", "code"), ("bold", "strong"), ("italic", "em"), ("strike", "del")):
        if part.get("style", {}).get(style):
            node = [tag, {}, node]
    return node
