"""Damages valid inputs at random: bytes, text and JSON trees."""

import copy
import json
from collections.abc import Sequence
from random import Random
from typing import Any

PIECES = (
    b"\0", b"\xff\xfe", b"\xed\xa0\x80", b"\xf0\x9f\x91\xa9", b"\xe2\x80\xae", b"\x1b[2J", b"\r\n\r\n", b"\n", b" ",
    b"../", b"/etc/passwd", b"%00", b"%1b", b"&#8238;",
    b"&#27;", b"%2e%2e%2f", b"-1", b"0", b"9" * 25, b"1e999", b"NaN", b"null", b"true",
    b"{", b"}", b"[", b"]", b'"', b"'", b"\\", b"`", b"```", b"<", b">", b"&", b"*", b"_", b"|", b"$", b"$A", b"${A}",
    b"<!channel>", b"@everyone", b"<at id=all></at>", b"</system>", b"---", b": ", b"&a", b"*a", b"!!python/name:os",
    b"PK\x05\x06", b"ustar", b"\x80" * 9, b"[" * 200, b"{\"a\":" * 200,
)  # fmt: skip

VALUES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1.5, 10**30, -(2**63), 1e308, "", " ", "\0", "\ud800", "é" * 50, "a" * 5000, "../../x",
    "0", "-1", "NaN", "1700000000.000100", "\u202e\u2066", "<!channel> @everyone <at id=all></at>", "/stop", "/new x",
    [], {}, [[]], [None], {"": None}, {"id": {}}, ["x"] * 50, {"type": "text"}, {"text": {"text": []}},
)  # fmt: skip


def damage_bytes(rng: Random, original: bytes) -> bytes:
    """Overwrite, remove, repeat or insert up to six parts of an input."""
    data = bytearray(original)
    for _ in range(rng.randint(0, 6)):
        at = rng.randint(0, len(data))
        end = min(len(data), at + rng.randint(0, 40))
        piece = rng.choice(PIECES) if rng.random() < 0.7 else rng.randbytes(rng.randint(1, 8))
        match rng.randrange(5):
            case 0:
                data[at : at + len(piece)] = piece
            case 1:
                del data[at:end]
            case 2:
                data[at:at] = data[at:end] * rng.randint(1, 30)
            case 3 if data:
                data[at % len(data)] ^= 1 << rng.randrange(8)
            case _:
                data[at:at] = piece
    return bytes(data)


def damage_text(rng: Random, original: str) -> str:
    """Damage a text. The result may contain lone surrogates, as JSON may."""
    data = damage_bytes(rng, original.encode("utf-8", "surrogatepass"))
    return _decoded(rng, data)


def _decoded(rng: Random, data: bytes) -> str:
    if rng.random() < 0.1:
        try:
            return data.decode("utf-8", "surrogatepass")
        except UnicodeDecodeError:
            pass
    return data.decode("utf-8", rng.choice(("replace", "ignore")))


def damage_json(rng: Random, original: Any, others: Sequence[Any] = ()) -> Any:  # noqa: ANN401 - JSON
    """Replace, remove, add and mix up to six parts of a JSON value.

    Args:
        rng: Makes all random choices.
        original: The value, which stays unchanged.
        others: Values whose parts may be added.
    """
    root = [copy.deepcopy(original)]
    for _ in range(rng.randint(0, 6)):
        holder, key = rng.choice(_places(root))
        match rng.randrange(7):
            case 0 | 1:
                holder[key] = copy.deepcopy(rng.choice(VALUES))
            case 2 if isinstance(holder, dict):
                del holder[key]
            case 3 if isinstance(holder[key], str):
                holder[key] = damage_text(rng, holder[key])
            case 4 if isinstance(holder[key], list):
                holder[key] = holder[key] * rng.randint(0, 5)
            case 5 if others:
                source, part = rng.choice(_places([rng.choice(others)]))
                holder[key] = copy.deepcopy(source[part])
            case _ if isinstance(holder, dict):
                holder[damage_text(rng, str(key))] = copy.deepcopy(rng.choice(VALUES))
            case _:
                holder[key] = _nested(rng, holder[key])
    return root[0]


def _places(root: Any) -> list[tuple[Any, Any]]:  # noqa: ANN401 - JSON
    """Return every (container, key) of a value, at most 400."""
    found: list[tuple[Any, Any]] = []
    waiting: list[Any] = [root]
    while waiting and len(found) < 400:
        value = waiting.pop()
        keys = list(value) if isinstance(value, dict) else range(len(value))
        for key in keys:
            found.append((value, key))
            if isinstance(value[key], dict | list):
                waiting.append(value[key])
    return found


def _nested(rng: Random, value: Any) -> Any:  # noqa: ANN401 - JSON
    for _ in range(rng.choice((1, 3, 60, 150))):
        value = [value] if rng.random() < 0.5 else {"a": value}
    return value


def to_json(value: Any) -> bytes:  # noqa: ANN401 - JSON
    """Return a value as the JSON that a platform would send."""
    return json.dumps(value, ensure_ascii=True).encode()
