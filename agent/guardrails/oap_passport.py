"""Guardrail provider for Open Agent Passport 1.0."""

import json
import threading
from collections import OrderedDict
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import anyio.to_thread
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from agent.errors import GuardrailUnusable
from agent.guardrails.oap_limits import CapabilityLimits, Violation
from agent.guardrails.protocol import (
    LIMIT_EXCEEDED,
    NOT_ALLOWED,
    SUSPENDED,
    GuardrailDecision,
    GuardrailRequest,
    allow,
    deny,
)
from agent.tool_names import matches

POLICY = "oap"
ACTIVE = "active"
MAX_RUNS = 1024
"""Maximum number of runs whose calls are counted. The least recently used run is dropped."""
MAX_BYTES = 1024 * 1024

CAPABILITIES: Mapping[str, str] = MappingProxyType(
    {
        "bash": "system.command.execute",
        "bash_output": "system.command.execute",
        "kill_bash": "system.command.execute",
        "ls": "data.file.read",
        "glob": "data.file.read",
        "grep": "data.file.read",
        "read_file": "data.file.read",
        "view_image": "data.file.read",
        "present_files": "data.file.read",
        "write_file": "data.file.write",
        "str_replace": "data.file.write",
        "web_fetch": "web.fetch",
        "web_search": "web.fetch",
        "image_search": "web.fetch",
        "task": "agent.delegate",
        "invoke_acp_agent": "agent.delegate",
        "list_mcp_resources": "mcp.resource.read",
        "read_mcp_resource": "mcp.resource.read",
        "get_mcp_prompt": "mcp.resource.read",
    }
)
"""The capability that each tool needs. Other tools need a capability with their own name."""

MCP_CAPABILITY = "mcp.tool.execute"
"""Capability that allows every tool of MCP servers."""


class _Capability(BaseModel):
    id: str = Field(min_length=1)


class OapPassport(BaseModel):
    """A passport. Ignores unknown keys. Rejects unknown limits, because they could not be enforced."""

    model_config = ConfigDict(frozen=True)

    spec_version: str = Field(pattern=r"^oap/1\.\d+$")
    passport_id: str | None = None
    status: str = ACTIVE
    expires_at: datetime | None = None
    capabilities: tuple[_Capability, ...] = ()
    limits: dict[str, CapabilityLimits] = Field(default_factory=dict)

    @property
    def granted(self) -> frozenset[str]:
        """IDs of its capabilities."""
        return frozenset(capability.id for capability in self.capabilities)

    def is_valid(self, now: datetime) -> bool:
        """Return whether it is active and not expired."""
        ends = self.expires_at
        if ends is not None and ends.tzinfo is None:
            ends = ends.replace(tzinfo=UTC)
        return self.status == ACTIVE and (ends is None or now < ends)


