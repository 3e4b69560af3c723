"""Tests wait for events. To prove that something does not happen, they check a later event instead of pausing."""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

TESTS = Path(__file__).parents[1]
MEASURING = ("lab", "prove")
"""Programs that run for a time that the caller chooses."""

SERVERS = ("fakes",)
"""Their pauses simulate a platform's latency and time limits."""

ALLOWED = {
    "browser.py": "an impatient person clicks twice",
    "faults/platform_turns.py": "code that keeps running after a kill runs into failing calls",
    "faults/turns.py": "code that keeps running after a kill runs into failing calls",
    "bots/test_telegram_call_limits.py": "virtual time",
    "bus/test_delivery_worker.py": "the latency of a platform",
    "bus/test_delivery_faults.py": "the delivery task must sleep before the resend, or the test proves less",
    "bus/test_full_disk.py": "lets the time limit of a start expire",
    "bus/test_moving_chats.py": "sets the pace at which people write and nodes come and go",
    "bus/test_intake.py": "the reply must look up its message before the send returns; otherwise the test proves less",
    "gateway/test_connections.py": "the event loop tries again each second; a body that trickles in",
    "journeys/test_backup.py": "sets the pace at which people write",
    "journeys/test_faults.py": "the platform may report two messages in either order",
    "store/test_postgres_access.py": "an earlier process exits while the new one waits for it",
    "contracts/run_graph.py": "simulates a long run",
    "agent/escape_attempts.py": "runs inside the sandbox, and gives a signal time to arrive",
    "faults/injection.py": "the call must fail while the service stops",
    "journeys/test_schedules_of_nodes.py": "kills nodes while reminders become due",
    "journeys/test_nodes_outage.py": "how long the database is away, with PARLEY_TEST_LONG",
    "journeys/test_all_platforms.py": "the platform may report two messages in either order",
    "agent/test_subagent_executor.py": "simulates work",
}
"""Modules with a nonzero sleep outside a polling loop, and the reason."""


def test_only_listed_modules_sleep() -> None:
    """Instead of adding one, wait for what must happen (`eventually`), or for a later event on the same path."""
    assert {name for name, tree in _modules().items() if any(_sleeps(tree))} == set(ALLOWED)


def test_no_call_is_proved_to_wait_by_a_timeout() -> None:
    """`is_waiting` needs no time."""
    found = {
        f"{name}:{node.lineno}"
        for name, tree in _modules().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.With | ast.AsyncWith)
        for item in node.items
        if _called(item.context_expr) == "move_on_after" and item.optional_vars is not None
        if not _is_zero(item.context_expr)
    }
    assert found == set()


@cache
def _modules() -> dict[str, ast.Module]:
    return {
        path.relative_to(TESTS).as_posix(): ast.parse(source)
        for path in TESTS.rglob("*.py")
        if path.relative_to(TESTS).parts[0] not in {*MEASURING, *SERVERS}
        # Parsing all modules takes seconds, and few of them contain the name.
        if any(name in (source := path.read_text("utf-8")) for name in (".sleep", ".move_on_after"))
    }


def _called(node: ast.AST) -> str:
    match node:
        case ast.Call(
            func=ast.Attribute(value=ast.Name(id="anyio" | "asyncio" | "time"), attr=name)
        ):
            return name
    return ""


def _sleeps(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield sleeps, except in polling loops (`while`)."""
    for node in ast.iter_child_nodes(tree):
        if _called(node) == "sleep" and not _is_zero(node):
            yield node
        if not isinstance(node, ast.While):
            yield from _sleeps(node)


def _is_zero(call: ast.AST) -> bool:
    match call:
        case ast.Call(args=[ast.Constant(value=0)]):
            return True
    return False
