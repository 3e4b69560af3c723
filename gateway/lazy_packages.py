"""Packages whose `__init__` runs when one of its names is used, and not when one of its submodules is imported.

The packages of generated types import hundreds of modules in their `__init__`, while their users import the few
submodules that they need.
"""

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.metadata import PackageNotFoundError, version
from types import ModuleType

from typing_extensions import override

LAZY_PACKAGES = (
    "charset_normalizer",  # requests asks it for the encoding of a text that names none: 3 MB
    "langgraph_sdk",  # its clients for threads, and decorators for LangGraph's server: 1 MB
    "langsmith.types",  # 113 modules, of which langsmith.client needs one: 60 ms, 3 MB
    "openai.types",  # 460 modules, of which chat completions need 83: 250 ms, 10 MB
    "openai.types.responses",
    "uvicorn",  # its command, with click and multiprocessing: 1 MB
)


def install_lazy_packages(names: Sequence[str] = LAZY_PACKAGES) -> None:
    """Make packages lazy that are imported from now on; packages that are not installed are ignored."""
    sys.meta_path.insert(0, _LazyPackageFinder(names))


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
    finder = _HiddenModuleFinder(names)
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

    def __init__(self, name: str, init: Loader) -> None:
        super().__init__(name)
        self._init: Loader | None = init
        self._lock = threading.RLock()

    @override
    def __getattr__(self, name: str) -> object:
        """Run `__init__`, and return one of its names. Raises AttributeError: it has no such name."""
        # Other names with underscores are asked for by inspection.
        if name == "__all__" or not name.startswith("__"):
            with self._lock:
                init, self._init = self._init, None
                if init is not None:
                    init.exec_module(self)
            if name in self.__dict__:
                return self.__dict__[name]
        raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")


class _LazyPackageFinder(MetaPathFinder):
    def __init__(self, names: Sequence[str]) -> None:
        self._names = frozenset(names)

    @override
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target) if fullname in self._names else None
        if spec is not None and spec.loader is not None:
            spec.loader = _LazyPackageLoader(spec.loader)
        return spec


class _LazyPackageLoader(Loader):
    def __init__(self, init: Loader) -> None:
        self._init = init

    @override
    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return LazyPackage(spec.name, self._init)

    @override
    def exec_module(self, module: ModuleType) -> None:
        """Set the version from the metadata; the package runs its `__init__` itself.

        Others ask for the version when they are imported, or, on the event loop, when they are used.
        """
        with suppress(PackageNotFoundError):
            vars(module)["__version__"] = version(module.__name__)
