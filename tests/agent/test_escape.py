"""Attempts to escape from bubblewrap or exhaust its resources, through the tools."""

import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import anyio
import psutil
import pytest
from langchain.tools import ToolRuntime
from langchain_core.tools import StructuredTool

from agent.paths import OUTPUTS, WORKSPACE
from agent.paths import Mount as Folder
from agent.sandbox import bubblewrap_args
from agent.sandbox.bubblewrap import BubblewrapSandboxProvider, probe_bubblewrap
from agent.sandbox.bubblewrap_args import BubblewrapOptions, ProcessLimits
from agent.sandbox.disk import DiskLimits, measure_usage
from agent.sandbox.watchdog import SLACK
from agent.thread_storage import ThreadStorage
from agent.tools.registry import built_in_tools
from agent.tools.results import ToolLimits
from tests.agent import escape_attempts
from tests.eventually import eventually

FAULT = probe_bubblewrap()
pytestmark = pytest.mark.skipif(FAULT is not None, reason=f"bubblewrap: {FAULT}")
PYTHON = shutil.which("python3", path=bubblewrap_args.PATH)
needs_python = pytest.mark.skipif(PYTHON is None, reason="python3 is not in the system folders")

THREAD, OTHER = (f"t-{uuid4().hex}" for _ in range(2))
"""It differs between processes, because the process limit applies to a thread's user, wherever its commands run."""
SECRET = "the secret outside"
MARKER = "the-secret-of-the-service"
LIMITS = ProcessLimits(memory_mb=128, cpu_s=20, processes=40, file_mb=8)
LONG_S = 90.0


class SandboxHarness:
    """What a hostile model works with: a thread's built-in tools, and targets outside the sandbox."""

    def __init__(
        self,
        home: Path,
        *,
        limits: ProcessLimits = LIMITS,
        disk: DiskLimits | None = None,
        timeout_s: float = LONG_S,
    ) -> None:
        self.home = home
        self.folders = ThreadStorage(home).folders(THREAD)
        self.outside = home / "outside"
        for folder in (self.outside, home / "docs", home / "skill"):
            folder.mkdir(exist_ok=True)
        (self.outside / "secret.txt").write_text(SECRET)
        (home / "docs" / "a.txt").write_text("fixed")
        (home / "skill" / "SKILL.md").write_text("fixed")
        skill = Folder(virtual="/mnt/skills/public/charts", host=home / "skill", read_only=True)
        sandboxes = BubblewrapSandboxProvider(
            ThreadStorage(home),
            mounts=[Folder(virtual="/mnt/docs", host=home / "docs", read_only=True)],
            shared=lambda: [skill],
            options=BubblewrapOptions(
                limits=limits,
                disk=disk or DiskLimits(quota_mb=64, free_mb=1),
                environment={"GREETING": "hello"},
            ),
        )
        tools = built_in_tools(sandboxes, ToolLimits(command_timeout_s=timeout_s))
        self.tools = {tool.name: tool for tool in tools}

    async def use(self, name: str, *, thread: str = THREAD, **arguments: object) -> str:
        """Call a tool as the graph does, and return the answer as text. Fail if it contains anything from the host."""
        runtime: ToolRuntime[None, dict[str, Any]] = ToolRuntime(
            state={},
            context=None,
            config={"configurable": {"thread_id": thread}},
            stream_writer=lambda _: None,
            tool_call_id="call-1",
            store=None,
        )
        tool = self.tools[name]
        assert isinstance(tool, StructuredTool)
        assert tool.coroutine is not None
        answer = str(await tool.coroutine(runtime=runtime, **arguments))
        assert SECRET not in answer
        assert str(self.home) not in answer
        return answer

    async def bash(self, command: str, *, thread: str = THREAD) -> str:
        return await self.use("bash", command=command, thread=thread)


@pytest.fixture
def cell(tmp_path: Path) -> SandboxHarness:
    return SandboxHarness(tmp_path)


