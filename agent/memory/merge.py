"""Applies a model's proposed update to a memory document. Pure."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from agent.memory.extraction_prompt import MemoryUpdate
from agent.memory.schema import MemoryDocument, MemoryFact, MemorySection, normalized_content

_SENTENCE = re.compile(r".+?(?:(?<![.!?])[.!?]++(?=\s|$)|[。！？]+|\n|$)\s*", re.DOTALL)
_ABOUT_UPLOADS = re.compile(
    r"/mnt/user-data\b"
    r"|\bupload(?:ed|s|ing)?\b.{0,60}\b(?:files?|documents?|images?|pictures?|photos?|pdfs?|spreadsheets?|attachments?)\b"
    r"|\b(?:files?|documents?|images?|pictures?|photos?|pdfs?|spreadsheets?|attachments?)\b.{0,60}\bupload(?:ed|s|ing)?\b"
    r"|上传.{0,20}(?:文件|文档|图片|照片|表格|附件)|(?:文件|文档|图片|照片|表格|附件).{0,20}上传",
    re.IGNORECASE,
)


def apply_update(
    document: MemoryDocument,
    update: MemoryUpdate,
    *,
    now: str,
    source: str,
    new_id: Callable[[], str],
    min_confidence: float = 0.7,
    max_facts: int = 100,
) -> MemoryDocument:
    """Return the document with an update applied; the same object if the update changes nothing.

    Args:
        document: The current document.
        update: The changes that the model proposes.
        now: The time of the change, ISO 8601 with zone.
        source: The thread the update comes from.
        new_id: Generates fact ids.
        min_confidence: New facts below this confidence are dropped.
        max_facts: Maximum number of facts; the least certain ones are dropped.
    """
    kept = tuple(fact for fact in document.facts if fact.id not in update.removed_ids)
    known = {normalized_content(fact.content) for fact in kept}
    taken = {fact.id for fact in kept}
    added: list[MemoryFact] = []
    for proposed in update.new_facts:
        content = remove_upload_mentions(proposed.content)
        key = normalized_content(content)
        if proposed.confidence < min_confidence or not content or key in known:
            continue
        known.add(key)
        fact = MemoryFact(
            id=_unused_id(new_id, taken),
            content=content,
            category=proposed.category,
            confidence=proposed.confidence,
            created_at=now,
            source=source,
            source_error=proposed.source_error,
        )
        added.append(fact)
    changed = replace(
        document,
        user=_update_sections(document.user, update.user, now),
        history=_update_sections(document.history, update.history, now),
        facts=keep_most_certain((*kept, *added), max_facts),
    )
    return document if changed == document else replace(changed, last_updated=now)


def keep_most_certain(facts: tuple[MemoryFact, ...], max_facts: int) -> tuple[MemoryFact, ...]:
    """Keep the most certain facts, in their order. If two are equally certain, keep the newer one."""
    if len(facts) <= max_facts:
        return facts
    newest_first = range(len(facts) - 1, -1, -1)
    ranked = sorted(newest_first, key=lambda position: -facts[position].confidence)
    kept = set(ranked[:max_facts])
    return tuple(fact for position, fact in enumerate(facts) if position in kept)


def remove_upload_mentions(text: str) -> str:
    """Remove sentences about uploaded files: their paths do not exist in the next conversation.

    >>> remove_upload_mentions("Ann works on ships. She uploaded a file plan.pdf. She likes tea.")
    'Ann works on ships. She likes tea.'
    """
    if _ABOUT_UPLOADS.search(text) is None:
        return text
    sentences = [found.group() for found in _SENTENCE.finditer(text)]
    return "".join(one for one in sentences if _ABOUT_UPLOADS.search(one) is None).strip()


def _update_sections(
    current: Mapping[str, MemorySection], proposed: Mapping[str, str], now: str
) -> dict[str, MemorySection]:
    sections = dict(current)
    for name, text in proposed.items():
        cleaned = remove_upload_mentions(text)
        if cleaned and cleaned != current[name].summary:
            sections[name] = MemorySection(summary=cleaned, updated_at=now)
    return sections


def _unused_id(new_id: Callable[[], str], taken: set[str]) -> str:
    found = new_id()
    while found in taken:
        found = new_id()
    taken.add(found)
    return found
