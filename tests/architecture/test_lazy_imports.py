"""Checks that heavy packages are imported only where they are used: one process imports the program step by step."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SDKS = ("lark_oapi", "telegram", "slack_bolt", "slack_sdk")
PROVIDERS = ("openai", "anthropic", "langchain_openai")
FEISHU = "FeishuConfig(app_id='cli_1', app_secret='s'"

STEPS: dict[str, tuple[str, tuple[str, ...]]] = {
    "help": (
        "from gateway.cli import main\ntry: main(['--help'])\nexcept SystemExit: pass",
        ("langchain", "langchain_core", "langgraph", "fastapi", "pydantic", "httpx"),
    ),
    "registry": ("import bots.registry", SDKS),
    "agent": ("import agent.factory", (*PROVIDERS, "tiktoken", "fastapi")),
    "store": ("import store.database, store.checkpoints", ("psycopg",)),
    "serving": ("import gateway.serving", (*SDKS, *PROVIDERS, "bs4", "pypdfium2")),
    "service": ("import gateway.compose, store.files.opening", ("obstore",)),
    "feishu": (
        "from bots.config import FeishuConfig\nfrom bots.feishu.adapter import build",
        ("lark_oapi",),
    ),
    "feishu connections": (
        f"build('feishu', {FEISHU}), [])\nbuild('feishu', {FEISHU}), [])",
        ("lark_oapi.api", "pkg_resources", "Crypto"),
    ),
    "feishu webhook": (f"build('feishu', {FEISHU}, mode='webhook'), [])", ()),
    "telemetry that is off": (
        "from gateway.commands.serve import import_service; import_service()\n"
        "import bots.telegram.adapter, langchain_openai",
        ("opentelemetry.exporter", "gateway.telemetry"),
    ),
}
"""The code of each step, which runs after the steps before it, and the packages that must not be loaded after it."""

PROGRAM = """
import contextlib, json, sys
loaded = {}
with contextlib.redirect_stdout(sys.stderr):
    for name, code in json.loads(sys.argv[1]).items():
        exec(code)
        loaded[name] = sorted(sys.modules)
print(json.dumps(loaded))
"""


@pytest.fixture(scope="module")
def loaded() -> dict[str, list[str]]:
    """Return the names of the modules that are loaded after each step."""
    steps = json.dumps({name: code for name, (code, _) in STEPS.items()})
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, steps],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, list[str]] = json.loads(done.stdout)
    return found


@pytest.mark.parametrize("step", STEPS)
def test_nothing_is_imported_before_it_is_used(step: str, loaded: dict[str, list[str]]) -> None:
    early = STEPS[step][1]
    assert [
        one
        for one in loaded[step]
        if one in early or one.startswith(tuple(f"{name}." for name in early))
    ] == []


def test_feishus_sdk_is_not_imported_whole(loaded: dict[str, list[str]]) -> None:
    """The whole SDK takes seconds and 135 MB."""
    names = [name for name in loaded["feishu connections"] if name.startswith("lark_oapi")]
    assert 0 < len(names) < 60


def test_the_cipher_is_loaded_for_a_webhook(loaded: dict[str, list[str]]) -> None:
    assert "Crypto" in loaded["feishu webhook"]