@contextmanager
def machine(home: Path) -> Iterator[dict[str, str]]:
    """Open services on this machine, and yield their addresses."""
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("0.0.0.0", 0)))  # noqa: S104 - to be found
        abstract = stack.enter_context(socket.socket(socket.AF_UNIX))
        abstract.bind(f"\0parley-{os.getpid()}")
        file = stack.enter_context(socket.socket(socket.AF_UNIX))
        file.bind(str(home / "s"))
        for one in (abstract, file):
            one.listen()
        yield {
            "port": str(server.getsockname()[1]),
            "address": own_address(),
            "abstract": f"parley-{os.getpid()}",
            "socket": str(home / "s"),
            "pid": str(os.getpid()),
        }


def own_address() -> str:
    """Return an address of this machine, if possible not 127.0.0.1."""
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.2"


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return all_outcomes(tmp_path_factory.mktemp("h"))


def all_outcomes(home: Path) -> dict[str, str]:
    """Make all attempts of `escape_attempts.py` in one command, and return the outcome of each."""
    cell = SandboxHarness(home)
    (ThreadStorage(home).folders(OTHER).workspace).mkdir(parents=True)
    told = {
        "home": str(home),
        "secret": str(cell.outside / "secret.txt"),
        "other": str(ThreadStorage(home).folders(OTHER).workspace),
        "marker": MARKER,
        "processes": str(LIMITS.processes),
        "memory_mb": str(LIMITS.memory_mb),
        "file_mb": str(LIMITS.file_mb),
    }

    script = Path(escape_attempts.__file__).read_text()

    async def tried(more: Mapping[str, str]) -> str:
        await cell.use("write_file", path="attempts.py", content=script)
        await cell.use("write_file", path="told.json", content=json.dumps({**told, **more}))
        return await cell.bash("python3 attempts.py told.json > found.json 2>err; tail -c 900 err")

    with machine(home) as more, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PARLEY_TEST_SECRET", MARKER)
        said = anyio.run(tried, more)
    found = cell.folders.workspace / "found.json"
    assert found.exists(), said
    assert found.stat().st_size, said
    answer: dict[str, str] = json.loads(found.read_text())
    assert (home / "skill" / "SKILL.md").read_text() == "fixed"
    assert (home / "docs" / "a.txt").read_text() == "fixed"
    return answer


@needs_python
@pytest.mark.parametrize("name", sorted(escape_attempts.ATTEMPTS))
def test_an_attempt_from_inside_is_refused(outcomes: dict[str, str], name: str) -> None:
    assert outcomes[name].startswith("refused: ")


@needs_python
@pytest.mark.skipif(os.geteuid() != 0, reason="the tests already run as an ordinary user")
def test_attempts_are_refused_for_an_unprivileged_service() -> None:
    """Root confines commands differently than ordinary users do, so the attempts are made both ways."""
    # Not in pytest's folders, which only root can read.
    with tempfile.TemporaryDirectory() as home:
        os.chown(home, 65534, 65534)
        if as_nobody(home, "-c", "import tests.agent.escape_attempts").returncode:
            pytest.skip("an ordinary user cannot read this checkout")
        done = as_nobody(home, "-c", AS_NOBODY, home)
    assert done.returncode == 0, done.stderr[-2000:]
    outcomes: dict[str, str] = json.loads(done.stdout)
    assert outcomes.keys() == escape_attempts.ATTEMPTS.keys()
    assert not {name: said for name, said in outcomes.items() if not said.startswith("refused: ")}


AS_NOBODY = """
import json, pathlib, sys
from tests.agent.test_escape import all_outcomes
json.dump(all_outcomes(pathlib.Path(sys.argv[1])), sys.stdout)
"""


