"""Packages whose `__init__` runs when one of its names is used, and not when one of its submodules is imported.

The packages of generated types import hundreds of modules in their `__init__`, while their users import the few
submodules that they need.
"""

import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

from typing_extensions import override

LAZY_PACKAGES = (
    "langsmith.types",  # 113 modules, of which langsmith.client needs one: 60 ms, 3 MB
    "openai.types",  # 460 modules, of which chat completions need 83: 250 ms, 10 MB
    "openai.types.responses",
)


def install_lazy_packages(names: Sequence[str] = LAZY_PACKAGES) -> None:
    """Make packages lazy that are imported from now on; packages that are not installed are ignored."""
    sys.meta_path.insert(0, _LazyPackageFinder(names))


UNUSED_MODULE = "opentelemetry.sdk.trace"
"""langsmith imports it, where it is installed, for the type of an argument: 50 ms, 5 MB."""


@contextmanager
def hidden_module(name: str = UNUSED_MODULE) -> Iterator[None]:
    """Inside the block, a module that was not imported yet cannot be: `import` raises ModuleNotFoundError."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]  # as the import system documents it
    try:
        yield
    finally:
        del sys.modules[name]


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
        if name == "__all__" or not name.startswith("__"):  # others are asked for by inspection
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
        """Do nothing: the package runs its `__init__` itself."""
