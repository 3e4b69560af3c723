"""`make detect-blocking-io`: lists calls in the product that may block the event loop, by reading the source.

It finds code that no test runs. `tests/blocking.py` finds blocking calls in tests, and fails those tests. A finding is
a candidate, not a bug, and its priority follows from the operation alone. Names are resolved within one file. Calls of
a bare name, or of a method of `self`, are followed by name within the file, so functions that share a name may be
reported too often. A function that is passed on (`to_thread.run_sync(work)`) does not count as called.
"""

import ast
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from typing_extensions import override

ROOT = Path(__file__).parents[2]
PACKAGES = ("agent", "bots", "bus", "gateway", "store")
REPORT = ROOT / ".parley" / "blocking-io-findings.json"
CODE_CHARS = 200
SHOWN = 15
"""How many findings the summary lists. The report has all."""

PRIORITIES = ("HIGH", "MEDIUM", "LOW")

_CALLS: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(
        [f"os.{name}" for name in ("stat", "lstat", "access", "readlink", "statvfs")]
        + [
            f"os.path.{name}"
            for name in ("exists", "isfile", "isdir", "islink", "getsize", "getmtime", "realpath")
        ],
        ("BLOCKING_FILE_IO", "FILE_METADATA"),
    ),
    **dict.fromkeys(("open", "io.open", "os.open", "os.fdopen"), ("BLOCKING_FILE_IO", "FILE_OPEN")),
    **dict.fromkeys(("os.read", "os.pread"), ("BLOCKING_FILE_IO", "FILE_READ")),
    **dict.fromkeys(
        [
            f"os.{name}"
            for name in (
                "write",
                "mkdir",
                "makedirs",
                "chmod",
                "chown",
                "fsync",
                "utime",
                "symlink",
                "link",
            )
        ]
        + [
            "tempfile.mkdtemp",
            "tempfile.mkstemp",
            "tempfile.NamedTemporaryFile",
            "tempfile.TemporaryDirectory",
        ],
        ("BLOCKING_FILE_IO", "FILE_WRITE"),
    ),
    **dict.fromkeys(("os.remove", "os.unlink", "os.rmdir"), ("BLOCKING_FILE_IO", "FILE_DELETE")),
    **dict.fromkeys(
        ("os.rename", "os.replace", "shutil.move"), ("BLOCKING_FILE_IO", "FILE_COPY_MOVE")
    ),
    **dict.fromkeys(
        ("shutil.copy", "shutil.copy2", "shutil.copyfile", "shutil.copyfileobj"),
        ("BLOCKING_FILE_IO", "FILE_COPY_MOVE"),
    ),
    **dict.fromkeys(
        ("os.listdir", "os.scandir", "os.walk", "os.fwalk", "glob.glob", "glob.iglob"),
        ("BLOCKING_FILE_IO", "FILE_ENUMERATION"),
    ),
    **dict.fromkeys(("shutil.rmtree", "shutil.copytree"), ("BLOCKING_FILE_IO", "FILE_TREE")),
    **dict.fromkeys(
        [f"subprocess.{name}" for name in ("run", "call", "check_call", "check_output", "Popen")]
        + ["os.system", "os.popen"],
        ("BLOCKING_SUBPROCESS", "SUBPROCESS"),
    ),
    **dict.fromkeys(
        [
            f"{library}.{name}"
            for library in ("httpx", "requests")
            for name in (
                "get",
                "post",
                "put",
                "patch",
                "delete",
                "head",
                "options",
                "request",
                "stream",
            )
        ]
        + ["urllib.request.urlopen"],
        ("BLOCKING_HTTP_IO", "HTTP_REQUEST"),
    ),
    **dict.fromkeys(
        ("socket.getaddrinfo", "socket.gethostbyname", "socket.create_connection"),
        ("BLOCKING_NETWORK_IO", "NETWORK"),
    ),
    "sqlite3.connect": ("BLOCKING_DATABASE_IO", "DATABASE"),
    "time.sleep": ("BLOCKING_SLEEP", "SLEEP"),
}
"""Category and operation of each call, by the full name of the function."""

