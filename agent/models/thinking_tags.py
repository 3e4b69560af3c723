"""Separates the answer from thinking that a server leaves in the text between tags. Pure.

Tags count as thinking only where models put it: at the beginning of an answer, after other thinking, and after tool
calls. Within an answer they count at the beginning of a line, if the thinking is closed. Elsewhere, and in code, the
tags are part of the answer. If a chat template opens the tag, the model writes only the closing tag. `split_thinking`
handles this in whole texts; a stream handles it only for a model that is known to do so.
"""

import re
from typing import Literal

_NAMES = ("think", "thinking", "thought", "reasoning")
_OPENING = tuple(f"<{name}>" for name in _NAMES)
_LONGEST = max(len(f"</{name}>") for name in _NAMES)

_TAG = re.compile(rf"<(/?)(?:{'|'.join(_NAMES)})>", re.IGNORECASE)
_FENCED = re.compile(
    r"^[ ]{0,3}(?P<fence>`{3,}|~{3,})(?:.*?^[ ]{0,3}(?P=fence)|(?P<open>.*)\Z)",
    re.DOTALL | re.MULTILINE,
)
_TICKS = re.compile(r"`+")

Split = tuple[str, str]
"""New text of the answer, and new text of the thinking."""


class ThinkingSplitter:
    """Splits a text that arrives in pieces. The result does not depend on how the text is cut into pieces.

    Args:
        ends_alone: The model is known to write only the closing tag of its first thinking block, so text before the tag
            is held.

    Attributes:
        has_ended_alone: Whether the text had such a closing tag.
    """

    def __init__(self, *, ends_alone: bool = False) -> None:
        # start: thinking may begin. thinking: inside thinking. unclear: thinking may end later or have ended already.
        # text: inside the answer. aside: inside thinking within the answer, if it is closed later.
        self._state: Literal["start", "thinking", "unclear", "text", "aside"] = (
            "unclear" if ends_alone else "start"
        )
        self.has_ended_alone = False
        self._is_first = ends_alone
        self._held = ""
        self._has_thought = False
        self._is_nested = False
        self._shown: list[str] = []
        self._thought: list[str] = []
        self._answer: list[str] = []
        self._is_blank_line = True

    def feed(self, text: str) -> Split:
        """Add a piece. Return the new text of the answer and of the thinking."""
        if self._state == "text" and not self._held and "<" not in text:
            self._show(text)
            self._shown = []
            return text, ""
        self._held += text
        while self._held and self._advance():
            pass
        return self._take()

    def restart(self) -> Split:
        """Allow thinking again after a tool call. Return the held text."""
        split = self.end()
        self._state, self._has_thought = "start", False
        return split

    def end(self, *, is_cut: bool = False) -> Split:
        """End the text and return the held part. `is_cut` = it ended at the model's limit, perhaps during thinking."""
        held, self._held = self._held, ""
        is_first = self._is_first and not self.has_ended_alone
        if self._state == "thinking" or (is_cut and (is_first or self._state == "aside")):
            self._thought.append(held)
        elif self._state == "unclear":
            shown, thought = split_thinking(held)
            self._shown.append(shown)
            self._thought.append(thought)
        elif self._state != "start" or not self._has_thought or held.strip():
            self._shown.append(held)
        return self._take()

    def _take(self) -> Split:
        split = "".join(self._shown), "".join(self._thought)
        self._shown, self._thought = [], []
        return split

    def _advance(self) -> bool:
        """Assign the beginning of the held text to the answer or the thinking. Return whether to go on."""
        if self._state == "start":
            return self._begin()
        if self._state == "thinking":
            return self._think()
        if self._state == "text":
            return self._find_aside()
        if self._state == "aside":
            return self._end_aside()
        return self._find_end()

    def _begin(self) -> bool:
        text = self._held.lstrip()
        word = text[:_LONGEST].lower()
        tag = next((one for one in _OPENING if word.startswith(one)), None)
        if tag is not None:
            self._state, self._held, self._is_nested = "thinking", text[len(tag) :], False
            return True
        if any(one.startswith(word) for one in _OPENING):
            return False  # the tag, or the space before it, may be incomplete
        self._state = "text"
        if self._has_thought:
            self._held = text
        return True

    def _find_aside(self) -> bool:
        """Release the text up to a thinking tag at the beginning of a line."""
        while (at := self._held.find("<")) >= 0:
            self._show(self._held[:at])
            self._held = self._held[at:]
            word = self._held[:_LONGEST].lower()
            if self._is_blank_line and word.startswith(_OPENING):
                if not _ends_in_code("".join(self._answer)):
                    self._state = "aside"
                    return True
            elif self._is_blank_line and any(one.startswith(word) for one in _OPENING):
                return False  # the tag may be incomplete
            self._show("<")
            self._held = self._held[1:]
        self._show(self._held)
        self._held = ""
        return False

    def _end_aside(self) -> bool:
        tags = _TAG.finditer(self._held)
        ending = next((tag for tag in tags if tag[1]), None)
        if ending is None:
            return False
        self._thought.append(self._held[self._held.index(">") + 1 : ending.start()])
        self._held = self._held[ending.end() :]
        self._state = "text"
        return True

    def _show(self, text: str) -> None:
        self._shown.append(text)
        self._answer.append(text)
        _, line_end, line = text.rpartition("\n")
        self._is_blank_line = (bool(line_end) or self._is_blank_line) and not line.strip()

    def _think(self) -> bool:
        tag = _TAG.search(self._held)
        if tag is None:
            at = self._held.rfind("<", -_LONGEST)
            cut = len(self._held) if at < 0 else at
            self._thought.append(self._held[:cut])
            self._held = self._held[cut:]
            return False
        if tag[1]:
            self._end_thinking(tag.start(), tag.end())
            self._state = "unclear" if self._is_nested else "start"
        else:
            self._is_nested = True
            self._thought.append(self._held[: tag.end()])
            self._held = self._held[tag.end() :]
        return True

    def _find_end(self) -> bool:
        if self._is_first and self._held.lstrip()[:_LONGEST].lower().startswith(_OPENING):
            self._state, self._is_first = "start", False
            return True
        found = _lone_end(self._held, is_whole=False)
        if found is None:
            return False
        self._end_thinking(*found)
        self._state = "start"
        self.has_ended_alone = True
        return True

    def _end_thinking(self, start: int, end: int) -> None:
        self._thought.append(self._held[:start])
        self._held = self._held[end:]
        self._has_thought = True


