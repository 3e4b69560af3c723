"""Processes long texts in a worker thread. Parsing takes up to 3 ms for every 1,000 characters."""

from collections.abc import Callable
from functools import partial
from typing import Concatenate, ParamSpec, TypeVar

from anyio import to_thread

P = ParamSpec("P")
T = TypeVar("T")

MAX_INLINE_CHARS = 4_000
"""Maximum length to process in the event loop, characters. Such texts block it for at most about 10 ms."""


async def process_text(
    function: Callable[Concatenate[str, P], T], text: str, *args: P.args, **kwargs: P.kwargs
) -> T:
    """Return `function(text, ...)`, computed in a worker thread if the text is long."""
    if len(text) <= MAX_INLINE_CHARS:
        return function(text, *args, **kwargs)
    return await to_thread.run_sync(partial(function, text, *args, **kwargs))
