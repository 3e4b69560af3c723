"""Applies a model's proposed update to a memory document. Pure."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from agent.memory.extraction_prompt import FactSource, MemoryUpdate, ProposedFact
from agent.memory.schema import MemoryDocument, MemoryFact, MemorySection, normalized_content

_SENTENCE = re.compile(r".+?(?:(?<![.!?])[.!?]++(?=\s|$)|[。！？]+|\n|$)\s*", re.DOTALL)
_ABOUT_UPLOADS = re.compile(
    r"/mnt/user-data\b"
    r"|\bupload(?:ed|s|ing)?\b.{0,60}\b(?:files?|documents?|images?|pictures?|photos?|pdfs?|spreadsheets?|attachments?)\b"
    r"|\b(?:files?|documents?|images?|pictures?|photos?|pdfs?|spreadsheets?|attachments?)\b.{0,60}\bupload(?:ed|s|ing)?\b"
    r"|上传.{0,20}(?:文件|文档|图片|照片|表格|附件)|(?:文件|文档|图片|照片|表格|附件).{0,20}上传",
    re.IGNORECASE,
)

_ONE_TASK = re.compile(
    r"\b(?:this|that) (?:one|time|answer|reply|question|message|task|email|mail|text)\b|\b(?:just|only) (?:this|once)\b"
    r"|\bfor (?:now|today|once|this)\b|这(?:一)?(?:次|个问题|个回答|条|题|封|篇)"
    r"|本次|今天先|暂时|今回|この(?:質問|回答|返事)",
    re.IGNORECASE,
)
_FROM_NOW_ON = re.compile(
    r"\b(?:always|never|from now on|every time|in (?:the )?future|generally|in general|i prefer|i like|i hate)\b"
    r"|总是|一直|以后|今后|每次|从不|永远|我喜欢|我更喜欢|いつも|これから|今後",
    re.IGNORECASE,
)


def apply_update(
    document: MemoryDocument,
    update: MemoryUpdate,
    sources: Sequence[FactSource],
    *,
    now: str,
    new_id: Callable[[], str],
    min_confidence: float = 0.7,
    max_facts: int = 100,
) -> MemoryDocument:
    """Return the document with an update applied; the same object if the update changes nothing.

    A fact belongs to the person who said it. Only that person's messages can replace or remove it.

    Args:
        document: The current document.
        update: The changes that the model proposes.
        sources: The numbered messages of the prompt.
        now: The time of the change, ISO 8601 with zone.
        new_id: Generates fact ids.
        min_confidence: New facts below this confidence are dropped.
        max_facts: Maximum number of facts (`limit_facts`).
    """
    removed = {
        fact_id
        for fact_id, position in update.removed.items()
        for fact in document.facts
        if fact.id == fact_id and _may_change(fact, _source_of(position, "", sources))
    }
    taken = {fact.id for fact in document.facts}
    added: list[MemoryFact] = []
    for proposed in update.new_facts:
        content = remove_upload_mentions(proposed.content)
        source = _source_of(proposed.message, content, sources)
        if proposed.confidence < min_confidence or not content or source is None:
            continue
        if not proposed.is_lasting or _is_about_one_task(proposed, source.message.text):
            continue
        fact = MemoryFact(
            id=_unused_id(new_id, taken),
            content=content,
            category=proposed.category,
            confidence=proposed.confidence,
            created_at=source.turn.said_at or now,
            source=source.turn.thread_id,
            message=source.message.id,
            speaker_id=source.message.speaker_id,
            speaker=source.message.speaker,
            source_error=proposed.source_error,
        )
        replaced = {
            old.id
            for old in document.facts
            if old.id in proposed.replaced_ids and _may_change(old, source)
        }
        present = [one for one in (*document.facts, *added) if one.id not in removed | replaced]
        if any(_is_same(one, fact) for one in present):
            continue
        removed |= replaced
        added.append(fact)
    kept = tuple(fact for fact in document.facts if fact.id not in removed)
    changed = replace(
        document,
        user=_update_sections(document.user, update.user, now),
        history=_update_sections(document.history, update.history, now),
        facts=limit_facts((*kept, *added), max_facts),
    )
    return document if changed == document else replace(changed, last_updated=now)


def limit_facts(facts: tuple[MemoryFact, ...], max_facts: int) -> tuple[MemoryFact, ...]:
    """Drop facts beyond a limit. Each time, drop the least certain, then oldest fact of the person with the most facts.

    So one person's facts never crowd out the facts of others.
    """
    by_speaker: dict[str, list[MemoryFact]] = {}
    for fact in facts:
        by_speaker.setdefault(fact.speaker_id, []).append(fact)
    for own in by_speaker.values():
        own.sort(key=lambda fact: -fact.confidence, reverse=True)  # Stable: the oldest first.
    dropped: set[str] = set()
    while len(facts) - len(dropped) > max_facts:
        dropped.add(max(by_speaker.values(), key=len).pop(0).id)
    return tuple(fact for fact in facts if fact.id not in dropped)


def _source_of(position: int, content: str, sources: Sequence[FactSource]) -> FactSource | None:
    """Return the source with this number, or else the only possible one; None if several people may have said it."""
    if 0 < position <= len(sources):
        return sources[position - 1]
    if len({one.message.speaker_id for one in sources}) == 1:
        return sources[-1]
    named = [one for one in sources if one.message.speaker and one.message.speaker in content]
    return named[-1] if len({one.message.speaker_id for one in named}) == 1 else None


def _may_change(fact: MemoryFact, source: FactSource | None) -> bool:
    """Return whether a source may replace or remove a fact. It may if the fact has the same speaker or none."""
    return not fact.speaker_id or (
        source is not None and source.message.speaker_id == fact.speaker_id
    )


def _is_same(fact: MemoryFact, other: MemoryFact) -> bool:
    return normalized_content(fact.content) == normalized_content(other.content) and (
        fact.speaker_id in ("", other.speaker_id)
    )


def _is_about_one_task(proposed: ProposedFact, said: str) -> bool:
    """Return whether the words of a wish or rule limit it to the present task, regardless of the model's opinion.

    >>> wish = ProposedFact(content="Wants answers in French", category="preference", confidence=1.0)
    >>> [_is_about_one_task(wish, said) for said in ("Answer this one in French", "Always answer in French")]
    [True, False]
    """
    if proposed.category not in ("preference", "behavior", "correction"):
        return False
    return _ONE_TASK.search(said) is not None and _FROM_NOW_ON.search(said) is None


def remove_upload_mentions(text: str) -> str:
    """Remove sentences about uploaded files, because their paths do not exist in the next conversation.

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
