"""Fake `docker` program. It records its calls. Containers and their commands are local processes.

python docker_cli.py FOLDER run --detach ...     (FOLDER holds its state: see tests/fakes/docker.py)
"""

import csv
import json
import os
import signal
import sys
import threading
from pathlib import Path
from typing import IO, Any

WORKSPACE = "/mnt/user-data/workspace"
WITH_VALUE = {
    *("--name", "--memory", "--memory-swap", "--cpus", "--pids-limit", "--cap-drop", "--cap-add"),
    *("--security-opt", "--network", "--mount", "--label", "--env-file", "--user", "--entrypoint"),
    "--stop-signal",
    *("--workdir", "--env"),
}


class DockerProgram:
    """The supported commands."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def knobs(self) -> dict[str, Any]:
        """The settings of the test."""
        path = self.folder / "knobs.json"
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return found

    def call(self, arguments: list[str]) -> int:
        """Run one command and return its exit code."""
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
        options, (_image, *rest) = parsed(arguments)
        (name,) = options["--name"]
        if (self.folder / f"{name}.json").exists():
            return said(f"Conflict. The name {name} is already in use")
        mounts = [
            dict(part.partition("=")[::2] for part in row) for row in csv.reader(options["--mount"])
        ]
        import subprocess  # noqa: PLC0415 - most calls do not need it and start faster

        child = subprocess.Popen(
            [options["--entrypoint"][0], *rest],
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        state = {
            "labels": dict(label.partition("=")[::2] for label in options["--label"]),
            "env": dict(line.partition("=")[::2] for line in given.splitlines()),
            "mounts": {mount["target"]: mount["source"] for mount in mounts},
        }
        self.add_pid(name, child.pid)
        self.save(name, state)
        sys.stdout.write("0123456789ab\n")
        return 0

    def inspect(self, arguments: list[str], given: str) -> int:
        """Describe a container."""
        state = self.state(arguments[-1])
        if state is None:
            return said(f"No such container: {arguments[-1]}")
        sys.stdout.write(f"{str(self.is_running(arguments[-1])).lower()}\n")
        return 0

    def names(self, arguments: list[str], given: str) -> int:
        """List containers with the requested label."""
        key, _, value = (
            arguments[arguments.index("--filter") + 1].removeprefix("label=").partition("=")
        )
        for path in sorted(self.folder.glob("*.json")):
            state = self.state(path.stem)
            if state is not None and state.get("labels", {}).get(key) == value:
                sys.stdout.write(f"id-{path.stem}\t{path.stem}\n")
        return 0

    def remove(self, arguments: list[str], given: str) -> int:
        """Kill a container and forget it."""
        name = arguments[-1].removeprefix("id-")
        if self.state(name) is None:
            return said(f"No such container: {name}")
        for pid in self.pids(name):
            if alive(pid):
                os.killpg(pid, signal.SIGKILL)
        for ending in ("json", "pids"):
            (self.folder / f"{name}.{ending}").unlink(missing_ok=True)
        return 0

    def execute(self, arguments: list[str], given: str) -> int:
        """Run a program in a container. It keeps running if this process is killed."""
        options, (name, *program) = parsed(arguments)
        state = self.state(name)
        if state is None or not self.is_running(name):
            return said(f"Error response from daemon: container {name} is not running")
        mounts = state["mounts"]
        # The user in a container is unknown outside, so the workspace must be open to everyone.
        if Path(mounts[WORKSPACE]).stat().st_mode & 0o777 != 0o777:
            return said("bash: Permission denied")
        import subprocess  # noqa: PLC0415 - most calls do not need it and start faster

        variables = dict(one.partition("=")[::2] for one in options.get("--env", ()))
        child = subprocess.Popen(
            [replaced(word, mounts) for word in program],
            start_new_session=True,
            cwd=replaced(options.get("--workdir", ["/"])[0], mounts),
            env={"PATH": os.environ.get("PATH", "/usr/bin:/bin"), **state["env"], **variables},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        self.add_pid(name, child.pid)
        inside = {source: target for target, source in mounts.items()}

        def copy(source: IO[bytes] | None, target: IO[bytes]) -> None:
            while source is not None and (piece := os.read(source.fileno(), 65_536)):
                target.write(replaced(piece.decode("utf-8", "replace"), inside).encode())
                target.flush()

        errors = threading.Thread(target=copy, args=(child.stderr, sys.stderr.buffer))
        errors.start()
        copy(child.stdout, sys.stdout.buffer)
        errors.join()
        code = child.wait()
        return 128 - code if code < 0 else code

    def network(self, arguments: list[str], given: str) -> int:
        """Create or describe a network."""
        path = self.folder / f"{arguments[-1]}.network"
        if arguments[0] == "create":
            path.touch()
        return 0 if path.exists() else said("No such network")

    def state(self, name: str) -> dict[str, Any] | None:
        """Return the record of a container."""
        path = self.folder / f"{name}.json"
        if name == "knobs" or not path.exists():
            return None
        found: dict[str, Any] = json.loads(path.read_text())
        return found

    def add_pid(self, name: str, pid: int) -> None:
        """Record a process of a container. The first one is the container's own."""
        with (self.folder / f"{name}.pids").open("a") as file:
            file.write(f"{pid}\n")

    def pids(self, name: str) -> list[int]:
        """Return the processes of a container."""
        return [int(line) for line in (self.folder / f"{name}.pids").read_text().split()]

    def is_running(self, name: str) -> bool:
        """Return whether a container runs."""
        return alive(self.pids(name)[0])

    def save(self, name: str, state: dict[str, Any]) -> None:
        """Write the record of a container atomically."""
        part = self.folder / f"{name}.part"
        part.write_text(json.dumps(state))
        part.rename(self.folder / f"{name}.json")


def parsed(arguments: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    """Return the options of a call and the remaining arguments."""
    options: dict[str, list[str]] = {}
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        name = rest.pop(0)
        options.setdefault(name, []).append(rest.pop(0) if name in WITH_VALUE else "")
    return options, rest


def replaced(text: str, names: dict[str, str]) -> str:
    """Replace the names of folders, because the processes do not run in a container."""
    for old, new in names.items():
        text = text.replace(old, new)
    return text


def alive(pid: int) -> bool:
    """Return whether a process runs."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return False


def said(words: str) -> int:
    """Print an error message."""
    sys.stderr.write(f"{words}\n")
    return 1


if __name__ == "__main__":
    sys.exit(DockerProgram(Path(sys.argv[1])).call(sys.argv[2:]))
