"""The fake Feishu's state: messages, events, scripted failures, and violations."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count, takewhile
from typing import Any, Literal, TypeVar

import anyio

from gateway.playground.feishu import cards

T = TypeVar("T")


@dataclass
class FeishuMessage:
    """A message in a chat, by a user or by the bot. `edits` contains all of its contents, newest last."""

    id: str
    chat: str
    sender: str
    type: str
    content: dict[str, Any]
    reply_to: str = ""
    root: str = ""
    thread: str = ""
    uuid: str = ""
    at: float = field(default_factory=time.monotonic)
    edits: list[dict[str, Any]] = field(default_factory=list)
    reactions: dict[str, str] = field(default_factory=dict)
    patched_at: list[float] = field(default_factory=list)
    gone: bool = False
    too_old: bool = False
    entity: str = ""
    mentions: list[dict[str, Any]] = field(default_factory=list)
    made_at: float = field(default_factory=time.time)

    @property
    def by_bot(self) -> bool:
        return self.sender == BOT_OPEN_ID

    @property
    def text(self) -> str:
        """The text that a reader sees now."""
        return "\n".join(words(self.type, self.content))

    @property
    def texts(self) -> list[str]:
        """All texts that a reader has seen, oldest first."""
        return ["\n".join(words(self.type, content)) for content in self.edits]

    @property
    def buttons(self) -> dict[str, dict[str, Any]]:
        """The buttons that a reader can press now: label -> callback value."""
        return cards.buttons(self.content) if self.type == "interactive" else {}

    @property
    def emojis(self) -> list[str]:
        return sorted(self.reactions.values())


@dataclass
class FeishuEvent:
    """An event in transit, with the number of pushes and the answer.

    `raw`, if set, is pushed instead of `payload`; `kind` is the frame's type; `once` = never pushed again;
    `answer` is the content of the acknowledgement.
    """

    id: str
    payload: dict[str, Any]
    message: FeishuMessage | None = None
    raw: bytes = b""
    parts: int = 1
    kind: str = "event"
    once: bool = False
    answer: dict[str, Any] | None = None
    pushes: int = 0
    codes: list[int] = field(default_factory=list)
    acked: bool = False


@dataclass
class FeishuCall:
    """A received request."""

    op: str
    query: dict[str, str]
    body: Any
    at: float


@dataclass
class FeishuFailure:
    """A scripted failure of the next calls of an operation. See `FakeFeishu.fail`."""

    op: str
    times: int
    status: int = 0
    code: int = 0
    text: str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    drop: Literal["before", "after"] | None = None
    delay_s: float = 0.0


BOT_OPEN_ID = "ou_0bot"


class FeishuApiError(Exception):
    """A response with an error code."""

    def __init__(
        self, code: int, msg: str, *, status: int = 400, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(msg)
        self.code, self.msg, self.status, self.headers = code, msg, status, headers or {}


def words(kind: str, content: dict[str, Any]) -> list[str]:
    """Return the visible words of a message's content."""
    if kind == "interactive" and "body" in content:
        return cards.words(content)
    if kind == "text":
        return [str(content.get("text", ""))]
    return [json.dumps(content, ensure_ascii=False)]


class FeishuState:
    """The platform's state. Every change calls `changed`, so that waiting needs no polling.

    Attributes:
        forwards: The content of forwarded messages: copies, and the id of the message that contains each.
        people: Names by open id.
        titles: Names of groups.
        members: The members of groups, in the order in which the API lists them.
    """

    def __init__(self) -> None:
        self.messages: dict[str, FeishuMessage] = {}
        self.events: list[FeishuEvent] = []
        self.calls: list[FeishuCall] = []
        self.failures: list[FeishuFailure] = []
        self.violations: list[str] = []
        self.files: dict[str, tuple[str, str, bytes]] = {}
        self.resources: dict[str, tuple[str, str, bytes]] = {}
        self.forwards: dict[str, list[tuple[FeishuMessage, str]]] = {}
        self.people: dict[str, str] = {}
        self.titles: dict[str, str] = {}
        self.members: dict[str, list[str]] = {}
        self.chats: set[str] = set()
        self.left: set[str] = set()
        self.listeners: list[Callable[[], object]] = []
        self._numbers = count(1)
        self._change = anyio.Event()

    def next_id(self, prefix: str) -> str:
        return f"{prefix}{next(self._numbers):06d}"

    def add(self, message: FeishuMessage) -> FeishuMessage:
        message.edits.append(message.content)
        self.messages[message.id] = message
        self.chats.add(message.chat)
        self.changed()
        return message

    def recent(self, chat: str) -> list[FeishuMessage]:
        """Return the bots' messages in a chat within the last second."""
        since = time.monotonic() - 1
        newest = takewhile(lambda m: m.at > since, reversed(self.messages.values()))
        return [m for m in newest if m.chat == chat and m.by_bot]

    def changed(self) -> None:
        change, self._change = self._change, anyio.Event()
        change.set()
        for told in self.listeners:
            told()

    def violation(self, text: str) -> None:
        self.violations.append(text)
        self.changed()

    def take_failure(self, op: str) -> FeishuFailure | None:
        for failure in self.failures:
            if failure.op == op and failure.times > 0:
                failure.times -= 1
                return failure
        return None

    async def wait_for(self, predicate: Callable[[], T | None], timeout_s: float) -> T:
        """Return the first truthy value of `predicate`, which is called after every change. Raises TimeoutError."""
        with anyio.move_on_after(timeout_s):
            while True:
                change = self._change
                if value := predicate():
                    return value
                await change.wait()
        raise TimeoutError(f"not seen in {timeout_s} s; {self.summary()}")

    def summary(self) -> str:
        lines = [
            f"{m.id} {m.chat} {'bot' if m.by_bot else 'user'}: {m.text[:80]!r}"
            for m in self.messages.values()
        ]
        lines += [f"event {e.id}: pushes {e.pushes}, codes {e.codes}" for e in self.events]
        lines += [f"call {c.op}" for c in self.calls[-10:]] + self.violations
        return "the fake's state:\n" + "\n".join(lines)
