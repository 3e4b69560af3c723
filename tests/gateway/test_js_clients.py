"""The npm packages of the JavaScript clients against the service: tests/gateway/js, run by Node's test runner."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import anyio
import pytest

from tests.gateway.chat_ui import TOKEN, opened

JS = Path(__file__).parent / "js"
NODE = shutil.which("node")
NEWEST = "@langchain/langgraph-sdk"
TAGGED_LATEST = "@langchain/langgraph-sdk-latest"
"""The version that `npm install @langchain/langgraph-sdk` installs. It is older, but has a higher number."""

pytestmark = [
    pytest.mark.skipif(NODE is None, reason="needs node (Debian, Ubuntu: apt-get install nodejs)"),
    pytest.mark.skipif(
        not (JS / "node_modules" / ".ready").exists(), reason="needs `make peers-js` (npm)"
    ),
]


@pytest.mark.parametrize(
    ("sdk", "settings", "files", "tests"),
    [
        (NEWEST, {}, ("client", "page"), 20),
        (NEWEST, {}, ("usestream_sdk", "usestream_react"), 21),
        (NEWEST, {"PARLEY_TRANSPORT": "websocket"}, ("usestream_react",), 10),
        (TAGGED_LATEST, {"PARLEY_PREFIX": "/api/langgraph"}, ("client", "usestream_sdk"), 28),
    ],
    ids=["client", "hooks", "sockets", "latest"],
)
async def test_the_stock_clients_find_what_they_expect(
    tmp_path: Path, sdk: str, settings: dict[str, str], files: tuple[str, ...], tests: int
) -> None:
    assert NODE is not None
    environment = {
        "PATH": os.environ["PATH"],
        "PARLEY_TOKEN": TOKEN,
        "PARLEY_SDK": sdk,
        "NODE_NO_WARNINGS": "1",
        **settings,
    }
    program = [NODE, "--test", "--test-force-exit", "--test-reporter=tap"]
    program += [f"{name}.test.mjs" for name in files]
    async with opened(tmp_path) as front:
        with anyio.fail_after(200):
            done = await anyio.run_process(
                program,
                cwd=JS,
                env={**environment, "PARLEY_URL": front.url},
                check=False,
                stderr=subprocess.STDOUT,
            )
    said = done.stdout.decode()
    assert done.returncode == 0, said[-6000:]
    assert re.search(rf"^# pass {tests}$", said, re.MULTILINE), said[-1000:]
