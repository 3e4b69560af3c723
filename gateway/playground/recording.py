"""Recordings: people's actions, with times, and the messages that they saw. A replay compares these with new ones.

Messages have other IDs in a replay, so a recording names them by author and number: `parley#2` is the bot's second
message in its place.
"""

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import unified_diff
from typing import Any

from gateway.playground.shown import Action, Node, SeenMessage, SeenPlace

VERSION = 1
REFERENCES = ("message", "reply_to", "thread")
"""Fields of an action that name a message."""

_VARIES = (
    (re.compile(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "(id)"),
    (re.compile(r"\b[A-HJ-NP-Z2-9]{8}\b"), "(code)"),
    (re.compile(r"\b\d{4}-\d\d-\d\d([T ]\d\d:\d\d(:\d\d)?)?\b"), "(time)"),
    (re.compile(r"\b\d+([.,]\d+)? ?(s|ms|min)\b"), "(duration)"),
)
"""Text that differs from run to run: IDs of threads, codes of pairings, times."""


@dataclass(slots=True)
class MessageNames:
    """The names of messages by place and ID."""

    _names: dict[tuple[str, str], str] = field(default_factory=dict)
    _counts: dict[tuple[str, str], int] = field(default_factory=dict)

    def note(self, place: str, messages: Sequence[SeenMessage]) -> None:
        """Name the messages that have no name yet, in order."""
        for message in messages:
            key = (place, message.id)
            if key not in self._names and message.id != "draft":
                number = self._counts[place, message.author] = (
                    self._counts.get((place, message.author), 0) + 1
                )
                self._names[key] = f"{message.author}#{number}"

    def name(self, place: str, message_id: str) -> str:
        """Return the name of a message; "" = unknown."""
        return self._names.get((place, message_id), "")

    def find(self, place: str, name: str) -> str:
        """Return the ID of the message with a name; "" = there is no such message yet."""
        found = (key[1] for key, known in self._names.items() if (key[0], known) == (place, name))
        return next(found, "")


class Recorder:
    """Collects actions."""

    def __init__(self) -> None:
        self.names = MessageNames()
        self._actions: list[dict[str, Any]] = []
        self._began_at = time.monotonic()

    def note(self, place: str, messages: Sequence[SeenMessage]) -> None:
        """Name the messages of a place."""
        self.names.note(place, messages)

    def add(self, action: Action) -> None:
        """Record an action that begins now."""
        at_s = round(time.monotonic() - self._began_at, 2)
        place = str(action.get("place", ""))
        named = {
            name: self.names.name(place, str(value)) if name in REFERENCES and value else value
            for name, value in action.items()
        }
        self._actions.append({"at_s": at_s, **named})

    def drop_last(self) -> None:
        """Forget the last action, which was refused."""
        self._actions.pop()

    def recording(self, seen: Mapping[str, SeenPlace]) -> dict[str, Any]:
        """Return the recording. `seen`: the messages that people see now, by place."""
        return {
            "version": VERSION,
            "ends_at_s": round(time.monotonic() - self._began_at, 2),
            "actions": self._actions,
            "seen": {
                place: lines
                for place, found in seen.items()
                if (lines := seen_lines(place, found, self.names))
            },
        }


def seen_lines(place: str, seen: SeenPlace, names: MessageNames) -> list[str]:
    """Return the messages that people see in a place, as lines to compare between two runs."""
    names.note(place, seen.messages)
    return [line for one in seen.messages for line in _message_lines(place, one, names)]


def _message_lines(place: str, message: SeenMessage, names: MessageNames) -> Iterator[str]:
    if message.id == "draft":
        return
    marks = [
        f"in {names.name(place, message.thread)}" if message.thread else "",
        f"to {names.name(place, message.reply_to)}" if message.reply_to else "",
        f"only for {message.only_for}" if message.only_for else "",
        "edited" if message.edited else "",
    ]
    yield " ".join([message.author or "platform", *(f"({one})" for one in marks if one)]) + ":"
    text = "\n".join(plain_text(node) for node in message.body)
    for pattern, instead in _VARIES:
        text = pattern.sub(instead, text)
    yield from (f"  {line}" for line in text.splitlines() if line.strip())
    for label, found in (
        ("files", [str(file["name"]) for file in message.files]),
        ("buttons", message.buttons),
        ("reactions", message.reactions),
    ):
        if found:
            yield f"  {label}: {', '.join(found)}"


def plain_text(node: Node) -> str:
    r"""Return the text of a tree.

    >>> plain_text(["p", {}, "a", ["br", {}], ["em", {}, "b"]])
    'a\nb'
    """
    if isinstance(node, str):
        return node
    tag, _, *children = node
    if tag == "br":
        return "\n"
    joiner = "\n" if tag in {"ul", "ol", "table", "blockquote", "details"} else ""
    return joiner.join(plain_text(child) for child in children)


def differences(
    recorded: Mapping[str, Sequence[str]], now: Mapping[str, Sequence[str]]
) -> list[str]:
    """Return the lines of a diff between what people saw and what they see; empty = no difference."""
    found: list[str] = []
    for place in sorted({*recorded, *now}):
        before, after = recorded.get(place, ()), now.get(place, ())
        found += unified_diff(
            before, after, f"{place} (recorded)", f"{place} (replayed)", lineterm=""
        )
    return found
