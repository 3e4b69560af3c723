"""Architecture rules that a tool can check: allowed imports, and forbidden code."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
PACKAGES = ("agent", "bots", "bus", "gateway", "store")
SOURCES = {
    path.relative_to(ROOT).as_posix(): path.read_text("utf-8")
    for package in PACKAGES
    for path in sorted((ROOT / package).rglob("*.py"))
}

MAX_PARAMETERS = 8

VAGUE_NAMES = {"utils", "helpers", "manager", "base", "misc", "service_v2"}

BROAD_EXCEPTS = {
    # Boundaries that may catch everything, and why.
    "agent/background.py": "an error of the block: re-raised outside the task group",
    "agent/memory/extractor.py": "memory extraction: providers raise their own types, and nothing waits for it",
    "agent/models/counted.py": "a call that fails or is cancelled is counted, then the error is re-raised",
    "agent/usage/recorder.py": "unwritten rows wait for the next attempt, then the error is re-raised",
    "agent/importer.py": "importing a third-party module may raise anything",
    "agent/guardrails/factory.py": "importing a third-party guardrail class may, too",
    "agent/sandbox/factory.py": "importing a third-party sandbox class may, too",
    "agent/tools/registry.py": "the factory of a third-party tool may, too",
    "agent/mcp/registry.py": "the factory of a third-party interceptor may, too",
    "agent/mcp/adapter.py": "a call of an MCP tool: a server may fail in any way, and the model gets the error",
    "agent/mcp/calls.py": "a call of an MCP tool in its own task: the caller gets its error",
    "agent/mcp/sampling.py": "a model that an MCP server uses: the server gets the error",
    "agent/mcp/server.py": "loading an MCP server: a broken one must not harm the others",
    "gateway/graphs.py": "importing a user's graph may raise anything",
    "bus/voice/local_model.py": "a local model: its package and files raise their own types, and the turn continues",
    "agent/mcp/session.py": "a connection to an MCP server: its users get the error that ends it",
    "agent/middleware/guardrails.py": "a guardrail's decision: a failure must not bypass it",
    "agent/middleware/llm_retry.py": "a model's call: provider errors are classified, and others are re-raised",
    "agent/middleware/summarization.py": "hooks of summaries: the run continues without them",
    "agent/tools/web/extraction.py": "an answer from a page: providers raise their own types",
    "agent/summarizer.py": "a summary: providers raise their own types, and the thread continues without it",
    "agent/titles.py": "a title: it must not fail a run",
    "agent/middleware/tool_errors.py": "a tool call: the model gets its error",
    "agent/models/factory.py": "a provider's constructor: each raises its own types",
    "agent/suggestions.py": "suggestions: providers raise their own types, and suggestions are optional",
    "agent/skills/scanner.py": "a model's scan: any failure blocks the skill",
    "agent/subagents/executor.py": "a subagent: its error goes to the lead agent",
    "store/node_calls.py": "a call from another node: the caller gets the error",
    "store/postgres/membership.py": "a heartbeat: without heartbeats, the other nodes would declare this one dead",
    "gateway/runtime/creation.py": "the write of a run's start: the error goes to the caller that starts the run",
    "gateway/runtime/execution.py": "a run: whatever a graph raises becomes its error, and must not end the others",
    "gateway/runtime/runs.py": "a run whose row could not be written leaves its queue",
    "gateway/runtime/thread_states.py": "a thread in a search: a graph that fails must not hide the others",
    "agent/uploads/worker.py": "a document or image: every parser raises its own types, in a separate process",
    "bots/feishu/receiver.py": "handing over an event: after any failure, it is not acknowledged",
    "bots/slack/socket_mode.py": "an envelope: after any error in Bolt, it is not acknowledged",
    "bots/telegram/receiver.py": "handing over an update: after any failure, it is not confirmed",
    "bots/common/adapter.py": "one message: after any failure, nothing is stored, and the platform still has it",
    "bots/common/background.py": "a background task: nothing depends on it",
    "bots/common/webhooks.py": "a delivery over HTTP: after any failure, the platform is asked to send it again",
    "bus/notifications/sender.py": "broadcasts: they are retried, and the bus continues",
    "bus/schedules/scheduler.py": "a schedule: it is retried, and the others start",
    "bus/inbound/dispatcher.py": "a command: the person gets an error message",
    "bus/inbound/gesture_collector.py": "parts of a gesture: each is answered on its own",
    "bus/nodes/failover.py": "a search for chats without a node: it is retried, and the node continues",
    "bus/service.py": "housekeeping: it is retried, and the bus continues",
    "bus/supervision.py": "an adapter: it is restarted, and the others continue",
    "store/sqlite_writer.py": "a unit of work: the sender gets its error",
    "store/postgres/engine.py": "a unit of work: the sender gets its error",
    "store/postgres/statement_batches.py": "a batch of statements: the senders get the error",
    "bus/conversation/turn.py": "a turn: the person gets an error message, and the next message works",
    "bus/conversation/conversations.py": "the display of a turn: its row is retried, and the next message works",
    "bus/errors.py": "a decoration: its error is logged, and must not fail a turn",
    "bus/outbound/delivery_attempts.py": "a delivery attempt: its outcome is unknown, and the other rows are sent",
    "bus/outbound/indicators.py": "an indicator: it must not fail a turn",
    "bus/outbound/worker.py": "an outbox row that cannot be processed: it is set aside, and the others are sent",
    "gateway/checks/models.py": "a check of a model: every provider's package raises its own types",
    "gateway/telemetry/otlp_logs.py": "a log handler: logging itself reports its errors",
    "gateway/recent_logs.py": "a log handler: logging a line must not fail its caller",
    "gateway/app.py": "an HTTP handler: the response is a 500 without a traceback",
}

LAZY_IMPORTS = {
    "agent/mcp/registry.py": "the MCP SDK is imported only if a server is configured",
    "agent/acp/tool.py": "the protocol's package takes half a second; it is imported with the first call",
    "agent/uploads/worker.py": "the converter, or Pillow, is imported after its process has limited itself",
    "agent/sandbox/encodings.py": "few files are not Unicode",
    "agent/tools/web/ddgs.py": "only a search needs the package that queries search engines",
    "agent/tools/web/page.py": "the HTML parser is imported with the first page, not at startup",
    "bots/feishu/adapter.py": "the cipher of webhooks takes 0.1 s; it is imported in that mode only",
    "store/credentials.py": "the cipher takes 0.1 s; it is imported with the first credential",
}


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    arguments = function.args
    names = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls", "task_status")])


@cache
def trees() -> dict[str, ast.Module]:
    """Return the syntax trees. Parsing takes two seconds, so only the tests in this module wait for it."""
    return {name: ast.parse(source) for name, source in SOURCES.items()}


def test_imports_follow_the_layers() -> None:
    # Runs in its own process, because it configures logging for the whole process.
    linter = Path(sys.executable).with_name("lint-imports")
    command = [str(linter), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_modules_have_a_clear_name_and_a_docstring() -> None:
    assert [name for name in SOURCES if Path(name).stem in VAGUE_NAMES] == []
    assert [name for name, tree in trees().items() if not ast.get_docstring(tree)] == []


def test_functions_take_few_parameters() -> None:
    too_many = [
        f"{name}: {function.name} has {parameters(function)} parameters"
        for name, tree in trees().items()
        for function in functions(tree)
        if parameters(function) > MAX_PARAMETERS + (4 if function.name == "__init__" else 0)
    ]
    assert too_many == []


def _names(node: ast.expr) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def test_broad_excepts_are_at_the_listed_boundaries_only() -> None:
    broad = {
        name
        for name, tree in trees().items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or {"Exception", "BaseException"} & _names(node.type))
    }
    assert broad == BROAD_EXCEPTS.keys()


def _counted_or_tested(tree: ast.Module) -> Iterator[ast.expr]:
    """Yield the expressions that a module counts or tests for truth."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id="len" | "bool" | "any" | "all"), args=arguments):
                yield from arguments
            case ast.BoolOp(values=values):
                yield from values
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield operand
            case ast.If(test=test) | ast.IfExp(test=test) | ast.While(test=test):
                yield test