_PATH_METHODS = {
    **dict.fromkeys(
        (
            "exists",
            "stat",
            "lstat",
            "is_file",
            "is_dir",
            "is_symlink",
            "is_mount",
            "resolve",
            "readlink",
            "owner",
        ),
        "FILE_METADATA",
    ),
    "open": "FILE_OPEN",
    **dict.fromkeys(("read_text", "read_bytes"), "FILE_READ"),
    **dict.fromkeys(
        ("write_text", "write_bytes", "mkdir", "touch", "chmod", "symlink_to", "hardlink_to"),
        "FILE_WRITE",
    ),
    **dict.fromkeys(("unlink", "rmdir"), "FILE_DELETE"),
    **dict.fromkeys(("rename", "replace"), "FILE_COPY_MOVE"),
    **dict.fromkeys(("iterdir", "glob", "rglob", "walk"), "FILE_ENUMERATION"),
}
_PATH_RESULTS = frozenset(
    {
        "joinpath",
        "with_name",
        "with_suffix",
        "resolve",
        "absolute",
        "expanduser",
        "relative_to",
        "rename",
        "cwd",
        "home",
    }
)
"""Methods of a path that return paths."""

_HTTP_METHODS = frozenset(
    {"get", "post", "put", "patch", "delete", "head", "options", "request", "stream", "send"}
)
_HTTP_CLIENTS = frozenset({"httpx.Client", "requests.Session"})

_PRIORITY = {
    **dict.fromkeys(("FILE_METADATA",), "LOW"),
    **dict.fromkeys(
        ("FILE_OPEN", "FILE_READ", "FILE_WRITE", "FILE_DELETE", "PARSE_ERROR"), "MEDIUM"
    ),
}
"""The priority of an operation. All others are high, because their time depends on the size of their data."""

DIRECT, REACHABLE = "DIRECT_ASYNC", "ASYNC_REACHABLE_SAME_FILE"
HOOK, UNPARSED = "SYNC_AGENT_MIDDLEWARE_HOOK", "PARSE_INCOMPLETE"

_REASONS = {
    DIRECT: "called in an async function, which runs in the event loop",
    REACHABLE: "called in a function that an async function of this file calls",
    HOOK: "called in a middleware hook without an async version, which LangChain calls in the event loop",
    UNPARSED: "the file cannot be parsed",
}

_HOOKS = frozenset(
    {
        "before_agent",
        "before_model",
        "after_model",
        "after_agent",
        "wrap_model_call",
        "wrap_tool_call",
    }
)
_PATH, _CLIENT = "pathlib.Path", "http client"


@dataclass(frozen=True)
class Location:
    """Where a call is. `path` is relative to the repository, and `column` starts at 1."""

    path: str
    line: int
    column: int
    function: str


@dataclass(frozen=True)
class BlockingCall:
    """The called function and its operation."""

    category: str
    operation: str
    symbol: str


@dataclass(frozen=True)
class Finding:
    """A call that may block the event loop. `code` is its line, at most `CODE_CHARS` characters."""

    priority: str
    location: Location
    blocking_call: BlockingCall
    event_loop_exposure: str
    reason: str
    code: str


@dataclass(eq=False)
class _Function:
    """A function of a file with the calls in its body, except those in nested functions."""

    name: str
    owner: str | None
    is_async: bool
    calls: set[str] = field(default_factory=set)
    found: list[tuple[ast.Call, BlockingCall]] = field(default_factory=list)

    @property
    def qualified(self) -> str:
        return f"{self.owner}.{self.name}" if self.owner else self.name