class OapPassportProvider:
    """Decides by a passport. Reads a changed file again, so a suspension takes effect immediately.

    Args:
        passport: Path of a JSON file, JSON text, or the parsed object.
        capabilities: Tool name or pattern -> capability; extends and overrides `CAPABILITIES`.

    Raises:
        GuardrailUnusable: It is missing or invalid.
    """

    name = POLICY

    def __init__(
        self,
        passport: str | Mapping[str, Any] | None = None,
        capabilities: Mapping[str, str] | None = None,
    ) -> None:
        if not passport:
            raise GuardrailUnusable(
                "guardrails: oap needs a passport: set guardrails.passport to a file"
            )
        self._file, self._passport = _load(passport)
        self._stamp = _stamp(self._file) if self._file is not None else None
        self._needs = dict(capabilities or {})
        self._calls: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._lock = threading.Lock()

    def find_problem(self) -> str | None:
        """Return a warning if the passport is inactive or expired, else None."""
        passport, which = (
            self._passport,
            f"the passport {self._file}" if self._file else "the passport",
        )
        if passport.is_valid(datetime.now(UTC)):
            return None
        why = f"expired at {passport.expires_at}"
        if passport.status != ACTIVE:
            why = f"has the status {passport.status!r}"
        return f"guardrails: {which} {why}, so every tool call is denied: renew it"

    def evaluate(self, request: GuardrailRequest) -> GuardrailDecision:
        """Decide. May read the file.

        Raises:
            GuardrailUnusable: The file is gone or no longer valid.
        """
        passport = self._current()
        if not passport.is_valid(datetime.now(UTC)):
            return self._denied(SUSPENDED, "the agent's passport is not active")
        violation = None if request.is_exempt else self._violation(passport, request)
        return allow(policy_id=POLICY) if violation is None else self._denied(*violation)

    async def aevaluate(self, request: GuardrailRequest) -> GuardrailDecision:
        """Decide in a worker thread, because the file may be read."""
        return await anyio.to_thread.run_sync(self.evaluate, request, abandon_on_cancel=True)

    def _violation(self, passport: OapPassport, request: GuardrailRequest) -> Violation | None:
        """Return the limit of an active passport that a call violates."""
        capability = self._capability(request, passport.granted)
        if capability is None:
            needed = self._needed(request) or request.tool_name
            return NOT_ALLOWED, f"the agent's passport has no capability '{needed}' for this tool"
        limits = passport.limits.get(capability, CapabilityLimits())
        violation = limits.violation(request.tool_input)
        if violation is None and self._exceeds_calls(request, capability, limits):
            return LIMIT_EXCEEDED, f"the call limit of '{capability}' for this run is reached"
        return violation

    def _capability(self, request: GuardrailRequest, granted: frozenset[str]) -> str | None:
        """Return the most specific granted capability that allows this tool."""
        name = request.tool_name
        candidates = [name, self._needed(request)] if name else []
        if request.mcp_server is not None:
            candidates.append(MCP_CAPABILITY)
        return next((one for one in candidates if one is not None and one in granted), None)

    def _needed(self, request: GuardrailRequest) -> str | None:
        """Return the capability that a tool needs; None = only one with its own name."""
        name = request.tool_name
        own = CAPABILITIES.get(name) if request.mcp_server is None else None
        return next((need for one, need in self._needs.items() if matches(name, [one])), own)

    def _exceeds_calls(
        self, request: GuardrailRequest, capability: str, limits: CapabilityLimits
    ) -> bool:
        if limits.max_calls_per_run is None:
            return False
        key = (request.run_id or request.thread_id or "", capability)
        with self._lock:
            count = self._calls.pop(key, 0) + 1
            self._calls[key] = count
            if len(self._calls) > MAX_RUNS:
                self._calls.popitem(last=False)
        return count > limits.max_calls_per_run

    def _current(self) -> OapPassport:
        if self._file is None:
            return self._passport
        with self._lock:
            stamp = _stamp(self._file)
            if stamp != self._stamp:
                self._passport = _parsed(_text(self._file))
                self._stamp = stamp
            return self._passport

    def _denied(self, code: str, message: str) -> GuardrailDecision:
        return deny(code, message, policy_id=self._passport.passport_id or POLICY)


def _load(given: str | Mapping[str, Any]) -> tuple[Path | None, OapPassport]:
    if not isinstance(given, str):
        return None, _checked(given)
    if given.lstrip().startswith("{"):
        return None, _parsed(given)
    file = Path(given).expanduser()
    if not file.is_file():
        raise GuardrailUnusable(f"guardrails.passport: there is no file {file.absolute()}")
    return file, _parsed(_text(file))


def _text(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return opened.read(MAX_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        raise GuardrailUnusable("guardrails: the passport file cannot be read") from error


def _stamp(file: Path) -> tuple[int, int, int]:
    try:
        found = file.stat()
    except OSError as error:
        raise GuardrailUnusable("guardrails: the passport file cannot be read") from error
    return (found.st_mtime_ns, found.st_size, found.st_ino)


def _parsed(text: str) -> OapPassport:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise GuardrailUnusable("guardrails: the passport is not JSON") from error
    return _checked(found)


def _checked(found: object) -> OapPassport:
    try:
        return OapPassport.model_validate(found)
    except ValidationError as error:
        first = error.errors(include_input=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"])) or "passport"
        raise GuardrailUnusable(f"guardrails: invalid passport: {where}: {first['msg']}") from error
