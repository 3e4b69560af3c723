"""`pytest --workers N`: collects the tests once, then forks N processes that run them.

Collecting takes longer than a tenth of the tests, and each worker of pytest-xdist collects again:
docs/decisions/0021-proof.md. This is a pytest plugin: `tests/conftest.py` imports its hooks.
"""

import atexit
import random
import threading
import warnings
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import groupby
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import ForkProcess
from typing import Any

import pytest
from _pytest.runner import CallInfo

SLOW_FOLDERS = ("tests/faults/", "tests/lab/fuzz/", "tests/journeys/", "tests/prove/")
"""Modules whose tests each wait for seconds. They start first, so that none runs alone at the end."""

FROM_THE_END = 3
"""One in this many workers starts with quick tests from the end of the list. If all workers waited, CPUs would idle."""

CHUNK = 8
"""How many quick tests of one file a worker takes at once."""

_WIDE_SCOPES = ("class", "module", "package")

Chunk = list[int]
"""Tests that one worker runs in sequence, as positions in `session.items`."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--workers`."""
    text = "collect the tests once, and run them in N forked processes"
    parser.addoption("--workers", type=int, default=0, metavar="N", help=text)


def pytest_configure(config: pytest.Config) -> None:
    """Run the tests in workers if `--workers` asks for them."""
    if config.option.workers > 0:
        config.pluginmanager.register(Workers(config.option.workers))


@dataclass(eq=False)
class _Worker:
    number: int
    process: ForkProcess
    connection: Connection
    left: deque[int] = field(default_factory=deque)
    """The tests assigned to the worker that it has not reported as finished. It is running the first one."""


class Workers:
    """Runs the tests in workers, and passes their reports on to pytest as if the tests had run here."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._workers: list[_Worker] = []
        self._is_stopping = False

    @pytest.hookimpl
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Run the tests. With no tests to run, or in a debugger, pytest does it itself."""
        option = session.config.option
        has_errors = session.testsfailed and not option.continue_on_collection_errors
        if option.collectonly or option.usepdb or option.trace or has_errors:
            return None
        assert threading.active_count() == 1, "a process with threads cannot be forked"
        self._session, self._hook = session, session.config.hook
        self._chunks = deque(_chunks(session.items))
        session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        if (terminal := session.config.pluginmanager.get_plugin("terminalreporter")) is not None:
            terminal.showfspath = False
        try:
            for number in range(min(self._count, len(self._chunks))):
                self._start(number)
            self._listen()
        except BaseException:
            self._stop()
            self._listen()
            raise
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        return True

    def _start(self, number: int) -> None:
        ours, theirs = get_context("fork").Pipe()
        others = [ours, *(worker.connection for worker in self._workers)]
        process = get_context("fork").Process(
            target=_work, args=(self._session, number, theirs, others)
        )
        process.start()
        theirs.close()
        self._workers.append(worker := _Worker(number, process, ours))
        self._hand_out(worker)

    def _hand_out(self, worker: _Worker) -> None:
        is_from_the_end = worker.number % FROM_THE_END == FROM_THE_END - 1
        take = self._chunks.pop if is_from_the_end else self._chunks.popleft
        chunk = take() if self._chunks else None
        worker.left.extend(chunk or ())
        _send(worker, chunk)

    def _stop(self) -> None:
        """Stop each worker after the test that it is running."""
        if not self._is_stopping:
            self._is_stopping = True
            self._chunks.clear()
            for worker in self._workers:
                _send(worker, None)

    def _listen(self) -> None:
        """Receive the workers' messages until all workers have exited."""
        while self._workers:
            ready = wait([worker.connection for worker in self._workers])
            for worker in [one for one in self._workers if one.connection in ready]:
                try:
                    kind, content = worker.connection.recv()
                except (EOFError, ConnectionResetError):
                    self._on_end(worker)
                else:
                    self._on_message(worker, kind, content)

    def _on_message(self, worker: _Worker, kind: str, content: Any) -> None:  # noqa: ANN401 - of the kind
        match kind:
            case "report":
                self._report(
                    self._hook.pytest_report_from_serializable(
                        config=self._session.config, data=content
                    )
                )
            case "warning":
                message = warnings.WarningMessage(**content.pop("warning"))
                self._hook.pytest_warning_recorded.call_historic(
                    kwargs={"warning_message": message, **content}
                )
            case "finished":
                worker.left.popleft()
                if not worker.left and not self._is_stopping:
                    self._hand_out(worker)

    def _report(self, report: pytest.TestReport) -> None:
        self._hook.pytest_runtest_logreport(report=report)
        if self._session.shouldfail or self._session.shouldstop:
            self._stop()

    def _on_end(self, worker: _Worker) -> None:
        """Fail the test in which a worker died, and give its remaining tests to another worker."""
        self._workers.remove(worker)
        worker.connection.close()
        worker.process.join()
        code = worker.process.exitcode
        if worker.left and (code != 0 or not self._is_stopping):
            item = self._session.items[worker.left.popleft()]
            died = f"the process that ran the test ended with code {code}"
            if not self._is_stopping and worker.left:
                self._chunks.appendleft(list(worker.left))
            self._report(
                pytest.TestReport(
                    nodeid=item.nodeid,
                    location=item.location,
                    keywords={},
                    outcome="failed",
                    longrepr=died,
                    when="call",
                )
            )
        if self._chunks:
            self._start(worker.number)


