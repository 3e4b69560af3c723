r"""Repairs messages of MCP servers, because the SDK's parser rejects a whole message for one odd value. Pure.

Lone surrogates (`\\ud800`), invalid UTF-8 and deep nesting come from file names, web pages and other people's data.
A message that cannot be repaired becomes an error response to its request. Otherwise the SDK would drop the message,
and the caller would wait until its deadline.
"""

import json
import re
from typing import Any

from pydantic_core import from_json

MAX_DEPTH = 60
"""Maximum nesting; deeper values become JSON text. The SDK's parser gives up at 200 levels."""

PARSE_ERROR = -32700
"""JSON-RPC 2.0, section 5.1."""

_ID = re.compile(rb'"id"\s*:\s*(\d{1,15})\s*[,}]')
_EDGE_BYTES = 400
"""How far from the beginning or end of a message to look for its id, bytes."""


def repair_message(line: bytes) -> bytes:
    r"""Return a message that the SDK can read. Returns the same bytes if they are readable or not a message.

    >>> repair_message(rb'{"a": "\ud800"}')
    b'{"a": "\\ufffd"}'
    >>> repair_message(b'{"id": 3, "result": ' + b"[" * 10_000 + b"]" * 10_000 + b"}")
    b'{"jsonrpc": "2.0", "id": 3, "error": {"code": -32700, "message": "its answer cannot be read"}}'
    """
    try:
        from_json(line)
    except ValueError:
        pass
    else:
        return line
    try:
        value = json.loads(line.decode("utf-8", "replace"))
        return json.dumps(_readable(value, MAX_DEPTH)).encode()
    except (ValueError, RecursionError):
        return _error_for(line)


def _readable(value: Any, depth: int) -> Any:  # noqa: ANN401 - JSON
    if isinstance(value, str):
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if not isinstance(value, dict | list):
        return value
    if not depth:
        return _readable(json.dumps(value), 0)
    if isinstance(value, list):
        return [_readable(one, depth - 1) for one in value]
    return {_readable(key, 0): _readable(one, depth - 1) for key, one in value.items()}


def _error_for(line: bytes) -> bytes:
    """Return an error response in place of an unreadable message. Returns the line itself if it is not a message."""
    line = line.strip()
    edges = line[:_EDGE_BYTES] + b" " + line[-_EDGE_BYTES:]
    found = _ID.search(edges) if line[:1] == b"{" and line[-1:] == b"}" else None
    if found is None:
        return line
    error = {"code": PARSE_ERROR, "message": "its answer cannot be read"}
    return json.dumps({"jsonrpc": "2.0", "id": int(found[1]), "error": error}).encode()