class _Scan(ast.NodeVisitor):
    """Reads one file."""

    def __init__(self) -> None:
        self.functions: list[_Function] = []
        self.bases: dict[str, list[str]] = {}
        self._names: dict[str, str] = {}
        self._attributes: dict[tuple[str | None, str], str] = {}
        self._variables: list[dict[str, str]] = [{}]
        self._owner: str | None = None
        self._function: _Function | None = None

    @override
    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            name = alias.asname or alias.name.partition(".")[0]
            self._names[name] = alias.name if alias.asname else name

    @override
    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        for alias in node.names:
            self._names[alias.asname or alias.name] = f"{node.module}.{alias.name}"

    @override
    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        outer, self._owner = self._owner, node.name
        self.bases[node.name] = [self._dotted(base) or "" for base in node.bases]
        for one in ast.walk(node):  # attributes are often set after their first use in the file
            if isinstance(one, ast.AnnAssign) and (kind := self._annotated(one.annotation)):
                self._note(one.target, kind)
        self.generic_visit(node)
        self._owner = outer

    @override
    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self._read_function(node, is_async=False)

    @override
    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._read_function(node, is_async=True)

    @override
    def visit_Lambda(self, node: ast.Lambda) -> None:
        """Treat it as a function that is never called by name."""
        outer, self._function = self._function, _Function("<lambda>", self._owner, is_async=False)
        self.generic_visit(node)
        self._function = outer

    @override
    def visit_Assign(self, node: ast.Assign) -> None:
        kind = self._kind(node.value)
        for target in node.targets:
            self._note(target, kind)
        self.generic_visit(node)

    @override
    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._note(node.target, self._annotated(node.annotation))
        self.generic_visit(node)

    @override
    def visit_withitem(self, node: ast.withitem) -> None:
        if node.optional_vars is not None:
            self._note(node.optional_vars, self._kind(node.context_expr))
        self.generic_visit(node)

    @override
    def visit_Call(self, node: ast.Call) -> None:
        if self._function is not None:
            if (call := self._blocking_call(node)) is not None:
                self._function.found.append((node, call))
            if isinstance(node.func, ast.Name):
                self._function.calls.add(node.func.id)
            elif isinstance(node.func, ast.Attribute) and _is_self(node.func.value):
                self._function.calls.add(f"self.{node.func.attr}")
        self.generic_visit(node)

    def _read_function(
        self, node: ast.FunctionDef | ast.AsyncFunctionDef, *, is_async: bool
    ) -> None:
        outer, self._function = self._function, _Function(node.name, self._owner, is_async)
        self.functions.append(self._function)
        arguments = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs)
        kinds = {one.arg: self._annotated(one.annotation) for one in arguments}
        self._variables.append({name: kind for name, kind in kinds.items() if kind})
        for one in node.body:
            self.visit(one)
        self._variables.pop()
        self._function = outer

    def _note(self, target: ast.expr, kind: str | None) -> None:
        """Record the kind of value in a variable or an attribute of `self`. A new one replaces the old one."""
        if isinstance(target, ast.Name):
            variables = self._variables[-1]
            if kind is None:
                variables.pop(target.id, None)
            else:
                variables[target.id] = kind
            if kind is not None and self._function is None and self._owner is not None:
                self._attributes[self._owner, target.id] = kind
        elif isinstance(target, ast.Attribute) and _is_self(target.value) and kind is not None:
            self._attributes[self._owner, target.attr] = kind

    def _annotated(self, annotation: ast.expr | None) -> str | None:
        if isinstance(annotation, ast.BinOp):  # Path | None
            return self._annotated(annotation.left) or self._annotated(annotation.right)
        return self._class_kind(self._dotted(annotation)) if annotation is not None else None

    def _class_kind(self, name: str | None) -> str | None:
        if name in ("pathlib.Path", "pathlib.PosixPath"):
            return _PATH
        return _CLIENT if name in _HTTP_CLIENTS else None

    def _kind(self, node: ast.expr) -> str | None:
        """Return the kind of an expression's value, as far as this file shows."""
        if isinstance(node, ast.Name):
            return next((v[node.id] for v in reversed(self._variables) if node.id in v), None)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
            return self._kind(node.left)
        if isinstance(node, ast.Call):
            return self._result_kind(node.func)
        return self._attribute_kind(node) if isinstance(node, ast.Attribute) else None

    def _attribute_kind(self, node: ast.Attribute) -> str | None:
        if _is_self(node.value):
            return self._attributes.get((self._owner, node.attr))
        return self._kind(node.value) if node.attr == "parent" else None

    def _result_kind(self, function: ast.expr) -> str | None:
        """Return the kind of a call's result. A class creates its own kind, and some methods of a path return paths."""
        if isinstance(function, ast.Attribute) and function.attr in _PATH_RESULTS:
            base = function.value
            return self._class_kind(self._dotted(base)) or self._kind(base)
        return self._class_kind(self._dotted(function))

    def _blocking_call(self, node: ast.Call) -> BlockingCall | None:
        name = self._dotted(node.func)
        if name is not None and name in _CALLS:
            category, operation = _CALLS[name]
            return BlockingCall(category, operation, name)
        if not isinstance(node.func, ast.Attribute):
            return None
        method, kind = node.func.attr, self._kind(node.func.value)
        symbol = ast.unparse(node.func)[:CODE_CHARS]
        if kind == _PATH and method in _PATH_METHODS:
            return BlockingCall("BLOCKING_FILE_IO", _PATH_METHODS[method], symbol)
        if kind == _CLIENT and method in _HTTP_METHODS:
            return BlockingCall("BLOCKING_HTTP_IO", "HTTP_REQUEST", symbol)
        return None

    def _dotted(self, node: ast.expr) -> str | None:
        """Return the full name of a function or class, or None for an expression that is not a name."""
        if isinstance(node, ast.Name):
            is_variable = any(node.id in variables for variables in self._variables)
            return None if is_variable else self._names.get(node.id, node.id)
        if isinstance(node, ast.Attribute) and (base := self._dotted(node.value)) is not None:
            return f"{base}.{node.attr}"
        return None


