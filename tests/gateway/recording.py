"""Replays recorded exchanges with LangGraph Server against Parley, and compares statuses and shapes."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import orjson

EXCHANGES = Path(__file__).parents[1] / "data" / "langgraph-server-exchanges.jsonl"
UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")

Shape = Any
"""The shape of a value: types in place of scalars, and the shapes of items in place of lists."""


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """One request, and what LangGraph Server answered.

    Attributes:
        text: The answer's body.
        is_cut: The client closed the stream before its end.
    """

    number: int
    name: str
    method: str
    path: str
    headers: Mapping[str, str]
    body: str | None
    status: int
    response_headers: Mapping[str, str]
    text: str
    is_cut: bool

    @property
    def thread(self) -> str | None:
        """The thread that the path names."""
        found = re.match(r"/threads/([^/?]+)", self.path)
        return found[1] if found and found[1] not in {"search", "count", "prune"} else None

    @property
    def run(self) -> str | None:
        """The run that the path names."""
        found = re.search(r"/runs/([0-9a-f-]{36})", self.path)
        return found[1] if found else None

    @property
    def made(self) -> str | None:
        """The run that was started."""
        found = re.search(
            r"/runs/([0-9a-f-]{36})$", self.response_headers.get("content-location", "")
        )
        return found[1] if found and self.method == "POST" else None

    @property
    def is_stream(self) -> bool:
        """Whether the answer is a stream of events."""
        return "event-stream" in self.response_headers.get("content-type", "")


def recorded() -> list[Exchange]:
    """Return all exchanges in the order of their requests."""
    return [Exchange(**orjson.loads(line)) for line in EXCHANGES.read_bytes().splitlines()]


def shape_of(text: str, *, is_stream: bool) -> Shape:
    """Return the shape of an answer. A stream's shape is the order of its events and the shape of each kind."""
    if is_stream:
        frames = list(_frames(text))
        names = [name for name, _ in frames]
        kinds: dict[str, Shape] = {}
        for name, data in frames:
            kinds[name] = joined(kinds.get(name), shape(data))
        return {"order": [name for name, _ in groupby(names)], **kinds}
    return shape(orjson.loads(text)) if text.strip() else "nothing"


def _frames(text: str) -> Iterator[tuple[str, Any]]:
    for block in text.replace("\r\n", "\n").split("\n\n"):
        fields = dict(
            line.split(": ", 1) for line in block.splitlines() if not line.startswith(":")
        )
        if "data" in fields:
            yield fields["event"].partition(":")[0], orjson.loads(fields["data"])


def shape(value: object) -> Shape:
    """Return a value's shape. All keys that are ids count as the same key."""
    if isinstance(value, Mapping):
        return {UUID.sub("<id>", str(key)): shape(one) for key, one in value.items()}
    if isinstance(value, list):
        whole: Shape = None
        for one in value:
            whole = joined(whole, shape(one))
        return [whole]
    return None if value is None else type(value).__name__


def joined(first: Shape, second: Shape) -> Shape:
    """Return the combined shape of two values in the same place."""
    if isinstance(first, dict) and isinstance(second, dict):
        return {
            key: joined(first.get(key), second.get(key)) for key in first.keys() | second.keys()
        }
    if isinstance(first, list) and isinstance(second, list):
        return [joined(first[0], second[0])]
    return first if second is None else second


def differences(theirs: Shape, ours: Shape, place: str = "") -> Iterator[str]:
    """Yield the differences: `-` is missing from ours, `+` is only in ours, `!` has a different type."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        dot = f"{place}." if place else ""
        yield from (f"-{dot}{key}" for key in sorted(theirs.keys() - ours.keys()))
        yield from (f"+{dot}{key}" for key in sorted(ours.keys() - theirs.keys()))
        for key in sorted(theirs.keys() & ours.keys() - {"order"}):
            yield from differences(theirs[key], ours[key], f"{dot}{key}")
        if theirs.get("order") != ours.get("order"):
            yield f"!order {_brief(theirs['order'])} | {_brief(ours['order'])}"
    elif isinstance(theirs, list) and isinstance(ours, list):
        yield from differences(theirs[0], ours[0], f"{place}[]")
    elif theirs is not None and ours is not None and theirs != ours:
        yield f"!{place} {_brief(theirs)} | {_brief(ours)}"


def _brief(one: Shape) -> str:
    if isinstance(one, list) and all(isinstance(name, str) for name in one):
        return " ".join(one)
    return one if isinstance(one, str) else type(one).__name__
