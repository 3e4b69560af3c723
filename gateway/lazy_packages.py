"""Packages whose `__init__` runs when one of its names is used, and not when one of its submodules is imported.

The packages of generated types import hundreds of modules in their `__init__`, while their users import the few
submodules that they need.
"""

import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType
from uuid import UUID

from typing_extensions import override

LAZY_PACKAGES = (
    "charset_normalizer",  # requests asks it for the encoding of a text that names none: 3 MB
    "langgraph_sdk",  # its clients for threads, and decorators for LangGraph's server: 1 MB
    "langsmith.types",  # 113 modules, of which langsmith.client needs one: 60 ms, 3 MB
    "openai.types",  # 460 modules, of which chat completions need 83: 250 ms, 10 MB
    "openai.types.responses",
    "uvicorn",  # its command, with click and multiprocessing: 1 MB
)


LAZY_CALLS: Mapping[str, Sequence[str]] = {
    "langgraph_sdk._async.stream": ("AsyncThreadStream",),  # with two WebSocket clients: 1 MB
    # With 60 modules that send traces: 4 MB.
    "langsmith.client": ("Client", "ReplicaAuth", "_dumps_json", "_ensure_uuid"),
}
"""Modules that the service's packages import for names which they only call, and that run at the first call."""

ANNOTATIONS: Mapping[str, Mapping[str, object]] = {
    "langsmith.client": {"ID_TYPE": UUID | str, "RUN_TYPE_T": str},
}
"""Types of these modules that others use in annotations: what they are until their module runs."""


def install_lazy_packages(names: Sequence[str] = LAZY_PACKAGES) -> None:
    """Make packages lazy that are imported from now on; those that are not installed are ignored."""
    sys.meta_path.insert(0, _LazyPackageFinder(dict.fromkeys(names, ())))


@contextmanager
def lazy_calls(calls: Mapping[str, Sequence[str]] = LAZY_CALLS) -> Iterator[None]:
    """Make modules lazy that are imported inside the block: these names of theirs run them when they are called.

    Whoever imports one of the names later gets what it names, and may inherit from it.
    """
    with _asked_first(_LazyPackageFinder(calls)):
        try:
            yield
        finally:
            for name in calls:
                if isinstance(module := sys.modules.get(name), LazyPackage):
                    module.end_calls()


UNUSED_MODULES = (
    "click",  # httpx, for its command: 1 MB
    "httpx2",  # langsmith prefers it to httpx, which is there anyway: 1 MB
    "opentelemetry.sdk",  # langsmith, for the type of an argument: 50 ms, 5 MB
    "psutil",  # langsmith, to describe this machine in traces: 1 MB
    "pygments",  # httpx, for its command: with rich 3 MB
)
"""Packages that are imported for something the service does not do, where they happen to be installed."""


PLATFORM_UNUSED_MODULES = ("cryptography",)
"""The same for the adapters: python-telegram-bot imports it for Telegram Passport, 7 MB."""


@contextmanager
def hidden_modules(names: Sequence[str]) -> Iterator[None]:
    """Inside the block, this thread cannot import modules that were not imported yet: ModuleNotFoundError."""
    with _asked_first(_HiddenModuleFinder(names)):
        yield


@contextmanager
def _asked_first(finder: MetaPathFinder) -> Iterator[None]:
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


class _HiddenModuleFinder(MetaPathFinder):
    """Refuses some modules to one thread: another may need them, for instance for a model."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = frozenset(names)
        self._thread_id = threading.get_ident()

    @override
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname in self._names and threading.get_ident() == self._thread_id:
            raise ModuleNotFoundError(f"No module named {fullname!r}", name=fullname)
        return None


class LazyPackage(ModuleType):
    """A package that runs its `__init__` when a name is used that is not there.

    Threads that use names at the same time wait for each other.
    """

    def __init__(self, name: str, init: Loader, calls: Sequence[str] = ()) -> None:
        super().__init__(name)
        self._init: Loader | None = init
        self._calls = calls
        self._lock = threading.RLock()

    @override
    def __getattr__(self, name: str) -> object:
        """Run `__init__`, and return one of its names. Raises AttributeError: it has no such name."""
        if name in self._calls and self._init is not None:
            return partial(self._call, name)
        # Other names with underscores are asked for by inspection.
        if name == "__all__" or not name.startswith("__"):
            self._run()
            if name in self.__dict__:
                return self.__dict__[name]
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")

    def end_calls(self) -> None:
        """From now on, each name runs `__init__`."""
        self._calls = ()

    def _call(self, name: str, *args: object, **options: object) -> object:
        self._run()
        return self.__dict__[name](*args, **options)

    def _run(self) -> None:
        with self._lock:
            init, self._init = self._init, None
            if init is not None:
                init.exec_module(self)


class _LazyPackageFinder(MetaPathFinder):
    def __init__(self, calls: Mapping[str, Sequence[str]]) -> None:
        self._calls = calls

    @override
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._calls:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _LazyPackageLoader(spec.loader, self._calls[fullname])
        return spec


class _LazyPackageLoader(Loader):
    def __init__(self, init: Loader, calls: Sequence[str]) -> None:
        self._init = init
        self._calls = calls

    @override
    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return LazyPackage(spec.name, self._init, self._calls)

    @override
    def exec_module(self, module: ModuleType) -> None:
        """Set the version from the metadata, and types; the package runs its `__init__` itself.

        Others ask for the version when they are imported, or, on the event loop, when they are used.
        """
        with suppress(PackageNotFoundError):
            vars(module)["__version__"] = version(module.__name__)
        vars(module).update(ANNOTATIONS.get(module.__name__, {}))
