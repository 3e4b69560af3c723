"""Modules next to the configuration: each command that imports them finds them."""

import re
from pathlib import Path

import pytest

from tests.gateway.test_cli import ROOT, parley
from tests.ports import free_port

GUIDE = ROOT / "docs/howto/guardrails.md"
SECTION = """\
guardrails:
  enabled: true
  provider:
    use: office_hours:OfficeHours
    config: {{first: 0, last: 24}}
gateway: {{port: {port}}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the provider that the guide shows, in the file that it names."""
    (code,) = re.findall(
        r"^```python\n(.*?class OfficeHours.*?)^```", GUIDE.read_text(), re.M | re.S
    )
    (tmp_path / "office_hours.py").write_text(code)
    (tmp_path / "config.yaml").write_text(SECTION.format(port=free_port()))
    return tmp_path


@pytest.mark.parametrize("command", ["check", "doctor"])
def test_a_provider_beside_the_configuration_is_found(folder: Path, command: str) -> None:
    code, out, told = parley(folder, command)
    assert (code, "No problems found." in out) == (0, True), out + told


def test_the_provider_of_the_guide_is_asked(folder: Path) -> None:
    code, out, told = parley(folder, "chat", stdin="write a file notes.txt saying hello\n")
    assert (code, "[file] notes.txt" in out) == (0, True), out + told
