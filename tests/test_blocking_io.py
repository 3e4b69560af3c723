"""`make detect-blocking-io`: its findings in planted code, code that it accepts, and its report."""

import json
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from textwrap import dedent

import pytest

from tests.lab.blocking_io import REPORT, ROOT, Finding, scan_folders, scan_source, summary


def scan(source: str) -> list[Finding]:
    return scan_source(dedent(source), "agent/planted.py")


def found(source: str) -> list[tuple[str, str, str]]:
    """Return priority, operation and symbol of each finding."""
    return [(f.priority, f.blocking_call.operation, f.blocking_call.symbol) for f in scan(source)]


@pytest.mark.parametrize(
    ("line", "finding"),
    [
        ("time.sleep(1)", ("HIGH", "SLEEP", "time.sleep")),
        ("pause(1)", ("HIGH", "SLEEP", "time.sleep")),
        ("open('x')", ("MEDIUM", "FILE_OPEN", "open")),
        ("os.path.exists('x')", ("LOW", "FILE_METADATA", "os.path.exists")),
        ("os.listdir('x')", ("HIGH", "FILE_ENUMERATION", "os.listdir")),
        ("shutil.rmtree('x')", ("HIGH", "FILE_TREE", "shutil.rmtree")),
        ("subprocess.run(['x'])", ("HIGH", "SUBPROCESS", "subprocess.run")),
        ("httpx.get('x')", ("HIGH", "HTTP_REQUEST", "httpx.get")),
        ("httpx.Client().get('x')", ("HIGH", "HTTP_REQUEST", "httpx.Client().get")),
        ("sqlite3.connect('x')", ("HIGH", "DATABASE", "sqlite3.connect")),
        ("socket.getaddrinfo('x', 1)", ("HIGH", "NETWORK", "socket.getaddrinfo")),
        ("Path('x').read_text()", ("MEDIUM", "FILE_READ", "Path('x').read_text")),
        ("given.unlink()", ("MEDIUM", "FILE_DELETE", "given.unlink")),
        (
            "(given.parent / 'x').rglob('*')",
            ("HIGH", "FILE_ENUMERATION", "(given.parent / 'x').rglob"),
        ),
        (
            "self.root.with_name('x').mkdir()",
            ("MEDIUM", "FILE_WRITE", "self.root.with_name('x').mkdir"),
        ),
    ],
)
def test_a_planted_call_is_found(line: str, finding: tuple[str, str, str]) -> None:
    source = f"""
        import httpx, os, shutil, socket, sqlite3, subprocess, time
        from pathlib import Path
        from time import sleep as pause

        class Store:
            root: Path

            async def load(self, given: Path | None) -> None:
                {line}
        """
    assert found(source) == [finding]


def test_a_client_that_a_block_opens_is_known() -> None:
    source = """
        import httpx
        async def load():
            with httpx.Client() as client:
                client.post("x")
            async with httpx.AsyncClient() as client:
                await client.post("x")
        """
    assert [symbol for _, _, symbol in found(source)] == ["client.post"]


@pytest.mark.parametrize(
    "source",
    [
        "import time\ndef only_sync():\n    time.sleep(1)",
        "import time\nfrom anyio import to_thread\ndef work():\n    time.sleep(1)\n"
        "async def load():\n    await to_thread.run_sync(work)",
        "from anyio import to_thread\nasync def load(path):\n    await to_thread.run_sync(lambda: open(path))",
        "async def load(text: str):\n    return text.replace('a', 'b')",
        "import anyio\nasync def load():\n    return await anyio.Path('x').exists()",
        "import time\ntime.sleep(1)",
    ],
)
def test_what_does_not_run_in_the_event_loop_is_left_alone(source: str) -> None:
    assert found(source) == []


def test_helpers_are_followed_within_the_file() -> None:
    source = """
        from pathlib import Path
        def inner(path: Path) -> str:
            return path.read_text()
        class Store:
            def load(self, path):
                return inner(path)
            async def run(self, path):
                return self.load(path)
        """
    (finding,) = scan(source)
    assert finding.event_loop_exposure == "ASYNC_REACHABLE_SAME_FILE"
    assert finding.location.function == "inner"


def test_a_middlewares_hook_without_async_twin_is_found() -> None:
    source = """
        import time
        class Slow(AgentMiddleware):
            def before_model(self, state, runtime):
                time.sleep(1)
            def after_model(self, state, runtime):
                time.sleep(2)
            async def aafter_model(self, state, runtime):
                pass
        """
    (finding,) = scan(source)
    assert finding.event_loop_exposure == "SYNC_AGENT_MIDDLEWARE_HOOK"
    assert finding.location.function == "Slow.before_model"


def test_a_file_that_cannot_be_parsed_is_a_finding() -> None:
    (finding,) = scan("async def broken(:\n")
    assert (finding.priority, finding.event_loop_exposure) == ("MEDIUM", "PARSE_INCOMPLETE")


def test_the_report_has_the_fields_of_the_seeds_and_the_important_first(tmp_path: Path) -> None:
    (tmp_path / "agent").mkdir()
    (tmp_path / "agent" / "slow.py").write_text(
        "import os, time\nasync def load():\n    os.stat('x')\n    time.sleep(1)\n"
    )
    findings = scan_folders(tmp_path, ["agent"])
    assert asdict(findings[0]) == {
        "priority": "HIGH",
        "location": {"path": "agent/slow.py", "line": 4, "column": 5, "function": "load"},
        "blocking_call": {
            "category": "BLOCKING_SLEEP",
            "operation": "SLEEP",
            "symbol": "time.sleep",
        },
        "event_loop_exposure": "DIRECT_ASYNC",
        "reason": "called in an async function, which runs in the event loop",
        "code": "time.sleep(1)",
    }
    text = "\n".join(summary(findings))
    assert text.startswith("2 calls may block the event loop.")
    assert "By priority: HIGH 1, LOW 1" in text
    assert "HIGH   agent/slow.py:4 load: time.sleep" in text


def test_the_command_writes_its_report() -> None:
    command = [sys.executable, "-P", "-m", "tests.lab.blocking_io"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    written = json.loads(REPORT.read_text("utf-8"))
    assert done.stdout.startswith(f"{len(written)} calls may block the event loop.")
    assert "tests.lab.blocking_io" in (ROOT / "Makefile").read_text("utf-8")
