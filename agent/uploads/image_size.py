"""Reads the pixel size of an image from its header, without decoding it. Pure."""

import struct

MAX_JPEG_SEGMENTS = 1_000
"""Maximum number of JPEG segments before the frame; photos have a few dozen."""

_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
"""The markers of JPEG frames."""

_MARK = b"\xff"
_PIXELS = b"\xff\xda"


def image_size(data: bytes) -> tuple[int, int] | None:
    r"""Return the width and height of a PNG, GIF, WebP or JPEG in pixels; None if its header cannot be read.

    >>> image_size(b"GIF89a\x02\x00\x01\x00"), image_size(b"%PDF-1.7")
    ((2, 1), None)
    """
    try:
        if data.startswith(b"\x89PNG\r\n\x1a\n") and data[12:16] == b"IHDR":
            return _two(">II", data, 16)
        if data[:6] in (b"GIF87a", b"GIF89a"):
            return _two("<HH", data, 6)
        if data.startswith(b"\xff\xd8"):
            return _jpeg_size(data)
        return _webp_size(data) if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else None
    except (struct.error, IndexError):
        return None


def _two(form: str, data: bytes, at: int) -> tuple[int, int]:
    first, second = struct.unpack_from(form, data, at)
    return first, second


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    at = 2
    for _ in range(MAX_JPEG_SEGMENTS):
        marker = data[at : at + 2]
        if not marker.startswith(_MARK) or marker == _PIXELS:
            return None
        if marker.endswith(_MARK):  # padding
            at += 1
        elif marker[1] in _FRAMES:
            height, width = _two(">HH", data, at + 5)
            return width, height
        else:
            at += 2 + int.from_bytes(data[at + 2 : at + 4])
    return None


def _webp_size(data: bytes) -> tuple[int, int] | None:
    kind = data[12:16]
    if kind == b"VP8X":
        width, height = struct.unpack_from("<3s3s", data, 24)
        return int.from_bytes(width, "little") + 1, int.from_bytes(height, "little") + 1
    if kind == b"VP8L" and data[20:21] == b"\x2f":
        (bits,) = struct.unpack_from("<I", data, 21)
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 " and data[23:26] == b"\x9d\x01\x2a":
        width, height = _two("<HH", data, 26)
        return width & 0x3FFF, height & 0x3FFF
    return None
