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

MEMORY = "/dev/shm"  # noqa: S108 - the root of temporary folders
MEMORY_BYTES = 4 * 2**30
"""Space that must be free there. The suite has taken up to 1 GB."""

if (
    "TMPDIR" not in os.environ
    and Path(MEMORY).is_dir()
    and shutil.disk_usage(MEMORY).free >= MEMORY_BYTES
):
    # Databases on disk cost 50% more CPU time, and their commits wait for the disk.
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

gc.disable()  # imports leave almost no garbage, but looking for it takes half of the test collection time


class OnlyWithExamples:
    """Makes pytest look for doctests only in the modules that have them, one in five: it reads every attribute.

    Also handles packages: pytest imports a module before its package, which would then import the module again.
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
    """Register the plugin. A hook in this file would only be called for tests/."""
    config.pluginmanager.register(OnlyWithExamples())
    workers.pytest_configure(config)
    is_whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    if config.option.workers and is_whole and not config.option.keyword:
        start_server()  # import it during collection, which uses one processor; all workers inherit it


def pytest_collection_finish() -> None:
    """Turn the garbage collector back on for objects that tests create. It skips everything that exists now."""
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)  # with the default of 700 it takes 5% of the CPU time
    gc.enable()


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer | None]:
    """Yield a PostgreSQL server, or None where PostgreSQL is not installed."""
    with postgres_server() as server:
        yield server


@pytest.fixture
def url(postgres: PostgresServer | None) -> Iterator[str]:
    """Yield the URL of a PostgreSQL database for this test. Without a server, the test is skipped."""
    if postgres is None:
        pytest.skip(MISSING)
    with postgres.database() as created:
        yield created


@pytest.fixture(scope="session")
def s3() -> Iterator[S3Server | None]:
    """Yield an S3-compatible server, or None where none is installed."""
    with s3_server() as server:
        yield server


@pytest.fixture
def bucket(s3: S3Server | None) -> S3Bucket:
    """Return a new bucket. Without a server, the test is skipped."""
    if s3 is None:
        pytest.skip(MISSING_S3)
    return s3.bucket()


@pytest.fixture(autouse=True)
def restored_logging() -> Iterator[None]:
    """Restore the root logger after a command ran in this process, because later tests read log records."""
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
    """Fail a test that blocked its event loop, or that of a service it started."""
    yield
    found = blocking_report.read_new()
    assert found == set(), "blocks the event loop; tests/blocking.py lists the functions that may"
