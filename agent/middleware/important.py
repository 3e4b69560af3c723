"""Finds words that people marked as important, so that no summary loses them. Pure."""

import re
from collections.abc import Iterable, Iterator, Sequence

from langchain_core.messages import BaseMessage

from agent.speakers import speaker_of
from agent.user_messages import is_user_message, strip_framework_blocks

MAX_WORDS_CHARS = 500
"""Maximum length of the words to remember from one place, characters."""

MAX_PLACES = 3
"""Maximum number of places in one message: a pasted document may call everything important."""

_BEFORE_CHARS = 200
"""Characters to include from before the mark in a long text: "... is 42. Remember that"."""

_MARK = re.compile(
    r"""(?<!not\ )(?<!how\ )(?<!less\ )\bimportant\b | \bimportantly\b
    | (?<!you\ )(?<!not\ )(?<!n't\ )(?<!n’t\ )(?<!\bi\ )\bremember\b
    | \b(?:do\ not|don't|don’t|never)\ forget\b | \bkeep\ in\ mind\b | \bfrom\ now\ on\b
    | (?<!不)重要 | (?<!没)记住 | 记着 | 别忘 | 不要忘 | 切记 | 牢记 | 务必 | 从现在起 | 今后""",
    re.IGNORECASE | re.VERBOSE,
)
_QUOTED = re.compile(r"^>.*$\n?", re.MULTILINE)


def marked_words(messages: Iterable[BaseMessage]) -> list[str]:
    """Return the words that people marked as important, in order. In a group, each has its author.

    >>> from langchain_core.messages import HumanMessage
    >>> marked_words(map(HumanMessage, ("Hi", "Remember: no releases on Fridays", "> Important")))
    ['Remember: no releases on Fridays']
    """
    return [
        f"{speaker.name or speaker.id}: {words}" if speaker else words
        for message in messages
        if is_user_message(message)
        for speaker in [speaker_of(message)]
        for words in _marked(_QUOTED.sub("", strip_framework_blocks(str(message.text))))
    ]


def newest_words(words: Sequence[str], max_chars: int) -> list[str]:
    """Return the newest of these words that fit, without repetitions.

    >>> newest_words(["first", "second", "second", "third"], 12)
    ['second', 'third']
    """
    kept: list[str] = []
    for one in reversed(list(dict.fromkeys(words))):
        max_chars -= len(one)
        if max_chars < 0:
            break
        kept.insert(0, one)
    return kept


def _marked(text: str) -> Iterator[str]:
    if len(text) <= MAX_WORDS_CHARS:
        if _MARK.search(text):
            yield " ".join(text.split())
        return
    end = places = 0
    for mark in _MARK.finditer(text):
        if mark.start() < end:
            continue
        begin = max(text.rfind("\n", 0, mark.start()) + 1, mark.start() - _BEFORE_CHARS, end)
        end = begin + MAX_WORDS_CHARS
        paragraph = text.find("\n\n", mark.end(), end)
        yield " ".join(text[begin : end if paragraph < 0 else paragraph].split())
        places += 1
        if places == MAX_PLACES:
            return
