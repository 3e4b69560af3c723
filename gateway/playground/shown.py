"""Messages and places as people see them on a simulated platform, in one form for all platforms, and people's actions.

A text is a tree: a string, or `[tag, attributes, *children]` with the tags that `page/text.mjs` knows. `markdown_tree`
makes a tree from Markdown; the platforms' packages make trees from the platforms' own forms.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

import anyio
from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

Node = str | list[Any]
Action = Mapping[str, Any]
"""An action of a person: `do`, `place` and `person`, with the fields that it needs: `text`, `message`, `files`, ..."""

WEATHERS = (
    "rate limit",
    "server error",
    "lost answer",
    "slow",
    "outage",
    "dropped connections",
    "redelivery",
)
"""Faults between a platform and the bot. The first five last until `calm` ends them; the others happen once."""

UNTIL_CALM = 10**9
"""How many calls fail in a weather that lasts until `calm` ends it."""

Role = Literal["colleague", "stranger", "guest", "bot"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedPerson:
    """A person to speak as. The platforms' IDs are made from `number`."""

    key: str
    name: str
    role: Role
    number: int


PEOPLE = (
    SimulatedPerson(key="ann", name="Ann", role="colleague", number=1),
    SimulatedPerson(key="ben", name="Ben", role="colleague", number=2),
    SimulatedPerson(key="sam", name="Sam", role="stranger", number=3),
    SimulatedPerson(key="gil", name="Gil", role="guest", number=4),
    SimulatedPerson(key="robo", name="Robo", role="bot", number=5),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedPlace:
    """A private chat, channel, group or topic.

    Attributes:
        id: `platform:` and the platform's own ID.
        only_for: The key of the person whose private chat it is; "" = everybody is a member.
        calls_bot: The text with which a message must begin to address the bot; "" = all messages address it.
        commands: Names and descriptions of the commands with which a message may begin.
    """

    id: str
    platform: str
    kind: Literal["private", "channel", "group", "topic"]
    name: str
    only_for: str = ""
    calls_bot: str = ""
    commands: Sequence[tuple[str, str]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenMessage:
    """A message as people see it now.

    Attributes:
        id: The platform's own ID.
        author: A person's key, "parley", or "" for the platform itself.
        body: The text as trees, one for each block.
        text: The text as its author wrote it, to edit it.
        thread: ID of the thread's first message; "" = it is in no thread, or is the first message itself.
        only_for: The key of the only person who sees it; "" = everybody.
        grows: Whether its text is still growing.
    """

    id: str
    author: str
    body: Sequence[Node] = ()
    text: str = ""
    thread: str = ""
    reply_to: str = ""
    edited: bool = False
    grows: bool = False
    only_for: str = ""
    reactions: Sequence[str] = ()
    buttons: Sequence[str] = ()
    files: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenPlace:
    """The messages of a place, the bot's status there, and its notice to the person who pressed a button."""

    messages: Sequence[SeenMessage] = ()
    working: str = ""
    notice: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformEvent:
    """Something that a platform sent to the bot, and the bot's acknowledgement."""

    kind: Literal["event", "redelivery", "acknowledged", "given up"]
    name: str
    content: Any = None


class UnknownAction(Exception):
    """An action that this platform, or this place, does not have. The message says what to do instead."""


class SimulatedPlatform(Protocol):
    """A platform of the playground: its server and the people who use it."""

    name: str

    @property
    def settings(self) -> Mapping[str, Any]:
        """The section of a configuration that connects to the server."""
        ...

    def places(self) -> Sequence[SimulatedPlace]:
        """Return the places where people can write."""
        ...

    def seen(self, place: SimulatedPlace) -> SeenPlace:
        """Return what people see in a place."""
        ...

    async def act(self, place: SimulatedPlace, person: SimulatedPerson, action: Action) -> None:
        """Do something as a person. Raises UnknownAction."""
        ...

    async def push(self, content: Any) -> None:  # noqa: ANN401 - any JSON
        """Send the bot an event with this content."""
        ...

    async def weather(self, kind: str) -> None:
        """Start a fault, one of WEATHERS. Raises UnknownAction."""
        ...

    async def calm(self) -> None:
        """End all faults."""
        ...

    def file(self, file_id: str) -> tuple[str, str, bytes] | None:
        """Return the name, type and content of a file."""
        ...

    def new_events(self) -> Sequence[PlatformEvent]:
        """Return the events that were sent or acknowledged since the last call."""
        ...


@dataclass(slots=True)
class ChangeSignal:
    """Wakes all tasks that wait for the next change, and calls the listeners at once."""

    _event: anyio.Event = field(default_factory=anyio.Event)

    def set(self) -> None:
        """Wake all waiters."""
        event, self._event = self._event, anyio.Event()
        event.set()

    async def wait(self) -> None:
        """Wait for the next change."""
        await self._event.wait()


_MARKDOWN = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
_TAGS = {
    "paragraph": "p", "heading": "h", "strong": "strong", "em": "em", "s": "del", "blockquote": "blockquote",
    "bullet_list": "ul", "ordered_list": "ol", "list_item": "li", "table": "table", "tr": "tr", "th": "th", "td": "td",
}  # fmt: skip


def markdown_tree(text: str) -> list[Node]:
    """Return the trees of a Markdown text, one for each block.

    >>> markdown_tree("*a* `b` [c](https://d.test)")
    [['p', {}, ['em', {}, 'a'], ' ', ['code', {}, 'b'], ' ', ['a', {'href': 'https://d.test'}, 'c']]]
    """
    return _nodes(SyntaxTreeNode(_MARKDOWN.parse(text)).children)


def _nodes(parts: Sequence[SyntaxTreeNode]) -> list[Node]:
    return [node for part in parts for node in _node(part)]


def _node(part: SyntaxTreeNode) -> list[Node]:
    match part.type:
        case "text":
            found: list[Node] = [part.content] if part.content else []
        case "code_inline":
            found = [["code", {}, part.content]]
        case "fence" | "code_block":
            found = [["pre", {}, part.content.rstrip("\n")]]
        case "softbreak" | "hardbreak" | "hr":
            found = [["hr" if part.type == "hr" else "br", {}]]
        case "link":
            found = [["a", {"href": str(part.attrs["href"])}, *_nodes(part.children)]]
        case "image":
            found = [["a", {"href": str(part.attrs["src"])}, part.content or "image"]]
        case kind if kind in _TAGS:
            found = [[_TAGS[kind], {}, *_nodes(part.children)]]
        case _:
            found = _nodes(part.children)
    return found
