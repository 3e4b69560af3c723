"""Text that is asked about again and again while it is cut: what was parsed once is kept. Pure."""

from typing import TypeAlias

from bots.text.tree import Inline

Memo: TypeAlias = dict[str, tuple[Inline, ...]]
"""What the text of a paragraph, a heading or a cell was parsed to. It lives as long as one `split`."""


class StreamedMarkdown(str):
    """A piece of Markdown that brings along what its parts were parsed to in other pieces."""

    __slots__ = ("memo",)

    memo: Memo

    @staticmethod
    def of(text: str, memo: Memo) -> "StreamedMarkdown":
        """Return a text with the memo that it shares with other pieces.

        >>> StreamedMarkdown.of("a", {}) == "a"
        True
        """
        draft = StreamedMarkdown(text)
        draft.memo = memo
        return draft
