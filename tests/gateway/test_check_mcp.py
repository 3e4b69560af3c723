"""`parley check` and `parley doctor` show each MCP server with its tools, or its error."""

import json
import sys
from pathlib import Path
from typing import Any

from bots.common.diagnosis import Severity
from gateway.checks.report import MCP
from gateway.commands.doctor import run_checks
from gateway.config import load_config
from tests.fakes.mcp_many import many_tools
from tests.gateway.test_cli import environment, parley

SECRET = "a-secret-of-the-server"
DIES = {
    "command": sys.executable,
    "args": ["-c", "import sys; sys.exit('no')"],
    "env": {"KEY": SECRET},
}
SERVERS: dict[str, Any] = {
    "dead": DIES,
    "absent": {"command": "no-such-program"},
    "off": {"command": "no-such-program", "enabled": False},
}
"""The servers that do not work."""

TOOLS = "2 tools: office_update_invoice_0, office_update_invoice_1"


def configured(folder: Path, servers: dict[str, Any]) -> None:
    (folder / "config.yaml").write_text("{}")
    (folder / "extensions_config.json").write_text(json.dumps({"mcpServers": servers}))


def test_check_shows_every_server(tmp_path: Path) -> None:
    configured(tmp_path, SERVERS | {"office": many_tools(2)})
    code, out, errors = parley(tmp_path, "check")
    assert code == 1
    assert TOOLS in out
    assert "its command is not installed" in out
    assert "disabled" in out
    assert "parley: MCP server dead: it ended before it responded" in errors
    assert "parley: MCP server absent: its command is not installed" in errors
    assert "office" not in errors
    assert SECRET not in out + errors
    code, out, _ = parley(tmp_path, "check", "--json")
    servers = json.loads(out)["mcp_servers"]
    assert {name: one["state"] for name, one in servers.items()} == {
        "dead": "failed",
        "absent": "failed",
        "off": "disabled",
        "office": "connected",
    }


def test_check_is_well_with_a_server_that_works(tmp_path: Path) -> None:
    configured(tmp_path, {"office": many_tools(2)})
    code, out, errors = parley(tmp_path, "check")
    assert (code, errors) == (0, "")
    assert TOOLS in out


async def test_doctor_shows_every_server(tmp_path: Path) -> None:
    configured(tmp_path, SERVERS | {"office": many_tools(2)})
    config = load_config(str(tmp_path / "config.yaml"), environment(tmp_path))
    report = await run_checks(config, ask_models=False)
    found = {one.subject: one for one in report.areas[MCP]}
    assert not report.healthy
    assert found["office"].text == TOOLS
    assert found["off"].text == "disabled"
    assert found["dead"].severity is Severity.PROBLEM
    assert found["absent"].text == "its command is not installed"
    assert not (tmp_path / "home").exists()