def scan_source(source: str, path: str) -> list[Finding]:
    """Return the findings in one file, in the order of its lines."""
    try:
        tree = ast.parse(source)
    except SyntaxError as error:
        place = Location(path, error.lineno or 1, error.offset or 1, "<module>")
        call = BlockingCall("PARSE_ERROR", "PARSE_ERROR", "ast.parse")
        return [
            Finding("MEDIUM", place, call, UNPARSED, _REASONS[UNPARSED], str(error)[:CODE_CHARS])
        ]
    scan = _Scan()
    scan.visit(tree)
    lines = source.splitlines()
    found = []
    for function, exposure in _exposed(scan):
        for node, call in function.found:
            place = Location(path, node.lineno, node.col_offset + 1, function.qualified)
            priority = _PRIORITY.get(call.operation, "HIGH")
            code = lines[node.lineno - 1].strip()[:CODE_CHARS]
            found.append(Finding(priority, place, call, exposure, _REASONS[exposure], code))
    return sorted(found, key=lambda one: (one.location.line, one.location.column))


def scan_folders(root: Path, folders: Iterable[str] = PACKAGES) -> list[Finding]:
    """Return the findings in the Python files of some folders, the most important first."""
    files = sorted(file for folder in folders for file in (root / folder).rglob("*.py"))
    found = [
        finding
        for file in files
        for finding in scan_source(file.read_text("utf-8"), str(file.relative_to(root)))
    ]
    return sorted(found, key=lambda one: PRIORITIES.index(one.priority))


def summary(findings: Sequence[Finding]) -> Iterator[str]:
    """Yield the lines of the summary."""
    yield f"{len(findings)} calls may block the event loop. A finding is a candidate, not proof of a bug."
    for title, counts in (
        ("By priority", Counter(one.priority for one in findings)),
        ("By operation", Counter(one.blocking_call.operation for one in findings)),
        ("By exposure", Counter(one.event_loop_exposure for one in findings)),
    ):
        yield f"{title}: {', '.join(f'{name} {count}' for name, count in counts.most_common())}"
    for one in findings[:SHOWN]:
        place = f"{one.location.path}:{one.location.line}"
        yield f"  {one.priority:6} {place} {one.location.function}: {one.blocking_call.symbol}"
    if len(findings) > SHOWN:
        yield f"  ... and {len(findings) - SHOWN} more"


def main() -> None:
    """Write the report, and print a summary."""
    findings = scan_folders(ROOT)
    REPORT.parent.mkdir(exist_ok=True)
    REPORT.write_text(json.dumps([asdict(one) for one in findings], indent=2) + "\n", "utf-8")
    lines = (*summary(findings), f"All findings: {REPORT.relative_to(ROOT)}")
    sys.stdout.write("\n".join(lines) + "\n")


def _exposed(scan: _Scan) -> Iterator[tuple[_Function, str]]:
    """Yield the functions that run in the event loop, with the reason."""
    exposure = {one: DIRECT for one in scan.functions if one.is_async}
    waiting = list(exposure)
    while waiting:
        caller = waiting.pop()
        for called in scan.functions:
            if called not in exposure and _calls(caller, called):
                exposure[called] = REACHABLE
                waiting.append(called)
    names = {(one.owner, one.name) for one in scan.functions}
    for one in scan.functions:
        if (
            one.name in _HOOKS
            and one not in exposure
            and any("Middleware" in base for base in scan.bases.get(one.owner or "", ()))
            and (one.owner, f"a{one.name}") not in names
        ):
            exposure[one] = HOOK
    yield from exposure.items()


def _calls(caller: _Function, called: _Function) -> bool:
    by_name = called.name in caller.calls
    return by_name or (called.owner == caller.owner and f"self.{called.name}" in caller.calls)


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


if __name__ == "__main__":
    main()
