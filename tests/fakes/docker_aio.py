"""Fake of the all-in-one sandbox image's API: a process that runs commands with bash.

python docker_aio.py FOLDER NAME PORT     (started by docker_cli.py)
"""

import base64
import csv
import json
import os
import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

WORKSPACE = "/mnt/user-data/workspace"


class FakeContainer:
    """What the API works on."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        state = json.loads((folder / f"{name}.json").read_text())
        self.env = dict(line.partition("=")[::2] for line in state["env"])
        self.key = self.env.pop("SANDBOX_API_KEY", "")
        mounts = [
            dict(part.partition("=")[::2] for part in row) for row in csv.reader(state["mounts"])
        ]
        self.mounts = {mount["target"]: mount["source"] for mount in mounts}
        self.sessions: set[str] = set()
        self.using = threading.Lock()
        self.asked = 0

    def knobs(self) -> dict[str, Any]:
        """What the test has set."""
        path = self.folder / "knobs.json"
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return found

    def ready(self) -> tuple[int, dict[str, Any]]:
        """GET /v1/sandbox."""
        self.asked += 1
        late = self.asked <= self.knobs().get("late", 0)
        return (503 if late else 200), {"home_dir": "/home/gem", "version": "1.0.0"}

    def execute(self, asked: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        """POST /v1/shell/exec."""
        knobs = self.knobs()
        self.asked += 1
        if self.asked <= knobs.get("shell_late", 0):
            return 200, {"success": False, "message": "shell service is not ready"}
        session = asked.get("id")
        if session is not None and (session not in self.sessions or knobs.get("forgetful")):
            return 404, {"success": False, "message": f"Session {session} not found"}
        if not self.using.acquire(blocking=False):
            return 200, {"success": True, "data": {"output": "ErrorObservation: shell is busy"}}
        try:
            return 200, self.done(asked["command"], session or str(uuid4()))
        finally:
            self.using.release()

    def done(self, command: str, session: str) -> dict[str, Any]:
        """Run a command, as a user who is nobody outside: the workspace has to be open to everybody."""
        self.sessions.add(session)
        if Path(self.mounts[WORKSPACE]).stat().st_mode & 0o777 != 0o777:
            denied = {"session_id": session, "status": "completed", "output": "Permission denied"}
            return {"success": True, "message": "", "data": {**denied, "exit_code": 1}}
        ran = subprocess.run(
            ["bash", "-c", self.outside(command)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={"PATH": os.environ.get("PATH", "/usr/bin:/bin"), **self.env},
            check=False,
        )
        output = self.inside(ran.stdout.decode("utf-8", "replace"))
        data = {"session_id": session, "command": command, "status": "completed"}
        return {
            "success": True,
            "message": "",
            "data": {**data, "output": output, "exit_code": ran.returncode},
        }

    def outside(self, command: str) -> str:
        """Name the folders as this machine does: there is no container around them."""

        def again(found: re.Match[str]) -> str:
            words = base64.b64decode(found[1]).decode()
            return f"printf %s {base64.b64encode(self.named(words).encode()).decode()} |"

        return self.named(re.sub(r"printf %s (\S+) \|", again, command))

    def named(self, text: str) -> str:
        """Replace the folders' names."""
        for target, source in self.mounts.items():
            text = text.replace(target, source)
        return text

    def inside(self, text: str) -> str:
        """Name the folders as the container does."""
        for target, source in self.mounts.items():
            text = text.replace(source, target)
        return text


class Handler(BaseHTTPRequestHandler):
    """Answers in JSON."""

    container: FakeContainer

    def do_GET(self) -> None:
        """Answer GET."""
        if self.allowed():
            known = self.path == "/v1/sandbox"
            self.answer(*self.container.ready()) if known else self.answer(404, {})

    def do_POST(self) -> None:
        """Answer POST."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.allowed():
            known = self.path == "/v1/shell/exec"
            self.answer(*self.container.execute(json.loads(body))) if known else self.answer(
                404, {}
            )

    def allowed(self) -> bool:
        """Check the key."""
        if self.headers.get("X-AIO-API-Key") == self.container.key:
            return True
        self.answer(401, {"detail": "no key"})
        return False

    def answer(self, status: int, content: dict[str, Any]) -> None:
        """Send an answer."""
        data = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def main() -> None:
    """Serve until killed."""
    folder, name, port = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    if json.loads((folder / f"{name}.json").read_text())["published"]:
        port = 0  # Docker takes a free one
    Handler.container = FakeContainer(folder, name)
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    part = folder / f"{name}.port.part"
    part.write_text(str(server.server_address[1]))
    part.rename(folder / f"{name}.port")
    server.serve_forever()


if __name__ == "__main__":
    main()