def _send(worker: _Worker, chunk: Chunk | None) -> None:
    with suppress(BrokenPipeError):  # it has exited, but its last messages may be unread
        worker.connection.send(chunk)


def _chunks(items: Sequence[pytest.Item]) -> Iterator[Chunk]:
    """Divide the tests into chunks, slow ones first. Tests that share a module fixture stay together."""

    def is_slow(number: int) -> bool:
        return items[number].nodeid.startswith(SLOW_FOLDERS)

    numbers = sorted(range(len(items)), key=lambda number: not is_slow(number))
    for (_, together), group in groupby(
        numbers, lambda number: (items[number].path, _shares_fixtures(items[number]))
    ):
        chunk = list(group)
        size = len(chunk) if together else 1 if is_slow(chunk[0]) else CHUNK
        for first in range(0, len(chunk), size):
            yield chunk[first : first + size]


def _shares_fixtures(item: pytest.Item) -> bool:
    if not isinstance(item, pytest.Function):
        return False
    used = item._fixtureinfo.name2fixturedefs.values()
    return any(fixture.scope in _WIDE_SCOPES for fixtures in used for fixture in fixtures)


def _work(
    session: pytest.Session, number: int, connection: Connection, inherited: Sequence[Connection]
) -> None:
    """Run as a worker: run the tests received. Ends after None, after Ctrl-C, or if the parent process is gone."""
    for one in inherited:
        one.close()
    _become_worker(session.config, number)
    session.config.pluginmanager.register(_Reporter(session.config, connection))
    item = None
    try:
        while (chunk := connection.recv()) is not None:
            for position, after in zip(chunk, [*chunk[1:], None], strict=True):
                item = session.items[position]
                # Before the next chunk, module fixtures are torn down; session fixtures stay.
                following = session if after is None else session.items[after]
                session.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                connection.send(("finished", None))
                if connection.poll():
                    break
    except (EOFError, BrokenPipeError, KeyboardInterrupt):
        pass
    finally:
        _tear_down(session, item)
        atexit._run_exitfuncs()


def _become_worker(config: pytest.Config, number: int) -> None:
    """Replace everything that must not be shared with the parent process."""
    atexit._clear()
    random.seed()
    folders = config._tmp_path_factory  # type: ignore[attr-defined]
    folders._basetemp = folders.mktemp(f"w{number}-")
    plugins = config.pluginmanager
    if (capture := plugins.get_plugin("capturemanager")) is not None:
        capture.stop_global_capturing()
        capture.start_global_capturing()
        capture.suspend_global_capture()
    if (terminal := plugins.get_plugin("terminalreporter")) is not None:
        plugins.unregister(terminal)
        plugins.register(_TerminalWriter(terminal._tw), "terminalreporter")


@dataclass
class _TerminalWriter:
    """The part of the terminal writer that a worker needs: pytest-timeout prints the stacks of threads through it."""

    _tw: object


@dataclass(eq=False)
class _Reporter:
    """Sends test reports to the parent process."""

    config: pytest.Config
    connection: Connection

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self.config.hook.pytest_report_to_serializable(config=self.config, report=report)
        self.connection.send(("report", data))

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: object
    ) -> None:
        names = ("category", "filename", "lineno", "line")
        warning = {name: getattr(warning_message, name) for name in names}
        warning["message"] = str(warning_message.message)
        content = {"warning": warning, "when": when, "nodeid": nodeid, "location": location}
        self.connection.send(("warning", content))


def _tear_down(session: pytest.Session, last: pytest.Item | None) -> None:
    """Tear down the fixtures of the session; an error is reported with the last test, as pytest does."""
    call = CallInfo.from_call(lambda: session._setupstate.teardown_exact(None), when="teardown")
    if call.excinfo is not None and last is not None:
        report = pytest.TestReport.from_item_and_call(last, call)
        session.config.hook.pytest_runtest_logreport(report=report)
