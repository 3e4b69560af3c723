"""Applies what a model proposes to a memory document. Pure."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from agent.memory.extraction_prompt import MemoryUpdate, ProposedFact
from agent.memory.schema import MemoryDocument, MemoryFact, MemorySection, normalized_content

_SENTENCE = re.compile(r".+?(?:[.!?]+(?=\s|$)|[。！？]+|\n|$)\s*", re.DOTALL)
_ABOUT_UPLOADS = re.compile(
    r"/mnt/user-data\b"
    r"|\bupload(?:ed|s|ing)?\b.{0,60}\b(?:files?|documents?|images?|pictures?|photos?|pdfs?|spreadsheets?|attachments?)\b"
    r"|\b(?:files?|documents?|images?|pictures?|photos?|pdfs?|spreadsheets?|attachments?)\b.{0,60}\bupload(?:ed|s|ing)?\b"
    r"|上传.{0,20}(?:文件|文档|图片|照片|表格|附件)|(?:文件|文档|图片|照片|表格|附件).{0,20}上传",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What is taken over: facts from this confidence on, and the most certain so many."""

    threshold: float = 0.7
    max_facts: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """Where new parts come from.

    Attributes:
        now: ISO 8601 with zone.
        source: The thread.
        new_id: Makes ids of facts.
    """

    now: str
    source: str
    new_id: Callable[[], str]


def apply_update(
    document: MemoryDocument, update: MemoryUpdate, bounds: Bounds, stamp: Stamp
) -> MemoryDocument:
    """Return the document after an update; the very document when the update changes nothing."""
    kept = tuple(fact for fact in document.facts if fact.id not in update.removed_ids)
    changed = replace(
        document,
        user=_sections(document.user, update.user, stamp.now),
        history=_sections(document.history, update.history, stamp.now),
        facts=keep_most_certain(
            (*kept, *_added(kept, update.new_facts, bounds, stamp)), bounds.max_facts
        ),
    )
    return document if changed == document else replace(changed, last_updated=stamp.now)


def keep_most_certain(facts: tuple[MemoryFact, ...], max_facts: int) -> tuple[MemoryFact, ...]:
    """Keep the most certain facts, in their order; of equally certain ones the newer."""
    if len(facts) <= max_facts:
        return facts
    newest_first = range(len(facts) - 1, -1, -1)
    ranked = sorted(newest_first, key=lambda position: -facts[position].confidence)
    kept = set(ranked[:max_facts])
    return tuple(fact for position, fact in enumerate(facts) if position in kept)


def remove_upload_mentions(text: str) -> str:
    """Leave out the sentences about uploaded files: their paths are gone in the next conversation.

    >>> remove_upload_mentions("Ann works on ships. She uploaded a file plan.pdf. She likes tea.")
    'Ann works on ships. She likes tea.'
    """
    if _ABOUT_UPLOADS.search(text) is None:
        return text
    sentences = [found.group() for found in _SENTENCE.finditer(text)]
    return "".join(one for one in sentences if _ABOUT_UPLOADS.search(one) is None).strip()


def _sections(
    present: Mapping[str, MemorySection], wanted: Mapping[str, str], now: str
) -> dict[str, MemorySection]:
    result = dict(present)
    for name, proposed in wanted.items():
        text = remove_upload_mentions(proposed)
        if text and text != present[name].summary:
            result[name] = MemorySection(summary=text, updated_at=now)
    return result


def _added(
    kept: tuple[MemoryFact, ...], proposed: tuple[ProposedFact, ...], bounds: Bounds, stamp: Stamp
) -> tuple[MemoryFact, ...]:
    known = {normalized_content(fact.content) for fact in kept}
    taken = {fact.id for fact in kept}
    added: list[MemoryFact] = []
    for new in proposed:
        content = remove_upload_mentions(new.content)
        if new.confidence < bounds.threshold or not content or normalized_content(content) in known:
            continue
        known.add(normalized_content(content))
        added.append(_made(new, content, _free_id(stamp.new_id, taken), stamp))
    return tuple(added)


def _made(new: ProposedFact, content: str, fact_id: str, stamp: Stamp) -> MemoryFact:
    return MemoryFact(
        id=fact_id,
        content=content,
        category=new.category,
        confidence=new.confidence,
        created_at=stamp.now,
        source=stamp.source,
        source_error=new.source_error,
    )


def _free_id(new_id: Callable[[], str], taken: set[str]) -> str:
    found = new_id()
    while found in taken:
        found = new_id()
    taken.add(found)
    return found
