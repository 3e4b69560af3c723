"""Detects the encodings of text files: UTF-8, and the legacy encodings of China, Japan, Korea and Europe."""

import codecs
from typing import NamedTuple

UTF_8 = "utf-8"

OTHERS = ("gb18030", "big5", "shift_jis", "euc_kr", "cp1252", "cp1251")
"""Encodings to try for a text that is not Unicode. With more candidates, short texts would be misdetected."""

SHORT_BYTES = 64
"""A text of up to this many bytes is read as Chinese or Western European if possible, because a few words could also be
Korean.

In a test with 40 texts of invoice words per encoding, at least 39 were detected correctly if they had 64 bytes or more.
"""

SAMPLE_BYTES = 65_536
"""Maximum size of the sample of non-ASCII lines that detection reads, bytes."""


class FileText(NamedTuple):
    """The text of a file, and its encoding as the name of a Python codec."""

    text: str
    encoding: str = UTF_8


def decode_text(content: bytes) -> FileText:
    """Decode a file. Without a byte order mark, detect the encoding of text that is not UTF-8.

    Raises:
        UnicodeDecodeError: It is not text, or not in a known encoding.

    >>> decode_text("姓名,部门,金额".encode("gb18030"))
    FileText(text='姓名,部门,金额', encoding='gb18030')
    """
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return FileText(content.decode("utf-16"), "utf-16")
    try:
        return FileText(content.decode(UTF_8))
    except UnicodeDecodeError:
        encoding = _likely_encoding(content)
        if encoding is None:
            raise
    return FileText(content.decode(encoding), encoding)


def encode_text(text: str, encoding: str, *, is_whole: bool = True) -> bytes:
    """Encode a file, or text to append to a file (`is_whole` = False).

    Raises:
        UnicodeEncodeError: The encoding lacks a character.

    >>> encode_text("是", "utf-16", is_whole=False)
    b'/f'
    """
    data = text.encode(encoding)
    return data if is_whole else data.removeprefix(codecs.BOM_UTF16)


def _likely_encoding(content: bytes) -> str | None:
    from charset_normalizer import from_bytes  # noqa: PLC0415 - 0.1 s, and few files need it

    telling = b"\n".join(line for line in content.splitlines() if not line.isascii())
    sample = telling[:SAMPLE_BYTES]
    if len(telling) > SAMPLE_BYTES:  # the sample may end in the middle of a character
        sample = sample.rpartition(b"\n")[0] or sample
    found = None
    if len(sample) <= SHORT_BYTES:
        found = from_bytes(sample, cp_isolation=["gb18030", "cp1252"]).best()
    found = found or from_bytes(sample, cp_isolation=list(OTHERS)).best()
    return found.encoding if found else None
