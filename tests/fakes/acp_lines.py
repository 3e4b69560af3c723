"""An ACP agent without a library.

It starts fast. Its first argument selects how it misbehaves. It reads and writes protocol lines as in the
specification.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

AUTH_REQUIRED = -32000


class AgentExit(Exception):
    """Makes the agent exit with this code."""


def write(message: dict[str, Any]) -> None:
    """Send a message."""
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def say(text: str) -> None:
    """Send a piece of the answer."""
    content = {"type": "text", "text": text}
    update = {"sessionUpdate": "agent_message_chunk", "content": content}
    write({"method": "session/update", "params": {"sessionId": "s1", "update": update}})


def stay() -> None:
    """Start a child process that keeps running."""
    note("pids", f"{os.getpid()} {subprocess.Popen(['sleep', '600']).pid}")


def note(name: str, text: str) -> None:
    """Write a file at once."""
    part = Path(f"{name}.part")
    part.write_text(text, "utf-8")
    part.rename(name)


def opened(kind: str) -> dict[str, Any]:
    """Answer session/new."""
    if kind == "login":
        return {"error": {"code": AUTH_REQUIRED, "message": "log in at /home/me"}}
    result: dict[str, Any] = {"sessionId": "s1"}
    if kind == "option":
        option = {"id": "the-model", "name": "Model", "category": "model", "type": "select"}
        result["configOptions"] = [{**option, "currentValue": "small", "options": []}]
    return {"result": result}


def answered(kind: str, text: str) -> dict[str, Any]:
    """Answer session/prompt."""
    if kind == "fail":
        return {"error": {"code": -32603, "message": f"secret in {Path.cwd()}"}}
    if kind == "silent":
        return {"result": {"stopReason": "refusal"}}
    work(kind, text)
    return {"result": {"stopReason": "end_turn"}}


def work(kind: str, text: str) -> None:
    """Act according to the selected behavior."""
    if kind == "file":
        path = Path("made.txt").absolute()
        path.write_text(text, "utf-8")
        say(f"See {path}.")
    elif kind == "crash":
        sys.stderr.write("something went wrong\n" * 20_000)  # More than fits into a pipe.
        raise AgentExit(3)
    elif kind == "hang":
        stay()
        time.sleep(600)
    elif kind == "leave":
        stay()
    else:
        for piece in pieces(kind, text):
            say(piece)


def pieces(kind: str, text: str) -> list[str]:
    """Return the pieces of the answer."""
    long = {
        "flood": ["x" * 10_000] * 30,
        "deluge": ["x" * 100_000] * 125,
        "haystack": ["word " * 100_000, text, " word" * 100_000],
    }
    return long.get(kind, [f"You said: {text}"])


def answer(kind: str, message: dict[str, Any]) -> dict[str, Any]:
    """Answer any request."""
    method, params = message["method"], message.get("params") or {}
    if method == "initialize":
        return {"result": {"protocolVersion": 1, "agentCapabilities": {}}}
    if method == "session/new":
        return opened(kind)
    if method == "session/set_config_option":
        note("option", f"{params['configId']}={params['value']}")
        return {"result": {"configOptions": []}}
    return answered(kind, params["prompt"][0]["text"])


def main() -> None:
    """Run until the input ends."""
    kind = sys.argv[1]
    if kind == "other":  # A program that does not use the protocol.
        sys.stderr.write("error: unexpected argument\n")
        raise AgentExit(2)
    if kind == "chatty":
        sys.stdout.write("Starting up...\nnull\n[1]\n\n")
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message and "method" in message:
            write({"id": message["id"], **answer(kind, message)})


if __name__ == "__main__":
    try:
        main()
    except AgentExit as ended:
        sys.exit(int(str(ended)))
