"""The state of a Slack workspace: people, channels, messages, files. Independent of HTTP."""

import time
from dataclasses import dataclass, field
from typing import Any, Literal

from gateway.playground.slack.checks import rich_words

ChannelKind = Literal["im", "mpim", "channel", "group"]


@dataclass(slots=True, kw_only=True)
class SlackMessage:
    """A message with its current content. `only_for` is the only reader of an ephemeral message."""

    channel: str
    ts: str
    user: str
    text: str
    bot_id: str = ""
    subtype: str = ""
    thread_ts: str = ""
    blocks: list[dict[str, Any]] = field(default_factory=list)
    metadata: dict[str, Any] | None = None
    files: list[dict[str, Any]] = field(default_factory=list)
    attachments: list[dict[str, Any]] = field(default_factory=list)
    reactions: dict[str, set[str]] = field(default_factory=dict)
    earlier: list[str] = field(default_factory=list)
    only_for: str = ""
    stream: "SlackStream | None" = None

    @property
    def words(self) -> str:
        """The visible text: the blocks' text if there are blocks, else the text."""
        return "\n".join(filter(None, map(block_words, self.blocks))) or self.text

    @property
    def buttons(self) -> dict[str, str]:
        """The buttons below it: label -> value."""
        return {
            element["text"]["text"]: element["value"]
            for block in self.blocks
            if block.get("type") == "actions"
            for element in block["elements"]
        }

    @property
    def streams(self) -> bool:
        """Whether it is still streaming."""
        return self.stream is not None and not self.stream.ended

    def fields(self, *, metadata: bool = False) -> dict[str, Any]:
        """Return the message in the form of the Web API and events."""
        told: dict[str, Any] = {
            "type": "message",
            "ts": self.ts,
            "user": self.user,
            "text": self.text,
        }
        for name in ("bot_id", "subtype", "thread_ts", "blocks", "files", "attachments"):
            if value := getattr(self, name):
                told[name] = value
        if metadata and self.metadata:
            told["metadata"] = self.metadata
        return told


@dataclass(slots=True, kw_only=True)
class SlackStream:
    """The stream of a message: its recipient, its chunks, and why it ended."""

    recipient: str
    began_at: float
    added: list[str] = field(default_factory=list)
    ended: str = ""


@dataclass(slots=True, kw_only=True)
class AgentStatus:
    """An agent's state in a thread, as shown by Slack."""

    text: str = ""
    session: str = ""
    title: str = ""


@dataclass(slots=True, kw_only=True)
class SlackChannel:
    """A conversation. Bots read and write only where they are members."""

    id: str
    kind: ChannelKind
    members: set[str]
    archived: bool = False
    name: str = ""


@dataclass(slots=True, kw_only=True)
class SlackFile:
    """A file: announced, then filled, then shared.

    Attributes:
        served_as: The content type of its download, if not `mimetype`. Canvases and e-mails are pages.
        csv: The content of a list at `list_csv_download_url`.
        extra: Further fields of its description.
    """

    id: str
    name: str
    length: int
    content: bytes | None = None
    shared: bool = False
    mimetype: str = "application/octet-stream"
    served_as: str = ""
    csv: bytes | None = None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class ResponseUrl:
    """A response_url: valid for five messages and half an hour. `answers` are the messages that were posted to it."""

    channel: str
    user: str
    uses: int = 5
    expired: bool = False
    answers: list[SlackMessage] = field(default_factory=list)


class SlackWorkspace:
    """Slack's data of one team."""

    def __init__(self, *, team: str, bot_user: str, bot_id: str) -> None:
        self.team = team
        self.bot_user = bot_user
        self.bot_id = bot_id
        self.is_agent = False
        self.channels: dict[str, SlackChannel] = {}
        self.posted: list[SlackMessage] = []
        self.files: dict[str, SlackFile] = {}
        self.callbacks: dict[str, ResponseUrl] = {}
        self.people: dict[str, dict[str, Any]] = {}
        self.groups: dict[str, str] = {}
        self.statuses: dict[tuple[str, str], AgentStatus] = {}
        self.prompts: dict[tuple[str, str], list[str]] = {}
        self._last_ts = 0.0

    def ts(self) -> str:
        """Return a new timestamp in seconds, unique and increasing."""
        self._last_ts = max(time.time(), self._last_ts + 0.000_01)
        return f"{self._last_ts:.6f}"

    def channel(self, channel: str, *, kind: ChannelKind, members: set[str]) -> SlackChannel:
        """Return a channel. Creates it if it is new. `members` join it."""
        found = self.channels.setdefault(
            channel, SlackChannel(id=channel, kind=kind, members={self.bot_user})
        )
        found.members |= members
        return found

    def parent(self, message: SlackMessage) -> dict[str, str]:
        """Return Slack's data about the message that a reply belongs to."""
        root = self.find(message.channel, message.thread_ts) if message.thread_ts else None
        return {} if root is None or root is message else {"parent_user_id": root.user}

    def find(self, channel: str, ts: str) -> SlackMessage | None:
        """Return the message of a channel with a timestamp."""
        return next((m for m in self.posted if (m.channel, m.ts) == (channel, ts)), None)

    def thread(self, channel: str, root: str) -> list[SlackMessage]:
        """Return the root and its replies, oldest first."""
        return [m for m in self.posted if m.channel == channel and root in {m.ts, m.thread_ts}]

    def flat(self, channel: str) -> list[SlackMessage]:
        """Return the messages in the channel itself, oldest first."""
        return [
            m
            for m in self.posted
            if m.channel == channel
            and (m.thread_ts in {"", m.ts} or m.subtype == "thread_broadcast")
        ]

    def status(self, channel: str, thread: str) -> AgentStatus:
        """Return the agent's state in a thread."""
        return self.statuses.setdefault((channel, thread), AgentStatus())


def block_words(block: dict[str, Any]) -> str:
    """Return the visible text of a block."""
    match block.get("type"):
        case "markdown":
            return str(block["text"])
        case "section":
            return str(block["text"]["text"])
        case "table":
            return "\n".join(" | ".join(map(rich_words, row)) for row in block["rows"])
        case "rich_text":
            return rich_words(block)
        case _:
            return ""
