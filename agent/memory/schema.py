"""MemoryDocument: summaries of a person or room, and facts with a confidence. Pure."""

import hashlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from agent.errors import MemoryInvalid

VERSION = "1.0"
PARTS = ("user", "history", "facts")
"""The parts of a document."""

USER = ("workContext", "personalContext", "topOfMind")
HISTORY = ("recentMonths", "earlierContext", "longTermBackground")
CATEGORIES = ("preference", "knowledge", "context", "behavior", "goal", "correction")

DEFAULT_CATEGORY = "context"
DEFAULT_CONFIDENCE = 0.5
MANUAL = "manual"  # the source of facts that a person entered
UNKNOWN = "unknown"

MAX_FACT_CHARS = 1000
MAX_SUMMARY_CHARS = 2000
MAX_FACTS = 1000
"""Maximum number of facts in a document, from all sources. `memory.max_facts` limits extraction only."""

MAX_NUMBER = 1_000_000_000
"""Largest fact number that a document may contain."""

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029]")
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySection:
    """One section. `updated_at` is in ISO 8601 with zone; "" = never."""

    summary: str = ""
    updated_at: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFact:
    """One fact.

    Attributes:
        id: `fact_` and 8 hexadecimal digits.
        number: The number by which people refer to it: positive and never reused in the scope. 0 = not stored yet.
        content: One statement.
        category: One of `CATEGORIES`.
        confidence: 0 to 1.
        created_at: When it was said or added, ISO 8601 with zone; "" = unknown.
        source: The thread it was extracted from, `manual`, or `unknown`.
        message: The message in that thread that said it; "" = unknown.
        speaker_id: The platform id of the person who said it; "" = unknown.
        speaker: Their name; "" = unknown.
        source_error: For corrections: the error that was corrected.
    """

    id: str
    content: str
    number: int = 0
    category: str = DEFAULT_CATEGORY
    confidence: float = DEFAULT_CONFIDENCE
    created_at: str = ""
    source: str = UNKNOWN
    message: str = ""
    speaker_id: str = ""
    speaker: str = ""
    source_error: str | None = None


def _empty_sections(names: tuple[str, ...]) -> dict[str, MemorySection]:
    return {name: MemorySection() for name in names}


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryDocument:
    """The memory of one scope and agent. `last_number` was the highest fact number in the scope at the last write."""

    last_updated: str = ""
    last_number: int = 0
    user: Mapping[str, MemorySection] = field(default_factory=lambda: _empty_sections(USER))
    history: Mapping[str, MemorySection] = field(default_factory=lambda: _empty_sections(HISTORY))
    facts: tuple[MemoryFact, ...] = ()


EMPTY_DOCUMENT = MemoryDocument()


def clean_text(text: str, limit: int) -> str:
    r"""Remove control characters and invalid Unicode, and shorten to `limit` characters, ellipsis included.

    >>> clean_text(" a\x00b\ud800 ", 10)
    'a b?'
    >>> clean_text("abcdefgh", 6)
    'abc...'
    """
    text = _CONTROL.sub(" ", text).encode("utf-8", "replace").decode("utf-8").strip()
    return text if len(text) <= limit else text[: limit - 3].rstrip() + "..."


def normalized_content(content: str) -> str:
    """Return a key that is equal for facts that differ only in case and spacing.

    >>> normalized_content("Likes  TEA ") == normalized_content("likes tea")
    True
    """
    return " ".join(content.casefold().split())