def test_only_the_packages_of_nodes_ask_whether_there_are_several() -> None:
    """Other packages ask about the work: which node does it, which one continues it, this node's share of a limit."""
    asking = [
        f"{name}:{asked.lineno}"
        for name, tree in trees().items()
        if not name.startswith(("bus/nodes/", "store/"))
        for asked in _counted_or_tested(tree)
        if isinstance(asked, ast.Attribute)
        and ast.unparse(asked).endswith((".living", "calls.others"))
    ]
    assert asking == []


def test_imports_are_at_the_top_except_where_listed() -> None:
    lazy = {
        name
        for name, tree in trees().items()
        for function in functions(tree)
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert lazy == LAZY_IMPORTS.keys()


def test_nothing_is_left_half_done() -> None:
    marks = ("TO" + "DO", "FIX" + "ME", "XX" + "X", "raise NotImplemented" + "Error")
    found = [
        f"{name}: {mark}" for name, source in SOURCES.items() for mark in marks if mark in source
    ]
    assert found == []


def test_locks_pin_by_hash_and_name_no_host() -> None:
    for lock in ROOT.glob("requirements*.lock"):
        text = lock.read_text()
        assert "://" not in text
        assert all("--hash=" in block or "==" not in block for block in text.split("\n\n"))
        assert text.count("==") <= text.count("--hash=sha256:")
