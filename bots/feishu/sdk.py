"""The protobuf `Frame` of lark_oapi, imported without the rest of the package.

`import lark_oapi` runs 1,100 modules (2 s, 130 MB). The frame needs 30 of them (0.2 s). Empty packages with the right
search path replace `lark_oapi` and `lark_oapi.ws`, so that their `__init__` never runs, and `google`, whose `__init__`
imports pkg_resources if installed (6 MB). The replacements must stay, because the vendored protobuf later imports parts
of itself by full name. A test detects when the SDK changes these names.
"""

import importlib
import importlib.util
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

_ROOT = "lark_oapi"
_PACKAGES = ("", ".ws", ".ws.pb.google")
_FRAMES = "lark_oapi.ws.pb.pbbp2_pb2"
_MESSAGES = "lark_oapi.ws.pb.google.protobuf.message"


class FrameError(ValueError):
    """These bytes are not a frame."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """One binary message of the long connection.

    Attributes:
        seq_id: Number of the frame. The response repeats it.
        log_id: The platform's trace number. The response repeats it.
        service: The service ID in the connection's address.
        method: 0 = control (ping, pong), 1 = data (event, card).
        headers: `type`, `message_id`, `sum`, `seq`, `trace_id`, ... in order.
        payload: JSON, or a part of it.
        log_id_new: The platform's trace ID. The response repeats it.
    """

    seq_id: int = 0
    log_id: int = 0
    service: int = 0
    method: int = 0
    headers: Mapping[str, str] = field(default_factory=dict)
    payload: bytes = b""
    log_id_new: str = ""


class FrameCodec:
    """Encodes and decodes frames. The first instance imports the protobuf parts (0.2 s)."""

    def __init__(self) -> None:
        self._message, self._refused = _load()

    def decode(self, data: bytes) -> Frame:
        """Return the frame in `data`.

        Raises:
            FrameError: `data` is not a frame.
        """
        raw = self._message()
        try:
            raw.ParseFromString(data)
        except (
            self._refused,
            ValueError,
            IndexError,
            TypeError,
            struct.error,
            RecursionError,
        ) as error:
            raise FrameError(f"not a frame ({len(data)} bytes)") from error
        return Frame(
            seq_id=raw.SeqID,
            log_id=raw.LogID,
            service=raw.service,
            method=raw.method,
            headers={header.key: header.value for header in raw.headers},
            payload=raw.payload,
            log_id_new=raw.LogIDNew,
        )

    def encode(self, frame: Frame) -> bytes:
        """Return `frame` as bytes."""
        raw = self._message()
        raw.SeqID = frame.seq_id
        raw.LogID = frame.log_id
        raw.service = frame.service
        raw.method = frame.method
        for key, value in frame.headers.items():
            header = raw.headers.add()
            header.key = key
            header.value = value
        raw.payload = frame.payload
        if frame.log_id_new:
            raw.LogIDNew = frame.log_id_new
        data: bytes = raw.SerializeToString()
        return data


def _load() -> tuple[Any, type[Exception]]:
    """Return the SDK's frame class and its decode error, importing them on first use."""
    if _ROOT not in sys.modules:
        spec = importlib.util.find_spec(_ROOT)
        if spec is None or not spec.submodule_search_locations:
            raise ImportError("lark-oapi is not installed: run `make install`")
        folder = spec.submodule_search_locations[0]
        for package in _PACKAGES:
            _register_stub_package(_ROOT + package, folder + package.replace(".", "/"))
    frames = importlib.import_module(_FRAMES)
    refused: type[Exception] = importlib.import_module(_MESSAGES).DecodeError
    return frames.Frame, refused


def _register_stub_package(name: str, path: str) -> None:
    package = ModuleType(name, "Replaces the package, so that its __init__ does not run.")
    package.__path__ = [path]
    sys.modules[name] = package
