"""Quotations: other people's words in a message to the agent, in the same form for all platforms. Pure.

`bus/locales/detection.py` depends on this form and ignores these lines.
"""

from bus.characters import clean_name

FORWARDED = "[Forwarded]"
"""Heading of forwarded messages."""


def quotation(words: str, author: str = "", *, heading: str = "") -> str:
    r"""Return words as a quotation, with their author and heading if known; "" without words.

    >>> quotation("at nine\nor ten", "Ann")
    '> Ann: at nine\n> or ten'
    >>> quotation("at nine", heading=FORWARDED)
    '[Forwarded]\n> at nine'
    """
    if not words:
        return ""
    name = clean_name(author)
    said = f"{name}: {words}" if name else words
    lines = [f"> {line}".rstrip() for line in said.split("\n")]
    return "\n".join([heading, *lines] if heading else lines)
