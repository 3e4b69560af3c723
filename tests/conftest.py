"""Fixtures for the whole suite."""

import atexit
import gc
import logging
import os
import shutil
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import certifi
import hypothesis
import pytest
from _pytest.doctest import DoctestModule

from tests import workers
from tests.blocking import BlockingReport, report_file, watch_event_loop
from tests.causes import pytest_runtest_makereport  # noqa: F401 - a hook of this file
from tests.fakes.postgres import MISSING, PostgresServer, postgres_server
from tests.fakes.s3 import MISSING as MISSING_S3
from tests.fakes.s3 import S3Bucket, S3Server, s3_server
from tests.fork_server import start_server
from tests.workers import pytest_addoption  # noqa: F401 - a hook of this file

MEMORY = "/dev/shm"  # noqa: S108 - a place for temporary folders
MEMORY_BYTES = 4 * 2**30
"""Space that must be free there. The suite has taken up to 1 GB."""

if (
    "TMPDIR" not in os.environ
    and Path(MEMORY).is_dir()
    and shutil.disk_usage(MEMORY).free >= MEMORY_BYTES
):
    # Databases on a disk take half as much processor time again, and their commits wait.
    os.environ["TMPDIR"] = MEMORY
    tempfile.tempdir = None


def _trust_one_authority() -> None:
    """Let HTTP clients load one certificate instead of 130, which take 20 ms. No test connects to other hosts."""
    end = "-----END CERTIFICATE-----\n"
    first = Path(certifi.where()).read_text().partition(end)[0]
    folder = Path(tempfile.mkdtemp(prefix="parley-authority-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    file = folder / "authority.pem"
    file.write_text(first + end)
    os.environ["SSL_CERT_FILE"] = str(file)


_trust_one_authority()

hypothesis.settings.register_profile("suite", max_examples=25, deadline=None)
hypothesis.settings.register_profile("long", max_examples=2_000, deadline=None)
hypothesis.settings.load_profile("long" if os.environ.get("PARLEY_TEST_LONG") == "1" else "suite")

gc.disable()  # imports leave almost no garbage, and looking for it takes half of the time of the collection


class OnlyWithExamples:
    """Has pytest look for doctests only where there are some: a fifth of the modules; it reads each attribute.

    And in packages: it imports a module before its package, which would then import the module once more.
    """

    @pytest.hookimpl(wrapper=True)
    def pytest_collect_file(
        self, file_path: Path
    ) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
        found = yield
        is_module = file_path.suffix == ".py" and file_path.name != "__init__.py"
        if is_module and b">>> " not in file_path.read_bytes():
            return [one for one in found if not isinstance(one, DoctestModule)]
        return found


def pytest_configure(config: pytest.Config) -> None:
    """Register it: a hook of this file would be asked about tests/ only."""
    config.pluginmanager.register(OnlyWithExamples())
    workers.pytest_configure(config)
    is_whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    if config.option.workers and is_whole and not config.option.keyword:
        start_server()  # imports while the tests are collected, which takes one processor; all workers use it


def pytest_collection_finish() -> None:
    """Let the garbage collector work again, on what tests make: it leaves out all that is there now."""
    gc.freeze()
    gc.set_threshold(
        10_000, 10, 10
    )  # with the usual 700 it takes a twentieth of the processor time
    gc.enable()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer | None]:
    """Yield a PostgreSQL server; None where there is none."""
    with postgres_server() as server:
        yield server


@pytest.fixture
def url(postgres: PostgresServer | None) -> Iterator[str]:
    """Yield the URL of a PostgreSQL database of this test; without a server the test is left out."""
    if postgres is None:
        pytest.skip(MISSING)
    with postgres.database() as created:
        yield created


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server | None]:
    """Yield an S3-compatible server; None where there is none."""
    with s3_server() as server:
        yield server


@pytest.fixture
def bucket(s3: S3Server | None) -> S3Bucket:
    """Return a new bucket; without a server the test is left out."""
    if s3 is None:
        pytest.skip(MISSING_S3)
    return s3.bucket()


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    """Undo what a command that runs in this process does to the root logger: later tests read log records."""
    root = logging.getLogger()
    level, handlers = root.level, root.handlers[:]
    yield
    root.setLevel(level)
    root.handlers[:] = handlers


@pytest.fixture(scope="session")
def blocking_report() -> BlockingReport:
    """Watch the event loops of this process from now on."""
    watch_event_loop(report_file(), with_libraries=False)
    return BlockingReport(report_file())


@pytest.fixture(autouse=True)
def free_event_loop(blocking_report: BlockingReport) -> Iterator[None]:
    """Fail a test in which its event loop, or a service's that it started, was blocked."""
    yield
    found = blocking_report.read_new()
    assert found == set(), "blocks the event loop; tests/blocking.py lists what may"