def split_thinking(text: str) -> Split:
    r"""Split a whole text into the answer and the thinking.

    >>> split_thinking("<think>Hm.</think>\n\nYes."), split_thinking("Hm.\n</think>\n\nYes.")
    (('Yes.', 'Hm.'), ('Yes.', 'Hm.\n'))
    >>> split_thinking("Write `</think>` or <think> and </think>.")
    ('Write `</think>` or <think> and </think>.', '')
    """
    if _TAG.search(text) is None:
        return text, ""
    splitter = ThinkingSplitter()
    parts = [splitter.feed(text), splitter.end()]
    answer, thinking = ("".join(part) for part in zip(*parts, strict=True))
    if (found := _lone_end(answer)) is not None:
        start, end = found
        rest, more = split_thinking(answer[end:].lstrip())
        return rest, thinking + answer[:start] + more
    return answer, thinking


def ends_alone(text: str) -> bool:
    """Return whether a text has a closing tag without an opening one."""
    return "</" in text and _lone_end(text) is not None


def without_thinking(text: str) -> str:
    """Return a text without thinking.

    >>> without_thinking("<think>Hm.</think>Yes.")
    'Yes.'
    """
    return split_thinking(text)[0]


def _lone_end(text: str, *, is_whole: bool = True) -> tuple[int, int] | None:
    """Return the position of a closing tag without an opening one; None if there is none.

    Tags in code do not count, nor does a closing tag after an opening one, except on a line of its own.
    """
    has_opened = False
    for tag in _TAG.finditer(text):
        before, after = text[: tag.start()], text[tag.end() : tag.end() + 1]
        if _ends_in_code(before):
            continue
        if not tag[1]:
            has_opened = True
            continue
        is_own_line = before.endswith("\n") and (after in ("\n", "\r") if after else is_whole)
        if is_own_line or not has_opened:
            return tag.span()
    return None


def _ends_in_code(text: str) -> bool:
    """Return whether a text ends within a code block or a code span."""
    rest = 0
    for block in _FENCED.finditer(text):
        if block["open"] is not None:
            return True
        rest = block.end()
    paragraph = re.split(r"\n[ \t]*\n", text[rest:])[-1]
    opened = ""
    for ticks in _TICKS.findall(paragraph):
        if not opened:
            opened = ticks
        elif ticks == opened:
            opened = ""
    return bool(opened)
