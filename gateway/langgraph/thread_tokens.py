"""What runs of a thread's token may not choose: whose they are, and whom Parley calls when they end.

Whoever holds such a token, as every visitor of a page with an embedded chat does, reads and changes one thread. Notes
about people are not of the thread, so its runs have notes of their own.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from fastapi import HTTPException

from gateway.api_tokens import TOKEN_THREAD
from gateway.runtime.request import GraphRunRequest

MEMORY_SCOPE = "memory_scope"
_IDENTITY = (MEMORY_SCOPE, "user_id", "is_bootstrap")


def refuse_options(config: object, context: object, webhook: object) -> None:
    """Refuse options of a run that the token of a thread may not set. Raises HTTPException (403)."""
    if not TOKEN_THREAD.get():
        return
    options = config.get("configurable") if isinstance(config, Mapping) else None
    named = {key for one in (options, context) if isinstance(one, Mapping) for key in one}
    refused = [key for key in _IDENTITY if key in named]
    if webhook is not None:
        refused.append("webhook")
    if refused:
        raise HTTPException(403, f"The token of a thread may not set {refused[0]!r} of a run.")


def with_own_memory(request: GraphRunRequest) -> GraphRunRequest:
    """Return a request whose run uses the notes of the token's thread, unless its assistant names others."""
    thread_id = TOKEN_THREAD.get()
    if not thread_id:
        return request
    options: dict[str, Any] = dict(request.config.get("configurable") or {})
    if MEMORY_SCOPE in options or MEMORY_SCOPE in request.context:
        return request
    return replace(request, context={**request.context, MEMORY_SCOPE: f"thread:{thread_id}"})
