"""Markdown that remembers how its parts were parsed: the splitter measures the same text many times. Pure."""

from typing import TypeAlias

from bots.text.tree import Inline

Memo: TypeAlias = dict[str, tuple[Inline, ...]]
"""Inline text -> its parsed form. It lives as long as one `split`."""


class MemoizedMarkdown(str):
    """A piece of Markdown with the memo that it shares with other pieces."""

    __slots__ = ("memo",)

    memo: Memo

    @staticmethod
    def with_memo(text: str, memo: Memo) -> "MemoizedMarkdown":
        """Return a text with the memo that it shares with other pieces.

        >>> MemoizedMarkdown.with_memo("a", {}) == "a"
        True
        """
        draft = MemoizedMarkdown(text)
        draft.memo = memo
        return draft
