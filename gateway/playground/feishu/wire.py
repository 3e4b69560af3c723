"""The long connection's frames, coded by hand: proto2, nine fields, no SDK."""

from dataclasses import dataclass, field

_VARINT, _BYTES = 0, 2
_NUMBERS = {1: "seq_id", 2: "log_id", 3: "service", 4: "method"}
_STRINGS = {6: "payload_encoding", 7: "payload_type", 9: "log_id_new"}


@dataclass
class WireFrame:
    """One frame. `missing` lists required fields that were absent."""

    seq_id: int = 0
    log_id: int = 0
    service: int = 0
    method: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    payload: bytes = b""
    payload_encoding: str = ""
    payload_type: str = ""
    log_id_new: str = ""
    missing: set[str] = field(default_factory=set)


def encode(frame: WireFrame) -> bytes:
    """Return the frame's bytes, which always contain the required fields."""
    out = b"".join(_key(n, _VARINT) + _varint(getattr(frame, name)) for n, name in _NUMBERS.items())
    for key, value in frame.headers.items():
        out += _block(5, _block(1, key.encode()) + _block(2, value.encode()))
    for number, name in _STRINGS.items():
        if getattr(frame, name):
            out += _block(number, getattr(frame, name).encode())
    return out + _block(8, frame.payload)


def decode(data: bytes) -> WireFrame:
    """Return the frame in `data`; raises ValueError or IndexError on anything else."""
    frame = WireFrame(missing=set(_NUMBERS.values()))
    for number, value in _fields(data):
        if number in _NUMBERS and isinstance(value, int):
            setattr(frame, _NUMBERS[number], value)
            frame.missing.discard(_NUMBERS[number])
        elif number == 5 and isinstance(value, bytes):
            pair = dict(_fields(value))
            frame.headers[_string(pair[1])] = _string(pair[2])
        elif number == 8 and isinstance(value, bytes):
            frame.payload = value
        elif number in _STRINGS:
            setattr(frame, _STRINGS[number], _string(value))
        else:
            raise ValueError(f"unknown field {number}")
    return frame


def _string(value: int | bytes) -> str:
    if isinstance(value, int):
        raise TypeError("a number where a string belongs")
    return value.decode()


def _key(number: int, kind: int) -> bytes:
    return _varint(number << 3 | kind)


def _block(number: int, value: bytes) -> bytes:
    return _key(number, _BYTES) + _varint(len(value)) + value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _fields(data: bytes) -> list[tuple[int, int | bytes]]:
    fields: list[tuple[int, int | bytes]] = []
    at = 0
    while at < len(data):
        key, at = _read(data, at)
        value, at = _read(data, at)
        if key & 7 == _BYTES:
            if at + value > len(data):
                raise ValueError("a block runs over the end")
            fields.append((key >> 3, data[at : at + value]))
            at += value
        elif key & 7 == _VARINT:
            fields.append((key >> 3, value))
        else:
            raise ValueError(f"wire type {key & 7}")
    return fields


def _read(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at
