"""Removes characters that break JSON, SQLite, prompts or terminals from texts. Pure."""

import re

MAX_NAME_CHARS = 200

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_BIDI = re.compile(r"[\u202a-\u202e\u2066-\u2069]")
_SURROGATES = re.compile(r"[\ud800-\udfff]")
_LINE_ENDS = re.compile(r"\r\n?|[\u2028\u2029]")


def clean(text: str) -> str:
    r"""Remove lone surrogates, and control characters except newline and tab.

    Surrogate pairs become their character, lone surrogates become U+FFFD, and line ends become newlines.

    >>> clean('a\r\nb\x00\x1b[0m \ud83d\ude00 \ud83d')
    'a\nb[0m 😀 �'
    """
    return _CONTROLS.sub("", replace_surrogates(_LINE_ENDS.sub("\n", text)))


def replace_surrogates(text: str) -> str:
    r"""Replace surrogate pairs with their character, and lone surrogates with U+FFFD.

    >>> replace_surrogates('\ud83d\ude00 \ud83d')
    '😀 �'
    """
    if not _SURROGATES.search(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def clean_outbound(text: str) -> str:
    r"""Clean a text for display. Also removes bidirectional controls, which change the order of the displayed text.

    Keeps the marks that right-to-left scripts need (U+200E, U+200F, U+061C), because they reorder nothing by
    themselves.

    >>> clean_outbound("invoice\u202efdp.exe")
    'invoicefdp.exe'
    """
    return strip_bidi(clean(text))


def strip_bidi(text: str) -> str:
    """Remove bidirectional controls."""
    return _BIDI.sub("", text)


def clean_name(name: str) -> str:
    r"""Return the name of a person, chat or file on one line, without bidirectional controls, cut to `MAX_NAME_CHARS`.

    >>> clean_name("a\nb\x07"), clean_name("invoice\u202efdp.exe")
    ('a b', 'invoicefdp.exe')
    """
    return " ".join(clean_outbound(name[:MAX_NAME_CHARS]).split())
