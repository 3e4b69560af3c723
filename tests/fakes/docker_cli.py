"""Fake `docker` program: records its calls and starts the sandbox API as a local process.

python docker_cli.py FOLDER run --detach ...     (FOLDER holds its state: see tests/fakes/docker.py)
"""

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

API = Path(__file__).with_name("docker_aio.py")
WITH_VALUE = {
    *("--name", "--memory", "--memory-swap", "--cpus", "--pids-limit", "--cap-drop", "--cap-add"),
    *("--security-opt", "--network", "--mount", "--label", "--publish", "--env-file"),
}


class DockerCli:
    """The commands that are known."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def knobs(self) -> dict[str, Any]:
        """What the test has set."""
        path = self.folder / "knobs.json"
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return found

    def call(self, arguments: list[str]) -> int:
        """Do one command; return its exit code."""
        given = b"" if sys.stdin.isatty() else sys.stdin.buffer.read()
        line = {"arguments": arguments, "given": given.decode()}
        with (self.folder / "calls.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
        if self.knobs().get("fails") == arguments[0]:
            return said("docker: no such image at /var/lib/docker/secret-path")
        commands = {
            "run": self.run,
            "inspect": self.inspect,
            "ps": self.names,
            "rm": self.remove,
            "exec": self.execute,
            "network": self.network,
        }
        return commands[arguments[0]](arguments[1:], given.decode())

    def run(self, arguments: list[str], given: str) -> int:
        """Start a container."""
        options: dict[str, list[str]] = {}
        rest = list(arguments)
        while rest and rest[0].startswith("-"):
            name = rest.pop(0)
            options.setdefault(name, []).append(rest.pop(0) if name in WITH_VALUE else "")
        (name,) = options["--name"]
        if (self.folder / f"{name}.json").exists():
            return said(f"Conflict. The name {name} is already in use")
        network = options["--network"][0]
        state = {
            "labels": dict(label.partition("=")[::2] for label in options["--label"]),
            "env": given.splitlines(),
            "network": network,
            "mounts": options["--mount"],
            "published": "--publish" in options,
        }
        self.save(name, state)
        import subprocess  # noqa: PLC0415 - most calls do without, and start faster

        port = str(self.knobs().get("port", 0))
        with (self.folder / "api.log").open("ab") as log:
            child = subprocess.Popen(
                [sys.executable, "-I", "-S", str(API), str(self.folder), name, port],
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        port_file = self.folder / f"{name}.port"
        while not port_file.exists() and child.poll() is None:
            time.sleep(0.005)
        self.save(name, {**state, "pid": child.pid, "port": int(port_file.read_text())})
        sys.stdout.write("0123456789ab\n")
        return 0

    def inspect(self, arguments: list[str], given: str) -> int:
        """Tell of a container."""
        state = self.state(arguments[-1])
        if state is None:
            return said(f"No such container: {arguments[-1]}")
        ports = {
            f"{self.knobs().get('port', 8080)}/tcp": [
                {"HostIp": "", "HostPort": str(state["port"])}
            ]
        }
        address = "127.0.0.1" if "internal" in state["network"] else ""
        told = {
            "State": {"Running": alive(state["pid"])},
            "Config": {"Labels": state["labels"], "Env": ["PATH=/usr/bin", *state["env"]]},
            "NetworkSettings": {
                "Ports": ports if state["published"] else {"8080/tcp": None},
                "Networks": {state["network"]: {"IPAddress": address}},
            },
        }
        sys.stdout.write(json.dumps([told]))
        return 0

    def names(self, arguments: list[str], given: str) -> int:
        """List containers that have the label that is filtered by."""
        key, _, value = (
            arguments[arguments.index("--filter") + 1].removeprefix("label=").partition("=")
        )
        for path in sorted(self.folder.glob("*.json")):
            state = self.state(path.stem)
            if state is not None and state.get("labels", {}).get(key) == value:
                running = "running" if alive(state["pid"]) else "exited"
                thread = state["labels"]["parley.thread"]
                sys.stdout.write(f"{path.stem}\t{running}\t{thread}\n")
        return 0

    def remove(self, arguments: list[str], given: str) -> int:
        """Kill a container and forget it."""
        state = self.state(arguments[-1])
        if state is None:
            return said(f"No such container: {arguments[-1]}")
        if alive(state["pid"]):
            os.killpg(state["pid"], signal.SIGKILL)
        for ending in ("json", "port"):
            (self.folder / f"{arguments[-1]}.{ending}").unlink(missing_ok=True)
        return 0

    def execute(self, arguments: list[str], given: str) -> int:
        """Be the curl inside a container."""
        state = self.state(arguments[1])
        if state is None or arguments[2:] != ["curl", "--config", "-"]:
            return said("curl: (7) Failed to connect")
        options = [line.partition(" = ")[::2] for line in given.splitlines()]
        values = {name: json.loads(value) for name, value in options if value}
        headers = [
            json.loads(value).partition(": ")[::2] for name, value in options if name == "header"
        ]
        import http.client  # noqa: PLC0415 - most calls do without, and start faster

        connection = http.client.HTTPConnection("127.0.0.1", state["port"])
        path = "/" + values["url"].split("/", 3)[3]
        body = values.get("data-binary", "").encode()
        connection.request(values["request"], path, body, dict(h for h in headers if h[1]))
        answer = connection.getresponse()
        sys.stdout.write(
            answer.read().decode() + values["write-out"].replace("%{http_code}", str(answer.status))
        )
        return 0

    def network(self, arguments: list[str], given: str) -> int:
        """Make a network, or tell of one."""
        path = self.folder / f"{arguments[-1]}.network"
        if arguments[0] == "create":
            path.touch()
        return 0 if path.exists() else said("No such network")

    def state(self, name: str) -> dict[str, Any] | None:
        """Return what is known of a container."""
        path = self.folder / f"{name}.json"
        if name == "knobs" or not path.exists():
            return None
        found: dict[str, Any] = json.loads(path.read_text())
        return found if "pid" in found else None

    def save(self, name: str, state: dict[str, Any]) -> None:
        """Write down what is known of a container, at once."""
        part = self.folder / f"{name}.part"
        part.write_text(json.dumps(state))
        part.rename(self.folder / f"{name}.json")


def alive(pid: int) -> bool:
    """Tell whether a process runs."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def said(words: str) -> int:
    """Complain."""
    sys.stderr.write(f"{words}\n")
    return 1


if __name__ == "__main__":
    sys.exit(DockerCli(Path(sys.argv[1])).call(sys.argv[2:]))