def parse_confidence(value: object) -> float:
    """Return a confidence clamped to 0 to 1, or the default if it is not a finite number.

    >>> parse_confidence(float("nan")), parse_confidence(None), parse_confidence(7), parse_confidence(True)
    (0.5, 0.5, 1.0, 0.5)
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return DEFAULT_CONFIDENCE
    try:
        number = float(value)
    except OverflowError:
        return 1.0 if value > 0 else 0.0
    return min(1.0, max(0.0, number)) if math.isfinite(number) else DEFAULT_CONFIDENCE


def parse_category(value: object) -> str:
    """Return a known category; `context` for others.

    >>> parse_category(" Goal "), parse_category("gossip"), parse_category(None)
    ('goal', 'context', 'context')
    """
    name = value.strip().lower() if isinstance(value, str) else ""
    return name if name in CATEGORIES else DEFAULT_CATEGORY


def document_to_json(document: MemoryDocument) -> dict[str, Any]:
    """Return the document in its stored and public form."""
    return {
        "version": VERSION,
        "lastUpdated": document.last_updated,
        "lastNumber": document.last_number,
        "user": _sections_to_json(document.user),
        "history": _sections_to_json(document.history),
        "facts": [_fact_to_json(fact) for fact in document.facts],
    }


def _sections_to_json(sections: Mapping[str, MemorySection]) -> dict[str, dict[str, str]]:
    return {
        name: {"summary": section.summary, "updatedAt": section.updated_at}
        for name, section in sections.items()
    }


def _fact_to_json(fact: MemoryFact) -> dict[str, Any]:
    shown = {
        "id": fact.id,
        "content": fact.content,
        "number": fact.number,
        "category": fact.category,
        "confidence": fact.confidence,
        "createdAt": fact.created_at,
        "source": fact.source,
        "message": fact.message,
        "speakerId": fact.speaker_id,
        "speaker": fact.speaker,
    }
    return shown if fact.source_error is None else {**shown, "sourceError": fact.source_error}


def document_from_json(data: object) -> MemoryDocument:
    """Parse a document. Missing parts are empty, empty facts are skipped, invalid numbers become the default.

    Raises:
        MemoryInvalid: It is not a memory document.
    """
    if not isinstance(data, dict):
        raise MemoryInvalid("a memory document must be an object")
    facts = data.get("facts")
    if facts is not None and not isinstance(facts, list):
        raise MemoryInvalid("facts must be a list")
    document = MemoryDocument(
        last_updated=_single_line(data.get("lastUpdated")),
        last_number=_parse_number(data.get("lastNumber")),
        user=_parse_sections(data.get("user"), USER, "user"),
        history=_parse_sections(data.get("history"), HISTORY, "history"),
        facts=_parse_facts(facts or []),
    )
    return number_facts(document, {fact.id: fact.number for fact in document.facts})


def number_facts(document: MemoryDocument, known: Mapping[str, int]) -> MemoryDocument:
    """Give each fact the number that its id has in `known`, or the next free one. Numbers are never reused.

    >>> facts = (MemoryFact(id="a", content="x"), MemoryFact(id="b", content="y", number=2))
    >>> [fact.number for fact in number_facts(MemoryDocument(facts=facts), {"b": 2}).facts]
    [3, 2]
    """
    last = max([document.last_number, *known.values()])
    used: set[int] = set()
    facts: list[MemoryFact] = []
    for fact in document.facts:
        number = known.get(fact.id, 0)
        if number in used or number <= 0:
            number = last = last + 1
        used.add(number)
        facts.append(fact if fact.number == number else replace(fact, number=number))
    return replace(document, facts=tuple(facts), last_number=last)


def _parse_sections(data: object, names: tuple[str, ...], where: str) -> dict[str, MemorySection]:
    if data is not None and not isinstance(data, dict):
        raise MemoryInvalid(f"{where} must be an object of sections")
    given = data or {}
    return {name: _parse_section(given.get(name)) for name in names}


def _parse_section(data: object) -> MemorySection:
    if not isinstance(data, dict):
        return MemorySection()
    text = data.get("summary")
    return MemorySection(
        summary=clean_text(text, MAX_SUMMARY_CHARS) if isinstance(text, str) else "",
        updated_at=_single_line(data.get("updatedAt")),
    )


def _parse_facts(listed: list[Any]) -> tuple[MemoryFact, ...]:
    facts: dict[str, MemoryFact] = {}
    for entry in listed:
        fact = _parse_fact(entry, taken=facts)
        if fact is not None:
            facts[fact.id] = fact
    if len(facts) > MAX_FACTS:
        raise MemoryInvalid(f"there are more than {MAX_FACTS} facts")
    return tuple(facts.values())


def _parse_fact(entry: object, taken: Mapping[str, MemoryFact]) -> MemoryFact | None:
    content = entry.get("content") if isinstance(entry, dict) else None
    if not isinstance(entry, dict) or not isinstance(content, str):
        return None
    content = clean_text(content, MAX_FACT_CHARS)
    if not content:
        return None
    given = entry.get("id")
    is_usable = isinstance(given, str) and _ID.fullmatch(given) is not None and given not in taken
    error = entry.get("sourceError")
    return MemoryFact(
        id=str(given) if is_usable else _derived_id(content, taken),
        content=content,
        number=_parse_number(entry.get("number")),
        category=parse_category(entry.get("category")),
        confidence=parse_confidence(entry.get("confidence")),
        created_at=_single_line(entry.get("createdAt")),
        source=_single_line(entry.get("source")) or UNKNOWN,
        message=_single_line(entry.get("message")),
        speaker_id=_single_line(entry.get("speakerId")),
        speaker=_single_line(entry.get("speaker")),
        source_error=(clean_text(error, MAX_FACT_CHARS) or None)
        if isinstance(error, str)
        else None,
    )


def _derived_id(content: str, taken: Mapping[str, MemoryFact]) -> str:
    """Return a stable id for a fact without one."""
    turn = 0
    while True:
        digest = hashlib.sha256(f"{turn}:{content}".encode()).hexdigest()[:8]
        if f"fact_{digest}" not in taken:
            return f"fact_{digest}"
        turn += 1


def _parse_number(value: object) -> int:
    is_number = isinstance(value, int) and not isinstance(value, bool)
    return value if is_number and 0 < value <= MAX_NUMBER else 0  # type: ignore[operator,return-value]  # an int


def _single_line(value: object) -> str:
    return " ".join(clean_text(value, 200).split()) if isinstance(value, str) else ""