def as_nobody(home: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    become = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    return subprocess.run(
        [*become, sys.executable, *arguments],
        cwd=Path(__file__).parents[2],
        env={"HOME": home, "TMPDIR": home, "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_there_are_many_attempts() -> None:
    assert len(escape_attempts.ATTEMPTS) >= 60


PLANTED = {
    "absolute": "{home}/outside/secret.txt",
    "folder": "{home}/outside",
    "relative": "../../../../outside/secret.txt",
    "other-thread": f"{{home}}/threads/{OTHER}/user-data/workspace",
    "passwords": "/etc/passwd",
    "own-root": "/proc/self/root",
    "environment": "/proc/self/${{e}}",
    "first": "/proc/1/root/etc",
    "loop": "loop",
    "skill": "{home}/skill/SKILL.md",
}


@pytest.mark.parametrize("name", PLANTED)
async def test_file_tools_do_not_follow_planted_links(cell: SandboxHarness, name: str) -> None:
    target = PLANTED[name].format(home=cell.home)
    await cell.bash(f"e=environ; ln -s {target} {name}; ln -s {target} {OUTPUTS}/{name}")
    assert (cell.folders.workspace / name).is_symlink()
    path = f"{WORKSPACE}/{name}"
    for tool, arguments in (
        ("read_file", {"path": path}),
        ("read_file", {"path": f"{path}/secret.txt"}),
        ("write_file", {"path": path, "content": "mine"}),
        ("write_file", {"path": path, "content": "mine", "append": True}),
        ("str_replace", {"path": path, "old_str": "secret", "new_str": "mine"}),
        ("ls", {"path": path}),
        ("glob", {"path": path, "pattern": "**"}),
        ("grep", {"path": path, "pattern": "secret|root|fixed"}),
        ("present_files", {"filepaths": [f"{OUTPUTS}/{name}"]}),
    ):
        assert "Error" in await cell.use(tool, **arguments), tool
    assert (cell.outside / "secret.txt").read_text() == SECRET
    assert (cell.home / "skill" / "SKILL.md").read_text() == "fixed"


@pytest.mark.parametrize(
    "path",
    [
        "../../outside/secret.txt",
        f"{WORKSPACE}/../../../../outside/secret.txt",
        f"{WORKSPACE}/..",
        "..\\..\\outside\\secret.txt",
        f"{WORKSPACE}2/secret.txt",
        f"{WORKSPACE}.bak/secret.txt",
        "/mnt/user-data-2/secret.txt",
        "/mnt/skills-2/secret.txt",
        "/etc/passwd",
        "/proc/self/environ",
        "/proc/self/root/etc/passwd",
        "/dev/stdin",
        "//etc/passwd",
        "file:///etc/passwd",
        "~/.ssh/id_rsa",
        "$HOME/.ssh/id_rsa",
        "%2e%2e/%2e%2e/outside/secret.txt",
        "\u2025/\u2025/outside/secret.txt",
        "\uff0e\uff0e/\uff0e\uff0e/outside/secret.txt",
        f"{WORKSPACE}\u2215..\u2215..\u2215outside",
        f"{WORKSPACE}/a\0/../../secret.txt",
        "a/" * 3000,
        "x" * 5000,
        "",
        " ",
    ],
)
async def test_every_file_tool_refuses_outside_paths(cell: SandboxHarness, path: str) -> None:
    for tool, arguments in (
        ("read_file", {}),
        ("ls", {}),
        ("glob", {"pattern": "**"}),
        ("grep", {"pattern": "."}),
        ("str_replace", {"old_str": "a", "new_str": "b"}),
    ):
        assert (await cell.use(tool, path=path, **arguments)).startswith("Error: "), tool


@pytest.mark.parametrize("path", ["/mnt/skills/public/charts/SKILL.md", "/mnt/docs/a.txt"])
async def test_read_only_folders_are_not_written_by_any_tool(
    cell: SandboxHarness, path: str
) -> None:
    for tool, arguments in (
        ("write_file", {"content": "mine"}),
        ("write_file", {"content": "mine", "append": True}),
        ("str_replace", {"old_str": "fixed", "new_str": "mine"}),
    ):
        assert "not allowed" in await cell.use(tool, path=path, **arguments)
    said = await cell.bash(
        f"echo mine > {path}; cp -l {path} hard && echo mine > hard; mv {path} moved; sed -i s/f/m/ {path}"
    )
    assert "Read-only file system" in said
    assert "fixed" in await cell.bash(f"cat {path}")


async def test_swapped_links_reveal_nothing(cell: SandboxHarness) -> None:
    """A command swaps a folder for a link to the outside and back, as fast as it can, while files are read."""
    target = cell.outside
    swap = (
        "mkdir -p real; echo inside > real/secret.txt; ln -sfn real way; touch started;"
        f"while [ ! -e stop ]; do ln -sfn {target} way; ln -sfn real way; done; echo done"
    )
    answers = []

    async def look() -> None:
        await eventually((cell.folders.workspace / "started").exists, within_s=LONG_S)
        for _ in range(40):
            answers.append(await cell.use("read_file", path="way/secret.txt"))
            answers.append(await cell.use("write_file", path="way/new.txt", content="x"))
        await cell.use("write_file", path="stop", content="")

    async with anyio.create_task_group() as group:
        group.start_soon(look)
        assert "done" in await cell.bash(swap)
    assert {answer for answer in answers if not answer.startswith("Error: ")} <= {"1\tinside", "OK"}
    assert sorted(entry.name for entry in target.iterdir()) == ["secret.txt"]


async def test_pipes_and_devices_do_not_block_tools(cell: SandboxHarness) -> None:
    await cell.bash("mkfifo pipe; mkdir way; mkfifo way/pipe")
    with anyio.fail_after(LONG_S):
        for tool, arguments in (
            ("read_file", {"path": "pipe"}),
            ("str_replace", {"path": "pipe", "old_str": "a", "new_str": "b"}),
            ("write_file", {"path": "pipe", "content": "x", "append": True}),
            ("grep", {"path": "pipe", "pattern": "."}),
        ):
            assert "not a regular file" in await cell.use(tool, **arguments)
        assert await cell.use("grep", path="way", pattern=".") == "(no matches)"


@pytest.mark.parametrize(
    "command",
    ["cat pipe", "trap '' TERM HUP INT; while :; do sleep 0.1; done", "exec >&- 2>&-; sleep 300"],
)
async def test_a_hanging_command_is_stopped(tmp_path: Path, command: str) -> None:
    cell = SandboxHarness(tmp_path, timeout_s=0.5)
    assert "longer than 0.5 s" in await cell.bash(f"mkfifo pipe; {command}")


async def test_nothing_outlives_its_command(cell: SandboxHarness) -> None:
    mark = "98765.4321"
    said = await cell.bash(
        f"sleep {mark} & setsid sleep {mark} & nohup sleep {mark} >/dev/null 2>&1 & "
        f"(trap '' TERM HUP; setsid bash -c 'sleep {mark} & sleep {mark}' &) ; sleep 0.05; "
        f"pgrep -c -f 'sleep {mark}' || ls /proc | grep -c '^[0-9]'"
    )
    assert int(said.split()[0]) >= 4
    await none_runs(mark)


async def test_cancelling_the_call_ends_what_it_started(cell: SandboxHarness) -> None:
    mark = "98766.4321"
    async with anyio.create_task_group() as group:
        group.start_soon(cell.bash, f"setsid sleep {mark} & touch started; sleep {mark}")
        await eventually((cell.folders.workspace / "started").exists, within_s=LONG_S)
        group.cancel_scope.cancel()
    await none_runs(mark)


async def test_killing_all_processes_inside_ends_only_the_command(cell: SandboxHarness) -> None:
    assert "Exit Code" in await cell.bash("kill -9 -1; kill -9 $$")
    assert await cell.bash("echo still here") == "still here\n"


async def test_cpu_time_is_limited(tmp_path: Path) -> None:
    cell = SandboxHarness(tmp_path, limits=ProcessLimits(cpu_s=1))
    said = await cell.bash("while :; do :; done")
    assert "Exit Code: 1" in said  # 137 or 152, depending on the signal
    assert "1 s of CPU time" in said


@needs_python
async def test_memory_of_all_processes_together_is_limited(tmp_path: Path) -> None:
    cell = SandboxHarness(tmp_path, limits=ProcessLimits(memory_mb=100))
    eat = "import time; kept = bytearray(60 << 20); time.sleep(60)"
    said = await cell.bash(f'for n in 1 2 3 4; do python3 -c "{eat}" & done; wait')
    assert "used more than 100 MB of memory" in said


async def test_the_disk_is_not_filled(tmp_path: Path) -> None:
    cell = SandboxHarness(tmp_path, disk=DiskLimits(quota_mb=20, free_mb=1))
    said = await cell.bash("n=0; while :; do n=$((n+1)); head -c 4000000 /dev/zero > f$n; done")
    assert "more than the limit of 20 MB" in said
    said = await cell.bash("echo more > new.txt; mkdir folder && echo made")
    assert "Delete files you do not need" in said
    assert (cell.folders.workspace / "new.txt").stat().st_size == 0
    assert "Delete files you do not need" in await cell.bash("rm -r f* new.txt folder")
    assert await cell.bash("echo again > new.txt; cat new.txt") == "again\n"


def creating(name: str, write: str = ":") -> str:
    """Three loops that create files as fast as they can."""
    loop = f"while i=$((i + 1)); {write} > {name}$n-$i; do :; done"
    return f"for n in 1 2 3; do ({loop}) & done; wait"


@dataclass
class Lateness:
    """How late this process gets scheduled on a busy machine. The checks of a command run as late."""

    longest_s: float = 0.0

    @classmethod
    @asynccontextmanager
    async def measured(cls) -> AsyncIterator["Lateness"]:
        """Measure until the block ends."""
        measured = cls()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(measured._measure)
            yield measured
            tasks.cancel_scope.cancel()

    async def _measure(self) -> None:
        while True:
            begun = anyio.current_time()
            await anyio.sleep(TICK_S)
            await anyio.to_thread.run_sync(os.getpid)
            self.longest_s = max(self.longest_s, anyio.current_time() - begun - TICK_S)

    @property
    def possible_files(self) -> int:
        """How many files a command can create in that time; 0 if the machine is not busy.

        A check waits for the event loop and for threads, so it can be up to four times as late.
        """
        return int(4 * self.longest_s * FILES_PER_S) if self.longest_s > TICK_S else 0


TICK_S = 0.02
FILES_PER_S = 100_000
"""Most files that three loops create per second, each on its own CPU."""

NODES = "for n in 1 2 3; do (while mkfifo n$n-$((i++)); do :; done) & done; wait"


@pytest.mark.parametrize(
    ("command", "entries"),
    [(creating("f"), 10_000), (NODES, 2_000)],
    ids=["files", "nodes"],
)
async def test_the_limit_of_files_holds_at_once(tmp_path: Path, command: str, entries: int) -> None:
    cell = SandboxHarness(tmp_path, disk=DiskLimits(free_mb=1, entries=entries))
    async with Lateness.measured() as lateness:
        said = await cell.bash(command)
    assert f"There are more than {entries} files" in said
    # The files created between two checks, and the slack. Each `mkfifo` is a process.
    before = measure_usage(cell.folders.root).entries
    assert before < 2 * entries + SLACK.entries + lateness.possible_files
    async with Lateness.measured() as lateness:
        said = await cell.bash(creating("g"))
    assert "reached a limit of disk space" in said  # a thread that is full may only delete
    after = measure_usage(cell.folders.root).entries
    assert after < before + 10_000 + lateness.possible_files
    assert "out of disk space" in await cell.use("write_file", path="new.txt", content="x")
    assert "Delete files you do not need" in await cell.bash("find . -type f -o -type p | xargs rm")
    assert await cell.use("write_file", path="new.txt", content="x") == "OK"


async def test_a_file_has_one_name(cell: SandboxHarness) -> None:
    """Hard links are refused: they take no inode, so a thread could exceed the file limit unnoticed."""
    said = await cell.bash("echo x > a; ln a b; ln -s a c; cat c; ls")
    assert "Operation not permitted" in said
    assert said.startswith("x\na\nc\n")


@needs_python
async def test_deleted_files_that_are_open_count(tmp_path: Path) -> None:
    cell = SandboxHarness(tmp_path, disk=DiskLimits(quota_mb=50, free_mb=1))
    hiding = (
        "import os, sys, time\nfiles = []\nfor n in range(80):\n"
        "    files.append(open('f', 'wb'))\n    os.unlink('f')\n"
        "    files[-1].write(b'x' * 5_000_000)\n    files[-1].flush()\n"
        "    print(n, flush=True)\n    time.sleep(0.02)"
    )
    said = await cell.bash(f'python3 -c "{hiding}"')
    assert "reached a limit of disk space" in said
    assert "\n40\n" not in said


MAPPED = """
libc = ctypes.CDLL(None)
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
def keep(file):
    libc.mmap(None, 4096, 1, 1, file, 0)  # Python's own would keep a descriptor
"""
PASSED = """
ends = socket.socketpair()
def keep(file):
    socket.send_fds(ends[0], [b"x"], [file])
"""


@needs_python
@pytest.mark.parametrize("way", [MAPPED, PASSED], ids=["mapped", "passed"])
async def test_deleted_files_without_a_descriptor_count(tmp_path: Path, way: str) -> None:
    cell = SandboxHarness(tmp_path, disk=DiskLimits(quota_mb=50, free_mb=1))
    hiding = (
        f"import ctypes, os, socket, time\n{way}\nfor n in range(80):\n"
        "    file = os.open('f', os.O_RDWR | os.O_CREAT)\n    os.write(file, b'x' * 5_000_000)\n"
        "    keep(file)\n    os.unlink('f')\n    os.close(file)\n"
        "    print(n, flush=True)\n    time.sleep(0.02)"
    )
    said = await cell.bash(f"python3 - <<'END'\n{hiding}\nEND")
    assert "reached a limit of disk space" in said
    assert "\n40\n" not in said


FILLED = """
import os, socket, time
for _ in range(4):
    if os.fork():
        continue
    kept = [end for _ in range(100) for end in socket.socketpair()]
    for end in kept:
        end.setblocking(False)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 24)
        try:
            while end.send(b"x" * 32_768):
                pass
        except BlockingIOError:
            pass
    time.sleep(60)
os.wait()
"""
LOOPED = """
import socket, time
door = socket.create_server(("127.0.0.1", 0))
kept = []
for _ in range(100):
    near = socket.create_connection(door.getsockname())
    kept += [near, door.accept()[0]]
    near.setblocking(False)
    try:
        while near.send(b"x" * 32_768):
            pass
    except BlockingIOError:
        pass
time.sleep(60)
"""


@needs_python
@pytest.mark.parametrize("filling", [FILLED, LOOPED], ids=["unix", "tcp"])
async def test_data_in_sockets_counts_as_memory(tmp_path: Path, filling: str) -> None:
    cell = SandboxHarness(tmp_path, limits=ProcessLimits(memory_mb=120))
    said = await cell.bash(f"python3 - <<'END'{filling}END")
    assert "used more than 120 MB of memory" in said


async def test_the_limit_of_bytes_holds_at_once(tmp_path: Path) -> None:
    cell = SandboxHarness(tmp_path, disk=DiskLimits(quota_mb=100, free_mb=1))
    assert "more than the limit of 100 MB" in await cell.bash(creating("f", "printf %01000000d 0"))
    assert measure_usage(cell.folders.root).size < 200 * 2**20
    for append in (False, True):
        said = await cell.use("write_file", path="new.txt", content="x", append=append)
        assert "out of disk space" in said
    assert "out of disk space" in await cell.use(
        "str_replace", path="f1-1", old_str="0", new_str="y", replace_all=True
    )


@pytest.fixture
def own_disk(tmp_path: Path) -> Iterator[Path]:
    """Yield a disk that nothing else writes to, because any space that disappears counts as written by the thread."""
    try:
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100m", "tmpfs", tmp_path], check=True)
    except (FileNotFoundError, subprocess.CalledProcessError):
        yield tmp_path  # only root may mount
        return
    yield tmp_path
    subprocess.run(["umount", "-l", tmp_path], check=True)


async def test_file_tools_alone_cannot_exceed_the_limits(own_disk: Path) -> None:
    cell = SandboxHarness(own_disk, disk=DiskLimits(quota_mb=1, free_mb=1, entries=20))
    written = [
        await cell.use("write_file", path="a.txt", content="x" * 60_000, append=True)
        for _ in range(20)
    ]
    assert written[:16] == ["OK"] * 16
    assert "out of disk space" in written[-1]
    assert measure_usage(cell.folders.root).size <= 2**20
    await cell.bash("rm a.txt")
    written = [await cell.use("write_file", path=f"{n}.txt", content="x") for n in range(20)]
    assert written[:10] == ["OK"] * 10
    assert "out of disk space" in written[-1]
    assert measure_usage(cell.folders.root).entries <= 20


async def test_space_freed_by_others_is_not_available_to_file_tools(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"x" * 20_000_000)
    cell = SandboxHarness(tmp_path, disk=DiskLimits(quota_mb=1, free_mb=1))
    assert await cell.use("write_file", path="0.txt", content="x") == "OK"
    elsewhere.unlink()
    written = [
        await cell.use("write_file", path=f"{n}.txt", content="x" * 60_000) for n in range(1, 20)
    ]
    assert "out of disk space" in written[-1]


async def test_temporary_folders_hold_a_limited_number_of_files(cell: SandboxHarness) -> None:
    for folder in ("/tmp", "/dev/shm"):  # noqa: S108 - the sandbox's own
        said = await cell.bash(f"cd {folder}; {creating('f')}")
        assert "has more than 20000 files" in said


async def test_reserved_disk_space_stays_free(tmp_path: Path) -> None:
    cell = SandboxHarness(tmp_path, disk=DiskLimits(quota_mb=20, free_mb=10**9))
    assert "File too large" in await cell.bash("echo x > new.txt")


async def test_files_hidden_in_a_closed_folder_count(tmp_path: Path) -> None:
    cell = SandboxHarness(tmp_path, disk=DiskLimits(quota_mb=2, free_mb=1))
    said = await cell.bash("mkdir d; head -c 4000000 /dev/zero > d/f; chmod 000 d")
    assert "take 3 MB" in said
    assert await cell.bash("rm -r d") != "(no output)"


async def test_deeply_nested_folders_exceed_the_quota(cell: SandboxHarness) -> None:
    nest = "mkdir -p $(printf 'd/%.0s' $(seq 500))"
    assert "nested deeper than 64 levels" in await cell.bash(nest)
    assert "Delete files you do not need" in await cell.bash("echo x > new.txt")
    await cell.bash("rm -r d new.txt")
    assert await cell.bash("echo x > new.txt; cat new.txt") == "x\n"


async def test_too_many_files_exceed_the_quota(tmp_path: Path) -> None:
    cell = SandboxHarness(tmp_path, disk=DiskLimits(free_mb=1, entries=100))
    assert "delete those you do not need" in await cell.bash("touch $(seq 200)")
    assert await cell.bash("rm *") != "(no output)"
    assert await cell.bash("ls") == "(no output)"


async def test_output_in_memory_is_bounded(cell: SandboxHarness) -> None:
    answer = await cell.bash("head -c 30000000 /dev/zero | tr '\\0' x; echo end")
    assert len(answer) < 4_000_200
    assert "xxxend\n" in answer
    assert "left out" in answer


async def test_only_configured_variables_are_visible(cell: SandboxHarness) -> None:
    lines = (await cell.bash("env")).splitlines()
    names = {line.partition("=")[0] for line in lines}
    known = {"PATH", "HOME", "LANG", "TERM", "TMPDIR", "USER", "PWD", "OLDPWD", "SHLVL", "_"}
    assert names - known == {"GREETING"}


async def test_one_thread_sees_nothing_of_another(cell: SandboxHarness) -> None:
    await cell.use("write_file", path="mine.txt", content="of the first thread")
    assert "(empty)" in await cell.use("ls", path=WORKSPACE, thread=OTHER)
    said = await cell.bash(
        "find /mnt /tmp /dev/shm -name mine.txt 2>/dev/null; ls -A /mnt/*", thread=OTHER
    )
    assert "mine.txt" not in said


async def test_host_paths_are_not_shown(cell: SandboxHarness) -> None:
    for command in ("cat /proc/self/mountinfo", "cat /proc/1/cmdline", "ps axww; mount; df"):
        await cell.bash(command)  # `use` checks for the data folder's path


async def none_runs(mark: str) -> None:
    """Wait until no process on this machine has the mark in its arguments."""
    await eventually(
        lambda: anyio.to_thread.run_sync(_runs, mark), lambda runs: not runs, within_s=LONG_S
    )


def _runs(mark: str) -> bool:
    return any(
        mark in (process.info["cmdline"] or ()) for process in psutil.process_iter(["cmdline"])
    )
