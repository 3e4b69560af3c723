"""Pydantic models and type adapters that are built when they are first used."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pydantic import TypeAdapter
from pydantic._internal import _config


@contextmanager
def deferred_schemas() -> Iterator[None]:
    """Inside the block, pydantic models and adapters are defined, but built when they are first used, by any thread.

    As with `defer_build` in their own configuration. Most of those that are imported are never used, or only by
    certain requests.
    """
    defaults: Any = _config.config_defaults
    adapters: Any = TypeAdapter
    before, adapters_before = defaults["defer_build"], adapters._defer_build  # noqa: SLF001 - no public setting
    defaults["defer_build"] = adapters._defer_build = True  # noqa: SLF001
    try:
        yield
    finally:
        defaults["defer_build"] = before
        adapters._defer_build = adapters_before  # noqa: SLF001
