"""Shows what failed in a task group, at the top of a failed test's report and in the final summary.

For nested groups, pytest prints hundreds of lines with the cause at the end, where a truncated CI log cuts it off. This
is a pytest plugin: `tests/conftest.py` imports its hook.
"""

import traceback
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from _pytest._code.code import ExceptionChainRepr, ReprEntryNative

ROOT = Path(__file__).parents[1]
FRAMES = 5
"""How many of a cause's last frames in our code are shown."""
MAX_CHARS = 2_000
"""How many characters of a cause's message are shown."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    call: pytest.CallInfo[None],
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Put the causes before the traceback of a group of exceptions."""
    report = yield
    error, shown = call.excinfo and call.excinfo.value, report.longrepr
    if isinstance(error, BaseExceptionGroup) and isinstance(shown, ExceptionChainRepr):
        causes = list(_leaves(error))
        text = "\n\n".join(map(describe, causes))
        printed = shown.chain[0][0]
        printed.reprentries = [ReprEntryNative([f"{text}\n\n"]), *printed.reprentries]
        if shown.reprcrash is not None:
            shown.reprcrash.message = "; ".join(map(_message, causes))
    return report


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for part in error.exceptions:
            yield from _leaves(part)
    else:
        yield error


def describe(error: BaseException) -> str:
    """Return the last frames in our code and the message of an exception, preceded by those of its causes."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename.startswith(f"{ROOT}/") and "/site-packages/" not in frame.filename
    ]
    shown = "".join(traceback.format_list(frames[-FRAMES:])) + _message(error)
    return shown if error.__cause__ is None else f"{describe(error.__cause__)}\nraised as\n{shown}"


def _message(error: BaseException) -> str:
    return "".join(traceback.format_exception_only(error))[:MAX_CHARS].rstrip()
