"""Guardrail provider that allows or denies tools by name or pattern."""

from collections.abc import Collection, Iterable

from agent.guardrails.protocol import (
    NOT_ALLOWED,
    GuardrailDecision,
    GuardrailRequest,
    allow,
    deny,
)
from agent.tool_names import is_allowed, matches

POLICY = "allowlist"


class AllowlistProvider:
    """Allows or denies tools by name or pattern (`github_*`), without regard to case.

    Args:
        allowed_tools: Allow only these; an empty list allows none. None = all.
        denied_tools: Always deny these, even if `allowed_tools` has them.

    Raises:
        ValueError: An argument is not a list of names.
    """

    name = POLICY

    def __init__(
        self,
        allowed_tools: Iterable[str] | None = None,
        denied_tools: Iterable[str] | None = None,
    ) -> None:
        # Test for None, because an empty list must deny everything.
        self._allowed = None if allowed_tools is None else _names("allowed_tools", allowed_tools)
        self._denied = frozenset() if denied_tools is None else _names("denied_tools", denied_tools)

    def evaluate(self, request: GuardrailRequest) -> GuardrailDecision:
        """Decide by the tool's name. With an allowlist, a call without a name is denied.

        An exempt tool need not be in the list: without such tools, the agent could not load the listed tools, or
        remember.
        """
        name = request.tool_name
        if matches(name, self._denied):
            return deny(NOT_ALLOWED, f"tool '{name}' is denied by policy", policy_id=POLICY)
        if self._allowed is not None and not (
            request.is_exempt or (name and is_allowed(name, self._allowed))
        ):
            return deny(NOT_ALLOWED, f"tool '{name}' is not in the allowlist", policy_id=POLICY)
        return allow(policy_id=POLICY)

    async def aevaluate(self, request: GuardrailRequest) -> GuardrailDecision:
        """Decide without blocking."""
        return self.evaluate(request)


def _names(key: str, given: object) -> Collection[str]:
    if not isinstance(given, list | tuple | set | frozenset) or not all(
        isinstance(name, str) for name in given
    ):
        raise ValueError(f"{key} must be a list of tool names")
    return frozenset(given)
