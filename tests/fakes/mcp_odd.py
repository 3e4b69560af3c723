"""An MCP server with hand-written messages that the SDK would not send: `mcp_odd.py stdio`, or `mcp_odd.py http PORT`.

Its tools respond with `ANSWERS`. Over HTTP, every second response is an event stream.
"""

import json
import sys
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from typing_extensions import override

DEEP = 10_000
ANSWERS: Mapping[str, bytes] = {
    "surrogate": rb'{"content": [{"type": "text", "text": "a\ud83d\ud83d\ude00b"}]}',
    "no_utf8": b'{"content": [{"type": "text", "text": "a\xffb"}]}',
    "nul": rb'{"content": [{"type": "text", "text": "a\u0000b"}]}',
    "numbers": b'{"structuredContent": {"big": 123456789012345678901234567890, "nan": NaN}}',
    "deep": b'{"structuredContent": {"x": ' + b"[" * 300 + b"7" + b"]" * 300 + b"}}",
    "deeper": b'{"structuredContent": {"x": ' + b"[" * DEEP + b"]" * DEEP + b"}}",
    "unknown": b'{"content": [{"type": "chart", "points": [1, 2]}], "isError": null}',
    "nothing": b'{"content": null}',
    "fails": rb'{"content": [{"type": "text", "text": "no \ud800: token=abc123"}], "isError": true}',
}
TOOL = rb'{"name": "%s", "description": "odd \ud800", "annotations": null, "inputSchema": {"type": "object"}}'
TOOLS = b", ".join(TOOL % name.encode() for name in ANSWERS)


def answer(request: Mapping[str, Any]) -> bytes:
    """Return the answer to a request; b"" to a notification."""
    if "id" not in request:
        return b""
    match request["method"]:
        case "initialize":
            version = json.dumps(request["params"]["protocolVersion"]).encode()
            info = b'"serverInfo": {"name": "odd", "version": "1"}, "capabilities": {"tools": {}}'
            result = b'{"protocolVersion": %s, %s}' % (version, info)
        case "tools/list":
            result = b'{"tools": [%s], "nextCursor": null}' % TOOLS
        case _:
            result = ANSWERS[request["params"]["name"]]
    return b'{"jsonrpc": "2.0", "id": %d, "result": %s}' % (request["id"], result)


class Handler(BaseHTTPRequestHandler):
    """Answers each request with JSON or an event stream."""

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        body = answer(request)
        if body and request["id"] % 2:
            body, kind = b"event: message\r\ndata: " + body + b"\r\n\r\n", "text/event-stream"
        else:
            kind = "application/json"
        self.send_response(200 if body else 202)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.send_error(405)

    @override
    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    if sys.argv[1] == "http":
        ThreadingHTTPServer(("127.0.0.1", int(sys.argv[2])), Handler).serve_forever()
    for line in sys.stdin.buffer:
        if reply := answer(json.loads(line)):
            sys.stdout.buffer.write(reply + b"\n")
            sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
