"""Lazy packages: their `__init__` runs when one of their names is used."""

import importlib
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from gateway.lazy_packages import install_lazy_packages, lazy_calls

INIT = """
import time
from lazy_example.slow import VALUE as SLOW
from lazy_example import other
time.sleep(0.05)
RUNS = globals().get("RUNS", 0) + 1
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Yield a lazy package with the modules `slow`, `other` and `quick`."""
    folder = tmp_path / "lazy_example"
    folder.mkdir()
    (folder / "__init__.py").write_text(INIT)
    (folder / "slow.py").write_text("VALUE = 'slow'")
    (folder / "other.py").write_text("")
    (folder / "quick.py").write_text("VALUE = 'quick'")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    install_lazy_packages(["lazy_example"])
    yield importlib.import_module("lazy_example")
    for name in [name for name in sys.modules if name.partition(".")[0] == "lazy_example"]:
        del sys.modules[name]


def test_a_submodule_is_imported_without_its_package(package: ModuleType) -> None:
    assert importlib.import_module("lazy_example.quick").VALUE == "quick"
    assert "lazy_example.slow" not in sys.modules
    assert package.__name__ == "lazy_example"
    assert package.__file__ is not None
    assert package.quick.VALUE == "quick"
    assert "RUNS" not in vars(package)


def test_the_first_name_that_is_used_runs_the_package_once(package: ModuleType) -> None:
    assert (package.SLOW, package.RUNS) == ("slow", 1)
    assert package.other is sys.modules["lazy_example.other"]
    with pytest.raises(AttributeError, match="no attribute 'missing'"):
        _ = package.missing
    with pytest.raises(ImportError, match="missing"):
        exec("from lazy_example import missing")  # noqa: S102
    assert package.RUNS == 1


def test_all_names_of_a_package_can_be_imported(package: ModuleType) -> None:
    names: dict[str, object] = {}
    exec("from lazy_example import *", names)  # noqa: S102
    assert (names["SLOW"], names["RUNS"], package.RUNS) == ("slow", 1, 1)


def test_threads_wait_until_the_package_has_run(package: ModuleType) -> None:
    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(lambda _: package.RUNS, range(8))) == [1] * 8


def test_a_class_runs_its_module_when_it_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lazy_module.py").write_text("RUNS = []\nclass Answer(dict): ...\nOTHER = 1")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    names: dict[str, Any] = {}
    with lazy_calls({"lazy_module": ("Answer",)}):
        exec("from lazy_module import Answer", names)  # noqa: S102
    assert "RUNS" not in vars(sys.modules["lazy_module"])
    answer = names["Answer"](n=1)
    module = sys.modules.pop("lazy_module")
    assert answer == {"n": 1}
    assert type(answer) is module.Answer
    assert module.OTHER == 1
    with pytest.raises(AttributeError, match="missing"):
        _ = module.missing


def test_who_imports_a_class_later_may_inherit_from_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lazy_later.py").write_text("class Answer(dict): ...")
    monkeypatch.syspath_prepend(tmp_path)
    names: dict[str, Any] = {}
    with lazy_calls({"lazy_later": ("Answer",)}):
        exec("from lazy_later import Answer as early", names)  # noqa: S102
    exec("from lazy_later import Answer\nclass Mine(Answer): ...", names)  # noqa: S102
    sys.modules.pop("lazy_later")
    assert isinstance(names["Mine"](), names["Answer"])
    assert isinstance(names["early"](), names["Answer"])


def test_the_service_leaves_out_types_that_it_does_not_use() -> None:
    script = """
import sys
from gateway.commands.serve import import_service
import_service()
import langchain_openai, agent.models.openai_client
for name in ("langgraph_sdk.stream", "langsmith.types.run", "openai.types.responses.response", "openai.types.image"):
    assert name not in sys.modules, name
from openai.types.responses import Response
import openai.types, langsmith.types, openai
assert Response.model_fields and openai.types.Image.model_fields and langsmith.types.Run
assert openai.AsyncOpenAI(api_key="x").responses.create
"""
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_service_leaves_out_packages_that_others_import_if_they_are_there() -> None:
    script = """
import sys
from gateway.commands.serve import import_service
import_service()
left_out = (
    "httpx2", "opentelemetry.sdk.trace", "psutil", "pygments", "rich", "charset_normalizer.api", "click",
    "uvicorn.main", "langgraph_sdk.client", "langgraph_sdk._sync", "langsmith._client", "requests_toolbelt",
)
for name in left_out:
    assert name not in sys.modules, name
import click, langgraph_sdk, uvicorn
from langchain.agents import create_agent
from langchain.agents.middleware import ToolRetryMiddleware
from langchain_core.language_models import FakeListChatModel
create_agent(FakeListChatModel(responses=["x"]), [], middleware=[ToolRetryMiddleware()])
assert "langsmith._client" not in sys.modules
from langsmith import Client
class OwnClient(Client): ...
assert issubclass(OwnClient, sys.modules["langsmith.client"].Client)
assert uvicorn.run and uvicorn.Config is uvicorn.config.Config
assert langgraph_sdk.get_sync_client(url="http://127.0.0.1:1").runs and langgraph_sdk.Auth
import httpx2, psutil, pygments, requests
from charset_normalizer import __version__
assert __version__ and "charset_normalizer.api" not in sys.modules
answer = requests.Response()
answer._content = "naïve café".encode("utf-16")
assert answer.text == "naïve café"
"""
    done = subprocess.run(
        [sys.executable, "-P", "-W", "error", "-c", script],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_adapters_leave_out_packages_that_other_threads_may_still_import() -> None:
    script = """
import sys, threading
from bots.config import BotsConfig, TelegramConfig
from bots.registry import build_adapters
from gateway.lazy_packages import PLATFORM_UNUSED_MODULES, hidden_modules
from pathlib import Path
config = BotsConfig(telegram=TelegramConfig(enabled=True, bot_token="1:a"))
with hidden_modules(PLATFORM_UNUSED_MODULES):
    built = build_adapters(config, (), files=Path("unused"))
    assert "telegram" in built.adapters and "telegram" in sys.modules, built
    assert "cryptography" not in sys.modules
    thread = threading.Thread(target=__import__, args=["cryptography.fernet"])
    thread.start()
    thread.join()
    assert "cryptography.fernet" in sys.modules
assert not any(type(finder).__name__ == "_HiddenModuleFinder" for finder in sys.meta_path)
import cryptography.x509
"""
    done = subprocess.run(
        [sys.executable, "-P", "-c", script], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
